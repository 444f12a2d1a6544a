//! The workloads in which more than one pair goes as fast as it goes, shortly: all arrives, and each says what it was about.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bench;

/// The rows of a short measurement, clean of faults.
fn rows(line: &str) -> Vec<Value> {
    let document = bench(&format!("{line} --duration 0.2 --warmup 0.05 --repeat 1"));
    let rows = document["results"].as_array().expect("results").clone();
    for row in &rows {
        assert!(row.get("errors").is_none(), "{row:#}");
        for count in ["lost", "duplicated", "reordered", "damaged"] {
            let excused = row["protocol"] == "udp" && count == "lost";
            assert!(excused || row[count].as_u64() == Some(0), "{count}: {row:#}");
        }
    }
    rows
}

fn median(row: &Value, path: &str) -> f64 {
    let figure = path.split('.').fold(row, |value, name| &value[name]);
    figure["median"].as_f64().unwrap_or_else(|| panic!("{path}: {row:#}"))
}

pub fn pairs_share_a_link_and_each_gets_some() {
    let rows = rows("share --protocol polyrail,tcp-cubic --rate 200 --size 16K");
    let loads: Vec<(Option<u64>, Option<&str>)> = rows
        .iter()
        .filter(|row| row["protocol"] == "polyrail")
        .map(|row| (row["pairs"].as_u64(), row["direction"].as_str()))
        .collect();
    assert_eq!(loads, [(Some(1), None), (Some(2), Some("same")), (Some(2), Some("opposite"))]);
    for row in rows.iter().filter(|row| row["pairs"] == 2) {
        let (least, most) = (median(row, "sharing.least_mbps"), median(row, "sharing.most_mbps"));
        assert!(least > 0.0 && least <= most, "{row:#}");
        assert!((0.5..=1.0001).contains(&median(row, "sharing.fairness")), "{row:#}");
        assert!((median(row, "throughput_mbps") - least - most).abs() < 1.0, "{row:#}");
    }
}

pub fn links_are_added_one_by_one() {
    let rows = rows("links --protocol policies,mptcp --links 2 --rate 200 --model");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["protocol"].as_str()).collect();
    assert!(names.len() == 1 + polyrail_bench::protocol::policies().len(), "{names:?}");
    let polyrail: Vec<u64> = rows
        .iter()
        .filter(|row| row["protocol"] == "polyrail" && median(row, "throughput_mbps") > 0.0)
        .filter_map(|row| row["links"].as_u64())
        .collect();
    assert_eq!(polyrail, [1, 2]);
}

pub fn a_plan_is_one_report_with_what_is_expected_beside_each_figure() {
    let sizes = "--size 16K --rate 200 --duration 0.1 --warmup 0.05 --repeat 1";
    let document = bench(&format!("plan mnc --protocol polyrail,mptcp {sizes}"));
    let rows = document["results"].as_array().expect("results");
    let count = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    let protocols = 2;
    // One pair, two the same way, two against each other, on one link and on two; then one link and two.
    assert_eq!(count("share"), 6 * protocols);
    assert_eq!((count("links"), count("lone")), (2 * protocols, 2 * protocols));
    for row in rows {
        assert!(row.get("errors").is_none(), "{row:#}");
        assert!(median(row, "expected.measured_by_expected") > 0.0, "{row:#}");
    }
    assert_eq!(document["plan"].as_array().map(Vec::len), Some(5));
    // A finding that was measured has its figure, and one round decides nothing.
    let findings = document["findings"].as_array().expect("findings");
    let half = findings.iter().find(|row| row["name"] == "half-each-the-same-way").expect("sharing");
    assert_eq!((&half["at"]["protocol"], &half["verdict"]), (&"polyrail".into(), &"not seen here".into()));
    assert!(half["measured"]["median"].as_f64() > Some(0.0), "{half:#}");
}

pub fn rounds_of_a_plan_are_one_row_each_and_decide() {
    let path = std::env::temp_dir().join(format!("polyrail-plan-{}.toml", std::process::id()));
    let plan = "title = \"t\"\n[[measure]]\nworkload = \"stream\"\nprotocol = [\"tcp-cubic\", \"tipc-stream\"]\nwait = \"block\"\n\
                links = 1\nrate = 20\nsize = \"16K\"\nwarmup = 0.05\nduration = 0.2\n\
                [[measure]]\nworkload = \"stream\"\nprotocol = \"tcp-cubic\"\nwait = \"block\"\n\
                links = 1\nrate = 200\nsize = \"16K\"\nread = \"whole\"\nwarmup = 0.05\nduration = 0.2\n\
                [[finding]]\nname = \"f\"\nsays = \"s\"\nfigure = \"throughput\"\nof = [{ rate_mbit = [200] }]\n\
                by = [{ rate_mbit = [20], protocol = \"tcp-cubic\" }]\nabove = 2.0\n";
    std::fs::write(&path, plan).expect("a file");
    let document = bench(&format!("plan {}", path.display()));
    std::fs::remove_file(path).expect("the same file");
    let rows = document["results"].as_array().expect("results");
    let of_tcp: Vec<&Value> = rows.iter().filter(|row| row["protocol"] == "tcp-cubic").collect();
    assert_eq!(of_tcp.len(), 2, "{document:#}");
    assert!(of_tcp.iter().all(|row| row["throughput_mbps"]["samples"] == 6), "{document:#}");
    assert_eq!((of_tcp[0].get("read"), &of_tcp[1]["read"]), (None, &"whole".into()));
    // A link of ten times the rate carries more than twice as much, however busy the machine is.
    assert_eq!(document["findings"][0]["verdict"], "holds", "{document:#}");
}

pub fn senders_answer_one_receiver_together() {
    let rows = rows("incast --protocol polyrail,tcp-cubic,udp --senders 3 --rate 200 --size 8K");
    let protocols: Vec<&str> = rows.iter().filter_map(|row| row["protocol"].as_str()).collect();
    assert_eq!(protocols, ["polyrail", "tcp-cubic"], "an answer that may be lost is not waited for");
    for row in &rows {
        assert_eq!(row["senders"], 3);
        // Three answers of 8 KiB take longer than one does at 200 Mbit/s.
        assert!(median(row, "latency_us.p50") > 327.0, "{row:#}");
    }
}

pub fn what_goes_to_several_is_with_every_port_once_and_in_order() {
    let protocols = "polyrail,polyrail-multicast,tcp-cubic";
    for loss in ["0", "1"] {
        let rows = rows(&format!("multicast --protocol {protocols} --members 8 --size 1K,64K --loss {loss}"));
        let seen: Vec<(&str, u64)> =
            rows.iter().filter_map(|row| Some((row["protocol"].as_str()?, row["size"].as_u64()?))).collect();
        let both = |size| [("polyrail", size), ("polyrail-multicast", size)];
        assert_eq!(seen, [both(1_024), both(65_536)].concat(), "TCP sends to one");
        for row in &rows {
            assert_eq!((&row["members"], &row["member_ports"]), (&8.into(), &3.into()));
            assert!(median(row, "rate_per_s") > 0.0 && median(row, "sender_cpu_us") > 0.0, "{row:#}");
        }
    }
}

pub fn a_lone_message_is_held_against_what_its_links_allow() {
    let rows = rows("lone --protocol polyrail,tcp-cubic,mptcp,udp --rate 200:50 --size 64K --wait block");
    let protocols: Vec<&str> = rows.iter().filter_map(|row| row["protocol"].as_str()).collect();
    assert_eq!(protocols, ["polyrail", "tcp-cubic", "mptcp"], "a message that may be lost is not waited for");
    for row in &rows {
        let (ideal, base) = (median(row, "ideal.ideal_us"), median(row, "ideal.base_us"));
        assert!(ideal >= base && base > 0.0 && median(row, "ideal.to_ideal") > 0.0, "{row:#}");
        assert!(row["ideal"]["messages"].as_u64() > Some(0), "{row:#}");
        // However long the machine was away: a quarter of a full bucket at most was left of 64 KiB.
        let one_link = row["protocol"] == "tcp-cubic";
        if row["ideal"]["not_emptied"] == 0 {
            let mbit = if one_link { 200.0 } else { 250.0 };
            let least = (65_536.0 - if one_link { 32_768.0 } else { 65_536.0 }) * 8.0 / mbit;
            assert!(ideal - base >= least, "{row:#}");
        }
    }
}

pub fn what_a_relay_does_is_told_beside_what_goes_over_it() {
    let line = "pingpong --protocol polyrail,tcp-nodelay --rate 200 --delay 4 --wait block";
    let document = bench(&format!("{line} --duration 0.2 --warmup 0.05 --repeat 1"));
    let relay = &document["relays"][0];
    assert_eq!((&relay["link"], &relay["delay_ms"]), (&"l0".into(), &4.0.into()));
    // By buckets of three digits.
    assert!(relay["round_trip_ms"].as_f64() >= Some(7.99), "{relay:#}");
    assert!(relay["carries_mbps"].as_f64() > Some(0.0), "{relay:#}");
    for row in document["results"].as_array().expect("results") {
        assert_eq!(row["delay_ms"], serde_json::json!([4.0]));
        // By buckets of three digits.
        assert!(median(row, "latency_us.p50") >= 7_990.0, "{row:#}");
    }
    // Both subflows join, though the second asks when the first has long been accepted.
    let line = "stream --protocol mptcp --links 2 --rate 20 --delay 4 --wait block --repeat 1";
    let both = |_| {
        median(&bench(&format!("{line} --duration 1 --warmup 1"))["results"][0], "throughput_mbps") > 22.0
    };
    // One that was refused never joins; a machine that is away for half of a window may hide one that did.
    assert!((0..5).any(both), "one link of 20 Mbit/s was all");
}

pub fn questions_are_answered_beside_bulk() {
    let rows =
        rows("pingpong --beside bulk --class urgent --protocol polyrail,tcp-bbr,mptcp --links 2 --rate 200");
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for row in &rows {
        assert_eq!(row["beside"], "bulk");
        assert!(median(row, "latency_us.p99") > 0.0 && median(row, "throughput_mbps") > 0.0, "{row:#}");
    }
    assert_eq!((&rows[0]["class"], rows[1].get("class")), (&"urgent".into(), None), "TCP has none");
}

pub fn messages_at_a_fixed_rate_are_timed_from_when_they_were_due() {
    let rows = rows("openloop --protocol polyrail,tcp-nodelay --arrivals 500,2000 --wait block");
    let rates: Vec<u64> = rows.iter().filter_map(|row| row["arrivals_per_s"].as_u64()).collect();
    assert_eq!(rates, [500, 500, 2000, 2000]);
    for row in &rows {
        let (corrected, raw) = (median(row, "latency_us.p99"), median(row, "raw_latency_us.p99"));
        assert!(raw > 0.0 && raw <= corrected, "{row:#}");
    }
}

pub fn what_is_offered_and_what_is_received_are_two_figures() {
    let rows = rows("datagram --protocol udp,tcp-cubic --offer 20,0 --size 1000 --wait block");
    let offers: Vec<u64> = rows.iter().filter_map(|row| row["offer"].as_u64()).collect();
    assert_eq!(offers, [20, 20, 0, 0]);
    for row in &rows {
        assert!(median(row, "offered_mbps") > 0.0 && median(row, "throughput_mbps") > 0.0, "{row:#}");
    }
}

pub fn streams_go_side_by_side_and_buffers_are_set() {
    let rows = rows("stream --protocol polyrail,tcp-cubic --streams 3 --rate 200 --size 16K");
    assert!(rows.len() == 2 && rows.iter().all(|row| row["streams"] == 3), "{rows:#?}");
    let rows = self::rows("buffer --protocol tcp-cubic --size 1K,4K --socket-buffer-max 4K,64K --rate 200");
    let buffers: Vec<u64> = rows.iter().filter_map(|row| row["socket_buffer_max"].as_u64()).collect();
    assert_eq!(buffers, [4096, 65536, 4096, 65536]);
}
