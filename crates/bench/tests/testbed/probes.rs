//! The workloads that are not about speed, shortly: cuts, idle nodes, a receiver that stops reading, links that lose.

use serde_json::Value;

use super::{bench, output};

fn is_clean(row: &Value) {
    for count in ["lost", "duplicated", "reordered", "damaged"] {
        assert_eq!(row[count].as_u64(), Some(0), "{count}: {row:#}");
    }
    assert!(row.get("errors").is_none(), "{row:#}");
}

pub fn every_cut_is_judged_and_nothing_is_lost() {
    let line = "failover --protocol polyrail --rate 200 --arrivals 1000 --cuts 2 --outage 0.3 --pause 0.6";
    for class in ["normal", "bulk", "urgent"] {
        let document = bench(&format!("{line} --warmup 0.3 --class {class}"));
        let row = &document["results"][0];
        is_clean(row);
        assert_eq!(row["class"], class);
        let cuts = row["cuts"].as_array().expect("cuts");
        assert_eq!(cuts.len(), 4, "two of each kind: {row:#}");
        let links: Vec<u64> = cuts.iter().filter_map(|cut| cut["link"].as_u64()).collect();
        assert_eq!(links, [0, 1, 0, 1]);
        for cut in cuts {
            assert!(cut["messages"].as_u64() > Some(0) && cut["unfinished"] == false, "{cut:#}");
            assert!(cut["gap_ms"].as_f64() > Some(0.0), "{cut:#}");
            assert!(cut["gap_net_ms"].as_f64() <= cut["gap_ms"].as_f64(), "{cut:#}");
            assert!(cut["return_ms"].as_f64() > Some(0.0), "what follows on a return is told: {cut:#}");
            assert!(cut["goodput_share"].as_f64() > Some(0.0), "something arrived meanwhile: {cut:#}");
        }
        let kinds: Vec<&str> =
            row["gaps"].as_array().expect("gaps").iter().filter_map(|g| g["kind"].as_str()).collect();
        assert_eq!(kinds, ["carrier", "blackhole"]);
        assert!(row["calm_lateness_us"]["p50"].as_f64() > Some(0.0), "{row:#}");
        assert!(row["throughput_mbps"]["median"].as_f64() > Some(0.0), "the bulk went on: {row:#}");
    }
}

pub fn a_link_that_flaps_is_one_cut_and_what_it_did_is_counted() {
    let line =
        "failover --protocol polyrail --rate 200 --arrivals 1000 --kind flapping --cuts 1 --outage 0.5";
    let document = bench(&format!("{line} --pause 0.6 --warmup 0.3"));
    let row = &document["results"][0];
    is_clean(row);
    assert_eq!(row["cuts"].as_array().map(Vec::len), Some(1), "{row:#}");
    assert_eq!((&row["gaps"][0]["kind"], &row["gaps"][0]["cuts"]), (&"flapping".into(), &1.into()));
    let cut = &row["cuts"][0];
    // Half a second has room for five; a machine that is short of time gets fewer in.
    assert!(cut["flaps"].as_u64().is_some_and(|flaps| (1..=5).contains(&flaps)), "{cut:#}");
    assert!(cut["goodput_share"].as_f64() > Some(0.0) && cut["unfinished"] == false, "{cut:#}");
}

pub fn one_link_has_nothing_to_fail_over_to() {
    let line = "failover --protocol polyrail,tcp-cubic --rate 200 --arrivals 100 --cuts 1 --kind carrier";
    let document = bench(&format!("{line} --outage 0.1 --pause 0.3 --warmup 0.2"));
    assert_eq!(document["results"].as_array().map(Vec::len), Some(1));
    let unavailable = &document["unavailable"][0];
    assert_eq!(unavailable["protocol"], "tcp-cubic");
    assert!(unavailable["reason"].as_str().is_some_and(|reason| reason.contains("fail over")));
}

pub fn an_idle_pair_has_a_cost_and_little_of_it() {
    let document = bench("idle --protocol polyrail,tcp-cubic --warmup 0.5 --duration 0.5 --repeat 1");
    for row in document["results"].as_array().expect("results") {
        is_clean(row);
        for side in ["sender", "receiver"] {
            let figure = |name: &str| row["idle"][name][side]["median"].as_f64().expect("a figure");
            assert!(
                figure("resident_mib") >= figure("private_mib") && figure("private_mib") > 0.0,
                "{row:#}"
            );
            // One that polled would use its core and nothing else.
            assert!(figure("cpu_percent") < 50.0, "{row:#}");
        }
    }
}

pub fn a_receiver_that_stops_reading_gets_everything() {
    let document = bench("stalled --protocol polyrail,tcp-cubic --bytes 64M --duration 0.3");
    for row in document["results"].as_array().expect("results") {
        is_clean(row);
        let before = row["sent_before_block_bytes"].as_u64().expect("bytes");
        assert!(before > 0 && before < 64 << 20, "{row:#}");
        assert!(row["blocked_s"]["median"].as_f64() > Some(0.5), "{row:#}");
        for side in ["sender", "receiver"] {
            let memory = |name: &str| row["memory_mib"][side][name]["median"].as_f64().expect("a figure");
            assert!(memory("max") >= memory("blocked") && memory("start") > 0.0, "{row:#}");
        }
    }
}

/// The kernel's own counters say what was lost: packets that the rule dropped, of those that came by it, while the
/// protocol that sends long trains is measured.
pub fn a_lossy_link_loses_single_packets_at_its_rate() {
    let namespace = format!("pr-bench-{}-b", std::process::id());
    let line =
        "stream --protocol polyrail --links 2 --rate 200 --loss 5:0 --repeat 1 --duration 1.5 --wait block";
    let measured = std::thread::spawn(move || bench(line));
    let (mut lossy, mut clean) = (None, true);
    while !measured.is_finished() {
        lossy = passed_and_dropped(&namespace, "l0").or(lossy);
        clean &= passed_and_dropped(&namespace, "l1").is_none();
    }
    let document = measured.join().expect("measured");
    is_clean(&document["results"][0]);
    assert_eq!(document["results"][0]["loss_percent"], serde_json::json!([5.0, 0.0]));
    assert!(clean, "the other link has no rule");
    let [(packets, bytes), (lost, lost_bytes)] = lossy.expect("counters of the lossy link");
    assert!(packets > 2_000 && bytes / packets <= 1_500, "{packets} packets, {bytes} bytes");
    assert!(lost_bytes / lost.max(1) <= 1_500, "what is lost is one packet");
    // Five standard deviations of a binomial distribution.
    let (expected, deviation) = (packets as f64 * 0.05, (packets as f64 * 0.05 * 0.95).sqrt());
    assert!((lost as f64 - expected).abs() < 5.0 * deviation, "{lost} of {packets} packets lost");
}

/// Packets and bytes that came by the loss rule of a device, and those it has dropped; none while there is no rule.
fn passed_and_dropped(namespace: &str, device: &str) -> Option<[(u64, u64); 2]> {
    let chain = format!("loss_{device}");
    let args = ["netns", "exec", namespace, "nft", "list", "chain", "netdev", "polyrail", &chain];
    let text = output("ip", &args);
    let numbers = |name: &str| -> Vec<u64> {
        let behind = text.split(name).skip(1).filter_map(|rest| rest.split_whitespace().next());
        behind.filter_map(|word| word.parse().ok()).collect()
    };
    match (numbers("packets ").as_slice(), numbers("bytes ").as_slice()) {
        (&[passed, dropped], &[passed_bytes, dropped_bytes]) => {
            Some([(passed, passed_bytes), (dropped, dropped_bytes)])
        }
        _ => None,
    }
}
