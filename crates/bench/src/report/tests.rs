use serde_json::{Value, json};

use super::*;
use crate::args::tests::parse;
use crate::calibrate::tests::pulses_for_tests;
use crate::check::CheckCounts;
use crate::control::SideReport;
use crate::failover::{Cut, Goodput, Judgement, Kind, Look, Place, Reuse, Timeline};
use crate::host::Device;
use crate::memory::MemoryUse;
use crate::netns::Direction;
use crate::protocol::find;
use crate::pss::CrowdMemory;
use crate::run::RelayRow;
use crate::workload::LoneTimes;

fn parsed(report: &Report) -> Value {
    let value: Value = serde_json::from_str(&report.json()).expect("a report is always valid JSON");
    assert_eq!(value["schema"], SCHEMA);
    assert!(value["host"].is_object() && value["results"].is_array() && value["ratios"].is_array());
    value
}

pub(super) fn stream_sample(mbps: u64) -> Sample {
    let side = SideReport {
        window_ns: 1_000_000_000,
        messages: mbps,
        bytes: mbps * 125_000,
        cpu_ns: 500_000_000,
        ..SideReport::default()
    };
    Sample { sender: side.clone(), receiver: side, ..Sample::default() }
}

pub(super) fn series(line: &str, protocol: &str, samples: Vec<Sample>) -> Series {
    let near = |sample| (sample, pulses_for_tests(50.0, 50.0));
    series_in_phases(line, protocol, samples.into_iter().map(near).collect())
}

fn series_in_phases(line: &str, protocol: &str, samples: Vec<(Sample, Pulses)>) -> Series {
    let plan = parse(line).unwrap().plan().unwrap();
    let case = Case::new(&plan, find(protocol).unwrap(), &plan.environments[0], &plan.points[0]);
    let mut series = Series::new(case);
    for (repetition, (sample, pulses)) in (0..).zip(samples) {
        series.add(repetition, sample, pulses);
    }
    series
}

#[test]
fn errors_of_every_kind_leave_valid_json_and_a_code() {
    let refused = crate::measure(&parse("stream --protocol no-such-thing").unwrap());
    assert_eq!(refused.exit_code(), 2);
    assert!(parsed(&refused)["error"].as_str().unwrap().contains("no-such-thing"));
    let failed = Report::failed("the \"machine\"\nsaid no".to_owned());
    assert_eq!(
        (failed.exit_code(), parsed(&failed)["error"].as_str()),
        (1, Some("the \"machine\"\nsaid no"))
    );
    assert_eq!(parsed(&Report::new())["error"], Value::Null);
}

#[test]
fn a_sample_cut_short_keeps_its_figure_beside_its_error() {
    let cut = Sample { error: Some("receiver: killed".to_owned()), ..stream_sample(700) };
    let mut report = Report::new();
    report.add(series("stream", "tcp-cubic", vec![stream_sample(900), cut]));
    report.conclude(&[]);
    let row = &parsed(&report)["results"][0];
    assert_eq!(row["throughput_mbps"]["low"], 700.0);
    assert_eq!(row["errors"][0], "receiver: killed");
    assert_eq!(report.exit_code(), 1);
}

/// A cut of a link, in which so much arrived.
fn cut(kind: Kind, link: usize, mbps: Option<f64>, reuse: Reuse) -> Cut {
    let goodput = mbps.map(|mbps| Goodput { bytes: (mbps * 125_000.0) as u64, span_ns: 1_000_000_000 });
    Cut {
        place: Place { kind, link, node: 0, direction: Direction::Both },
        cut_ns: 0,
        restored_ns: 0,
        judgement: Judgement { gap_ns: 2_000_000, goodput, ..Judgement::default() },
        carried_share: 0.5,
        aftermath_ns: Some(1),
        reuse,
        flaps: if kind == Kind::Flapping { 99 } else { 0 },
    }
}

fn failover_report(line: &str, cuts: Vec<Cut>) -> Report {
    let mut report = Report::new();
    report.add(series(line, "polyrail", vec![Sample { cuts, ..Sample::default() }]));
    report
}

#[test]
fn a_run_over_time_and_its_cuts_have_one_beginning() {
    let timeline =
        Timeline { from_ns: 5_000_000_000, bytes: vec![12_500_000, 0], late_ns: vec![1_500_000, 0] };
    let place = cut(Kind::Carrier, 0, None, Reuse::Unknown);
    let known = Cut { cut_ns: 5_500_000_000, restored_ns: 6_000_000_000, ..place.clone() };
    let unknown = Cut { cut_ns: 5_500_000_000, ..place };
    let receiver = SideReport { timeline: Some(timeline), ..SideReport::default() };
    let look = |at_ns, bytes: [u64; 2]| Look { at_ns, bytes: bytes.to_vec() };
    let looks = vec![
        look(4_900_000_000, [0, 0]),
        look(5_100_000_000, [5_000_000, 0]),
        look(5_200_000_000, [5_000_000, 1_250_000]),
    ];
    let sample = Sample { cuts: vec![known, unknown], looks, receiver, ..Sample::default() };
    let mut report = Report::new();
    report.add(series("failover", "polyrail", vec![sample]));
    let row = &parsed(&report)["results"][0];
    let expected = json!([{
        "repetition": 1, "step_ms": 100.0, "goodput_mbps": [1_000.0, 0.0], "late_ms": [1.5, 0.0],
        "links_mbps": [[200.0, 0.0], [0.0, 100.0]],
    }]);
    assert_eq!(row["timelines"], expected);
    assert_eq!((&row["cuts"][0]["from_s"], &row["cuts"][0]["until_s"]), (&0.5.into(), &1.0.into()));
    assert!(row["cuts"][1].get("until_s").is_none(), "what was not recorded is absent");
    let read: document::Document = serde_json::from_value(parsed(&report)).unwrap();
    assert_eq!(read.results[0].timelines.len(), 1);
}

#[test]
fn the_command_line_is_one_that_can_be_typed_again() {
    let words =
        ["/somewhere/polyrail", "bench", "stream", "--size", "4K,1M", "--csv", "a b'c"].map(str::to_owned);
    let told = command_line(words.into_iter());
    assert_eq!(told, ["polyrail", "bench", "stream", "--size", "4K,1M", "--csv", "'a b'\\''c'"]);
}

#[test]
fn goodput_while_a_link_was_away_is_held_against_what_the_others_carry() {
    use Kind::{Carrier, Flapping};
    let reuse = |ms: u64| Reuse::After(ms * 1_000_000);
    let carried = |mbit: f64| mbit * 1_432.0 / 1_514.0;
    let report = failover_report(
        "failover --rate 1000:500 --kind carrier,flapping",
        vec![
            cut(Carrier, 0, Some(carried(500.0)), reuse(10)),
            cut(Carrier, 1, Some(carried(940.0)), reuse(30)),
            cut(Carrier, 0, None, Reuse::Not),
            cut(Flapping, 1, Some(carried(940.0)), Reuse::Unknown),
        ],
    );
    let row = &parsed(&report)["results"][0];
    let shares: Vec<Option<f64>> = (0..4).map(|place| row["cuts"][place]["goodput_share"].as_f64()).collect();
    let thousandths = |share: &Option<f64>| share.map(|share| (share * 1e3).round());
    let shares: Vec<Option<f64>> = shares.iter().map(thousandths).collect();
    assert_eq!(shares, [Some(1_000.0), Some(940.0), None, Some(940.0)]);
    assert_eq!((&row["cuts"][1]["reuse_ms"], &row["cuts"][3]["flaps"]), (&30.0.into(), &99.into()));
    assert!(row["cuts"][2].get("reuse_ms").is_none() && row["cuts"][0].get("flaps").is_none());
    let [carrier, flapping] = [&row["gaps"][0], &row["gaps"][1]];
    assert_eq!((&carrier["goodput_share"]["below_aim"], &carrier["not_reused"]), (&1.into(), &1.into()));
    assert_eq!(carrier["reuse_ms"], serde_json::json!({ "p50": 10.0, "p90": 30.0, "max": 30.0 }));
    assert_eq!((&flapping["kind"], &flapping["cuts"]), (&"flapping".into(), &1.into()));
    assert_eq!(flapping["goodput_share"]["below_aim"], 0, "nine tenths are enough there");
    assert!(flapping.get("not_reused").is_none(), "nobody looked");
    let table = report.table();
    for line in [
        "carrier, meanwhile: goodput p50 472.9 lowest 472.9 Mbit/s, p50 0.940 lowest 0.940 of what is left; below 0.95 in 1\n",
        "carrier, a returned link is used after: p50 10.00 p90 30.00 max 30.00 ms; not in 1\n",
        "flapping, meanwhile: goodput p50 889.1 lowest 889.1 Mbit/s, p50 0.940 lowest 0.940 of what is left; below 0.9 in 0\n",
    ] {
        assert!(table.contains(line), "{line}{table}");
    }
}

#[test]
fn without_rates_goodput_has_no_share_and_a_link_that_is_never_used_again_is_counted() {
    let cuts = vec![cut(Kind::Blackhole, 0, Some(5_000.0), Reuse::Not)];
    let row = &parsed(&failover_report("failover --rate 1000:0", cuts.clone()))["results"][0];
    assert_eq!(row["gaps"][0]["goodput_mbps"], serde_json::json!({ "low": 5_000.0, "p50": 5_000.0 }));
    assert!(row["gaps"][0].get("goodput_share").is_none() && row["cuts"][0].get("goodput_share").is_none());
    assert_eq!(row["gaps"][0]["not_reused"], 1);
    let report = failover_report("failover --rate 0:1000", cuts);
    assert!(
        parsed(&report)["results"][0]["cuts"][0]["goodput_share"].is_f64(),
        "the one that was cut had none"
    );
    assert!(report.table().contains("blackhole, a returned link is used after: -; not in 1\n"));
}

#[test]
fn fields_without_meaning_are_absent() {
    let mut report = Report::new();
    report.add(series("stream --rate 1000", "tcp-cubic", vec![stream_sample(950)]));
    let row = &parsed(&report)["results"][0];
    assert_eq!(row["throughput_mbps"]["median"], 950.0);
    assert_eq!(row["limited_by"], "link");
    let per_gb = row["cpu_s_per_gb"]["sender"]["median"].as_f64().unwrap();
    assert!((per_gb - 0.5 / (950.0 / 8e3)).abs() < 1e-9, "{per_gb}");
    for absent in ["latency_us", "gap_ms", "offered_mbps", "errors"] {
        assert!(row.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn what_the_machine_did_meanwhile_counts_where_both_sides_are_on_it() {
    let sample = |busy_ns| {
        let mut sample = stream_sample(800);
        sample.sender.machine_busy_ns = Some(busy_ns);
        sample.receiver.machine_busy_ns = Some(1);
        sample
    };
    for (line, is_far) in
        [("stream --wait block", false), ("stream --wait block", true), ("rate --wait block", false)]
    {
        let mut report = Report::new();
        for (protocol, busy_ns) in [("mptcp", 300_000_000), ("tcp-cubic", 200_000_000)] {
            let mut series = series(line, protocol, vec![sample(busy_ns)]);
            if is_far {
                series.case.environment.placement = Placement::Host("elsewhere".to_owned());
            }
            report.add(series);
        }
        let told = !is_far;
        report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
        let value = parsed(&report);
        // 0.1 GB in a second.
        let per_gb = value["results"][0]["machine_cpu_s_per_gb"]["median"].as_f64();
        assert_eq!(per_gb.map(|per_gb| (per_gb * 1e6).round()), told.then_some(3e6), "{line}");
        let ratios = value["ratios"].as_array().unwrap();
        let of_machine = |ratio: &&Value| ratio["name"].as_str().unwrap().contains("machine CPU s/GB");
        let ratio = ratios.iter().find(of_machine).map(|ratio| ratio["median"].as_f64().unwrap() as f32);
        assert_eq!(ratio, told.then_some(1.5), "{line}");
    }
}

#[test]
fn a_congestion_control_is_told_where_the_name_does_not_say_it() {
    let mut report = Report::new();
    for protocol in ["mptcp", "mptcp-bbr", "udp"] {
        report.add(series("stream", protocol, vec![stream_sample(950)]));
    }
    let table = report.table();
    assert!(table.contains("\nmptcp (cubic) ") && table.contains("\nmptcp-bbr  "), "{table}");
    let results = &parsed(&report)["results"];
    assert_eq!((&results[0]["congestion"], &results[1]["congestion"]), (&"cubic".into(), &"bbr".into()));
    assert!(results[2].get("congestion").is_none());
}

#[test]
fn a_disturbed_sample_and_an_impossible_figure_are_marked() {
    let mut report = Report::new();
    report.add(series("stream --rate 1000", "tcp-cubic", vec![stream_sample(1500)]));
    let row = &parsed(&report)["results"][0];
    let notes: Vec<&str> = row["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(notes.iter().any(|note| note.contains("receiver: had 50 % of a core")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("above what the links carry")), "{notes:?}");
    // A side that sleeps may well use half a core.
    let mut report = Report::new();
    report.add(series("stream --rate 1000 --wait block", "tcp-cubic", vec![stream_sample(900)]));
    assert!(parsed(&report)["results"][0].get("notes").is_none());
}

#[test]
fn latency_comes_from_the_histograms_of_the_sender() {
    let sender = SideReport {
        window_ns: 1_000_000_000,
        messages: 100,
        rtt_ns: vec![(10_000, 98), (50_000, 2)],
        counts: CheckCounts { messages: 100, ..CheckCounts::default() },
        ..SideReport::default()
    };
    let sample = Sample { sender, ..Sample::default() };
    let mut report = Report::new();
    report.add(series("pingpong", "tcp-cubic", vec![sample]));
    let row = &parsed(&report)["results"][0];
    let p50 = row["latency_us"]["p50"]["median"].as_f64().unwrap();
    let max = row["latency_us"]["max"]["median"].as_f64().unwrap();
    assert!((p50 - 10.0).abs() < 0.02 && (max - 50.0).abs() < 0.1, "{p50} {max}");
    assert!(row.get("throughput_mbps").is_none() && row.get("cpu_s_per_gb").is_none());
}

#[test]
fn questions_beside_bulk_tell_their_times_and_its_rate_in_one_row() {
    let sender = SideReport {
        window_ns: 1_000_000_000,
        messages: 100,
        rtt_ns: vec![(300_000, 99), (900_000, 1)],
        ..SideReport::default()
    };
    let lost = CheckCounts { lost: 2, ..CheckCounts::default() };
    let mut receiver = stream_sample(940).receiver;
    receiver.bulk_counts = Some(lost);
    let mut report = Report::new();
    let line = "pingpong --beside bulk --class urgent --rate 1000";
    report.add(series(line, "polyrail", vec![Sample { sender, receiver, ..Sample::default() }]));
    let row = &parsed(&report)["results"][0];
    assert_eq!((&row["beside"], &row["class"], &row["lost"]), (&"bulk".into(), &"urgent".into(), &2.into()));
    assert_eq!(row["throughput_mbps"]["median"], 940.0);
    let table = report.table();
    assert!(table.contains("us p50, p99 300.0, bulk 940.0 Mbit/s"), "{table}");
    assert!(table.contains("inter 1000 urgent block beside bulk"), "{table}");
}

#[test]
fn a_delayed_link_is_a_condition_and_its_relay_is_told_of() {
    let mut report = Report::new();
    let (delayed, plain) = ("stream --links 2 --rate 1000 --delay 0:20", "stream --links 2 --rate 1000");
    report.add(series(delayed, "polyrail", vec![stream_sample(900)]));
    report.add(series(plain, "tcp-cubic", vec![stream_sample(900)]));
    let (link, rate_mbit) = ("l1".to_owned(), Some(1_000));
    report.add_relay(RelayRow { link, delay_ms: 20.0, round_trip_ms: 40.3, carries_mbps: 700.0, rate_mbit });
    report.conclude(&[]);
    let value = parsed(&report);
    assert_eq!(value["results"][0]["delay_ms"], serde_json::json!([0.0, 20.0]));
    assert!(value["results"][1].get("delay_ms").is_none());
    assert_eq!(value["ratios"].as_array().unwrap().len(), 0, "other delays are not compared");
    assert_eq!(value["relays"][0]["carries_mbps"], 700.0);
    let table = report.table();
    assert!(
        table.contains("inter 1000+1000 delay 0+20 ms spin") && table.contains("it is the limit"),
        "{table}"
    );
}

#[test]
fn what_links_are_expected_to_carry_stands_beside_what_they_did() {
    let mut report = Report::new();
    report.add(series("links --links 2 --rate 1000:250", "polyrail", vec![stream_sample(900)]));
    report.add(series("stream --rate 0", "polyrail", vec![stream_sample(900)]));
    assert!(!report.table().contains("the model expects"), "unless it is asked for");
    report.show_model();
    let value = parsed(&report);
    // The first environment has one link. A core for each side, by 0.5 s in a second for 900 Mbit/s.
    let expected = &value["results"][0]["expected"];
    let mbps = 1_000.0 * 1_432.0 / 1_514.0;
    assert!((expected["mbps"].as_f64().unwrap() - mbps).abs() < 1e-6, "{expected:#}");
    assert!((expected["cpu_mbps"].as_f64().unwrap() - 1_800.0).abs() < 1e-6, "{expected:#}");
    let by = expected["measured_by_expected"]["median"].as_f64().unwrap();
    assert!((by - 900.0 / mbps).abs() < 1e-9, "{expected:#}");
    assert!(value["results"][1].get("expected").is_none(), "a link without a rate carries what it carries");
    assert!(
        report.table().contains("the model expects 945.8 Mbit/s (links 945.8, a core for each side 1800)")
    );
}

#[test]
fn what_a_lone_message_is_expected_to_take_and_where_two_links_pay_is_told() {
    let times = LoneTimes { messages: 1, base_ns: 100_000.0, ideal_ns: 1.0, to_ideal: 1.0, not_emptied: 0 };
    let sender = SideReport { rtt_ns: vec![(700_000, 9)], lone: Some(times), ..SideReport::default() };
    let mut report = Report::new();
    let sample = Sample { sender, ..Sample::default() };
    report.add(series("lone --size 118230", "polyrail", vec![sample.clone()]));
    report.add(series("lone --size 118230", "tcp-cubic", vec![sample]));
    report.show_model();
    let value = parsed(&report);
    let us = |row: usize| value["results"][row]["expected"]["us"].as_f64().unwrap();
    // 100 us for any message, half a millisecond by two links, a packet and 1 us for sharing.
    assert!((us(0) - (100.0 + 500.0 + 13.1)).abs() < 0.1, "{}", us(0));
    assert!((us(1) - (100.0 + 118_230.0 / 1_448.0 * 1_514.0 / 125.0)).abs() < 0.1, "{}", us(1));
    let gains = &value["results"][0]["expected"]["gain_from_bytes"];
    assert!(gains[1][0] == 1.9 && gains[1][1].as_f64().is_some_and(|bytes| (260e3..290e3).contains(&bytes)));
    assert!(value["results"][1]["expected"].get("gain_from_bytes").is_none(), "it has one link");
    assert!(report.table().contains("two such links gain 1.5 from "));
}

#[test]
fn a_lone_message_has_a_ratio_to_what_the_links_allow() {
    let sample = |to_ideal: f64| {
        let times =
            LoneTimes { messages: 9, base_ns: 10_000.0, ideal_ns: 500_000.0, to_ideal, not_emptied: 1 };
        let sender = SideReport { rtt_ns: vec![(600_000, 9)], lone: Some(times), ..SideReport::default() };
        Sample { sender, ..Sample::default() }
    };
    let mut report = Report::new();
    report.add(series("lone", "polyrail", [1.2, 1.1, 1.4].map(sample).to_vec()));
    report.conclude(&[]);
    let value = parsed(&report);
    let (row, ratio) = (&value["results"][0], &value["ratios"][0]);
    assert_eq!(
        (&row["ideal"]["ideal_us"]["median"], &row["ideal"]["base_us"]["low"]),
        (&500.0.into(), &10.0.into())
    );
    assert_eq!((&row["ideal"]["messages"], &row["ideal"]["not_emptied"]), (&27.into(), &3.into()));
    let p50 = row["latency_us"]["p50"]["median"].as_f64().unwrap();
    assert!((p50 - 600.0).abs() < 1.0, "{p50}");
    assert_eq!((&ratio["median"], &ratio["pairs"]), (&1.2.into(), &3.into()));
    assert!(ratio["name"].as_str().unwrap().starts_with("polyrail/ideal latency (lone inter 2 links"));
    assert!(
        report.table().contains("the links allow 500.0 us, of which 10.00 us for any message: 1.200 times")
    );
}

#[test]
fn the_histogram_of_a_row_is_that_of_all_its_repetitions() {
    let sample = |buckets: &[(u64, u64)]| {
        let sender =
            SideReport { window_ns: 1, messages: 1, rtt_ns: buckets.to_vec(), ..SideReport::default() };
        Sample { sender, ..Sample::default() }
    };
    let mut report = Report::new();
    report.add(series("pingpong", "udp", vec![sample(&[(100, 3), (900, 1)]), sample(&[(100, 2), (500, 7)])]));
    assert_eq!(
        parsed(&report)["results"][0]["histogram_ns"],
        serde_json::json!([[100, 5], [500, 7], [900, 1]])
    );
    let mut report = Report::new();
    report.add(series("stream", "udp", vec![stream_sample(1)]));
    assert!(parsed(&report)["results"][0].get("histogram_ns").is_none());
}

#[test]
fn a_report_that_was_written_can_be_read() {
    let mut report = Report::new();
    report.set_plan(&parse("stream").unwrap().plan().unwrap());
    report.add(series("stream", "tcp-cubic", vec![stream_sample(900), stream_sample(901)]));
    report.add(series("stream", "mptcp", vec![stream_sample(800), stream_sample(801)]));
    report.add_unavailable("udp", "no".to_owned());
    report.add_notes(["a note".to_owned()].into_iter());
    report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
    report.set_error("first".to_owned());
    report.set_error("then".to_owned());
    let document: Document = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(serde_json::to_value(&document).unwrap(), parsed(&report));
    assert_eq!((report.error(), document.ratios.len()), (Some("first; then"), 1));
    assert!(report.table().contains("a note"));
}

#[test]
fn ratios_pair_repetitions_and_skip_failed_ones() {
    let failed = Sample { error: Some("no".to_owned()), ..stream_sample(1) };
    let mut report = Report::new();
    report.add(series("stream", "mptcp", vec![stream_sample(200), failed, stream_sample(100)]));
    report.add(series("stream", "tcp-cubic", vec![stream_sample(100), stream_sample(7), stream_sample(50)]));
    // Other conditions are not compared.
    report.add(series("stream --size 64", "tcp-cubic", vec![stream_sample(1)]));
    report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
    let value = parsed(&report);
    assert_eq!(value["ratios"].as_array().unwrap().len(), 1);
    let ratio = &value["ratios"][0];
    assert!(ratio["name"].as_str().unwrap().starts_with("mptcp/tcp-cubic throughput"));
    assert_eq!((ratio["median"].as_f64(), ratio["pairs"].as_u64()), (Some(2.0), Some(2)));
    assert!(report.table().contains("mptcp/tcp-cubic"));
}

#[test]
fn what_work_costs_has_a_ratio_where_nobody_spins() {
    let mut report = Report::new();
    for (protocol, mbps) in [("mptcp", [200, 100]), ("tcp-cubic", [100, 50])] {
        report.add(series("stream --wait block", protocol, mbps.map(stream_sample).to_vec()));
    }
    let versus = [("mptcp".to_owned(), "tcp-cubic".to_owned())];
    report.conclude(&versus);
    let value = parsed(&report);
    let named = |number: usize| value["ratios"][number]["name"].as_str().unwrap_or_default();
    assert!(named(0).starts_with("mptcp/tcp-cubic throughput"));
    assert!(named(1).starts_with("mptcp/tcp-cubic CPU s/GB (stream"), "{value:#}");
    // The same CPU time for twice the bytes.
    assert_eq!(value["ratios"][1]["median"], 0.5);
    assert_eq!(value["stall_histogram"]["pulses"], 4);
    assert!(report.table().contains("over 5 ms in 4 pulses of 5 ms"));
    let mut spinning = Report::new();
    for protocol in ["mptcp", "tcp-cubic"] {
        spinning.add(series("stream", protocol, vec![stream_sample(100)]));
    }
    spinning.conclude(&versus);
    assert_eq!(parsed(&spinning)["ratios"].as_array().unwrap().len(), 1);
}

#[test]
fn an_unavailable_protocol_is_named_once_with_its_reason() {
    let mut report = Report::new();
    report.add_unavailable("mptcp", "not in this kernel".to_owned());
    report.add_unavailable("mptcp", "not in this kernel".to_owned());
    let value = parsed(&report);
    assert_eq!(value["unavailable"].as_array().unwrap().len(), 1);
    assert!(report.table().contains("mptcp cannot run here: not in this kernel"));
}

#[test]
fn repetitions_end_once_every_interval_is_narrow_and_not_before_six() {
    let steady = |count: usize| series("stream", "mptcp", (0..count).map(|_| stream_sample(500)).collect());
    let noisy = |step: u64| {
        series("stream", "tcp-cubic", (0..12).map(|n| stream_sample(500 + step * (n % 4))).collect())
    };
    let tight = |all: &[Series], versus: &[(String, String)], percent| is_tight(all.iter(), versus, percent);
    let asked = [("mptcp".to_owned(), "tcp-cubic".to_owned())];
    assert!(!tight(&[steady(5)], &[], 5.0), "five say nothing of an interval");
    assert!(tight(&[steady(6)], &[], 5.0));
    assert!(!tight(&[], &[], 5.0));
    assert!(!tight(&[steady(12), noisy(100)], &asked, 5.0), "500 to 800 is not within 5 %");
    assert!(tight(&[steady(12), noisy(5)], &asked, 5.0));
    // A protocol that fails each time does not keep the others going.
    let failing = Sample { error: Some("no".to_owned()), ..stream_sample(1) };
    assert!(tight(&[steady(12), series("stream", "udp", vec![failing; 12])], &[], 5.0));
}

#[test]
fn pairs_side_by_side_add_up_and_show_their_shares() {
    let pair = |mbps| {
        let sample = stream_sample(mbps);
        (sample.sender, sample.receiver)
    };
    let sample = Sample { further: vec![pair(300), pair(100)], ..stream_sample(200) };
    let mut report = Report::new();
    report.add(series("share --pairs 3 --direction same", "tcp-cubic", vec![sample]));
    let row = &parsed(&report)["results"][0];
    assert_eq!(row["throughput_mbps"]["median"], 600.0);
    assert_eq!(row["sharing"]["least_mbps"]["median"], 100.0);
    assert_eq!(row["sharing"]["most_mbps"]["median"], 300.0);
    // Three sides with half a core each, for 75 MB in a second.
    let per_gb = row["cpu_s_per_gb"]["receiver"]["median"].as_f64().unwrap();
    assert!((per_gb - 1.5 / 0.075).abs() < 1e-9, "{per_gb}");
}

#[test]
fn clients_of_one_server_show_their_shares_their_losses_and_their_memory() {
    let side = |messages_by_client: &[u64], lost| SideReport {
        window_ns: 2_000_000_000,
        messages: messages_by_client.iter().sum(),
        counts: CheckCounts { lost, ..CheckCounts::default() },
        rtt_ns: vec![(3_000, 8), (9_000, 2)],
        messages_by_client: messages_by_client.to_vec(),
        ..SideReport::default()
    };
    let memory = CrowdMemory {
        clients_bytes: vec![3 << 20, 5 << 20],
        server_bytes: 7 << 20,
        node_bytes: 2 << 20,
        shared_bytes: 1 << 20,
    };
    let measured = |line: &str| {
        let sample = Sample {
            sender: side(&[600, 200], 1),
            receiver: side(&[100, 300], 4),
            crowd_memory: Some(memory.clone()),
            ..Sample::default()
        };
        let mut report = Report::new();
        report.add(series(line, "unix-stream", vec![sample]));
        let table = report.table();
        (parsed(&report)["results"][0].clone(), table)
    };
    let (asked, table) = measured("pingpong --placement intra --clients 2");
    assert_eq!((&asked["clients"], &asked["rate_per_s"]["median"]), (&json!(2), &json!(400.0)));
    let by_client = &asked["by_client"];
    assert_eq!(by_client["messages"], json!([[600, 200]]));
    assert_eq!(
        (&by_client["least_per_s"]["median"], &by_client["most_per_s"]["median"]),
        (&json!(100.0), &json!(300.0))
    );
    assert_eq!(by_client["fairness"]["median"], 0.8);
    assert_eq!(asked["lost"], 5, "unanswered, and not come");
    let mib = |name: &str| asked["crowd_memory_mib"][name]["median"].as_f64().unwrap();
    let all = ["sum", "client", "client_max", "server", "node", "shared"].map(mib);
    assert_eq!(all, [17.0, 4.0, 5.0, 7.0, 2.0, 1.0]);
    for part in ["2 clients", "400.0 /s", "between 100.0 and 300.0 /s", "17.00 MiB in all"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let (one_way, _) = measured("rate --placement intra --clients 2");
    assert_eq!((&one_way["by_client"]["messages"], &one_way["lost"]), (&json!([[100, 300]]), &json!(4)));
    assert_eq!(one_way["rate_per_s"]["median"], 200.0);
}

#[test]
fn samples_across_a_change_of_phase_are_counted_on_the_row_and_on_the_ratio() {
    let (near, far) = (pulses_for_tests(50.0, 55.0), pulses_for_tests(200.0, 190.0));
    let across = Pulses { retaken: 2, ..pulses_for_tests(50.0, 200.0) };
    let samples = |phases: [Pulses; 3]| phases.map(|pulses| (stream_sample(100), pulses)).to_vec();
    let mut report = Report::new();
    report.add(series_in_phases("stream", "mptcp", samples([near, near, across])));
    report.add(series_in_phases("stream", "tcp-cubic", samples([near, far, near])));
    report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
    let value = parsed(&report);
    assert_eq!(value["ratios"][0]["mixed_phase"], 2, "{value}");
    let notes = value["results"][0]["notes"].to_string();
    assert!(notes.contains("1 of 3 samples were taken while the machine changed phase"), "{notes}");
    assert!(notes.contains("2 samples were thrown away and taken again"), "{notes}");
    let pulses = &value["results"][0]["calibration"][2];
    assert_eq!((&pulses["before"]["cacheline_ns"], &pulses["retaken"]), (&50.0.into(), &2.into()));
    assert!(!value["results"][1]["notes"].to_string().contains("phase"));
    assert!(report.table().contains("3 pairs, 2 in mixed phases"), "{}", report.table());
}

#[test]
fn a_ratio_within_one_phase_has_no_count_of_mixed_pairs() {
    let mut report = Report::new();
    report.add(series("stream", "mptcp", vec![stream_sample(200)]));
    report.add(series("stream", "tcp-cubic", vec![stream_sample(100)]));
    report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
    let value = parsed(&report);
    assert!(value["ratios"][0].get("mixed_phase").is_none(), "{value}");
    assert!(value["results"][0]["calibration"][0].get("retaken").is_none());
}

#[test]
fn devices_are_in_the_document_and_those_alike_share_a_line_of_the_table() {
    let device = |name: &str, rate: Option<u32>| DeviceRow {
        placement: Placement::Inter,
        rate_mbit: vec![rate],
        loss_percent: vec![0.0],
        device: Device::look(name, |_| std::process::Command::new("polyrail-no-such-program")),
    };
    let mut report = Report::new();
    assert!(parsed(&report).get("devices").is_none());
    report.add_devices([device("l0", None), device("l1", None), device("l0", Some(1000))]);
    let value = parsed(&report);
    assert_eq!(
        (&value["devices"][1]["name"], &value["devices"][2]["rate_mbit"][0]),
        (&"l1".into(), &1000.into())
    );
    let table = report.table();
    assert!(table.lines().any(|line| line == "l0, l1: qdisc unknown"), "{table}");
}

#[test]
fn memory_at_the_blockade_that_nobody_has_seen_is_no_figure() {
    let told = |blocked_bytes_max| {
        let memory = MemoryUse { start_bytes: 2 << 20, blocked_bytes_max, bytes_max: 6 << 20 };
        let side = |blocked_ns| SideReport { memory: Some(memory), blocked_ns, ..SideReport::default() };
        let sample = Sample { sender: side(500_000_000), receiver: side(0), ..Sample::default() };
        let mut report = Report::new();
        report.add(series("stalled", "tcp-cubic", vec![sample]));
        report.table()
    };
    for (blocked_bytes_max, said) in [(Some(4 << 20), "blocked 4.000,"), (None, "blocked -,")] {
        let table = told(blocked_bytes_max);
        assert_eq!(table.matches(said).count(), 2, "sender and receiver: {table}");
    }
}

#[test]
fn a_figure_that_is_half_the_instruments_own_work_is_limited_by_the_tool() {
    let verdict = |messages_per_s: u64, tool_ns: f64| {
        let mut sample = stream_sample(100);
        sample.receiver.messages = messages_per_s;
        let mut series = series("stream --size 64", "udp", vec![sample]);
        series.case = series.case.with_tool(Some(ToolCost { sender_ns: 20.0, receiver_ns: Some(tool_ns) }));
        let mut report = Report::new();
        report.add(series);
        parsed(&report)["results"][0]["limited_by"].clone()
    };
    // 100 ns for a message.
    assert_eq!(verdict(10_000_000, 50.0), "tool");
    assert_eq!(verdict(10_000_000, 49.0), Value::Null);
    assert_eq!(verdict(1_000_000, 50.0), Value::Null);
}

#[test]
fn a_ratio_within_one_phase_stands_beside_that_of_all_pairs_where_enough_are_left() {
    let (near, far) = (pulses_for_tests(50.0, 55.0), pulses_for_tests(200.0, 190.0));
    let line = |mbps: [u64; 8], phases: [Pulses; 8]| {
        mbps.into_iter().zip(phases).map(|(mbps, pulses)| (stream_sample(mbps), pulses)).collect()
    };
    let row = |away: usize| {
        let mut phases = [near; 8];
        phases[..away].fill(far);
        let mut slower = [100; 8];
        slower[..away].fill(10);
        let mut report = Report::new();
        report.add(series_in_phases("stream", "mptcp", line([200; 8], [near; 8])));
        report.add(series_in_phases("stream", "tcp-cubic", line(slower, phases)));
        report.conclude(&[("mptcp".to_owned(), "tcp-cubic".to_owned())]);
        (parsed(&report)["ratios"][0].clone(), report.table())
    };
    let (two_away, table) = row(2);
    assert_eq!((&two_away["pairs"], &two_away["mixed_phase"]), (&8.into(), &2.into()));
    assert_eq!(
        (&two_away["within_phase"]["median"], &two_away["within_phase"]["pairs"]),
        (&2.0.into(), &6.into())
    );
    assert!(table.contains("within one phase 2.000  (2.000 to 2.000, 6 pairs)"), "{table}");
    assert!(row(3).0.get("within_phase").is_none(), "five pairs are too few for an interval");
    assert!(row(0).0.get("within_phase").is_none(), "there is nothing to leave out");
}
