use std::collections::BTreeMap;

use crate::failover::{Cut, Goodput, Judgement, Kind, Place, Reuse};
use crate::netns::Direction;
use crate::report::Report;
use crate::report::tests::{series, stream_sample};
use crate::run::Sample;

/// The lines of a report by heading.
fn lines(report: &Report) -> Vec<BTreeMap<String, String>> {
    let text = report.csv();
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(|line| line.expect("valid CSV")).collect()
}

#[test]
fn a_line_has_its_conditions_its_repetition_and_a_unit() {
    let failed = Sample { error: Some("no".to_owned()), ..stream_sample(7) };
    let mut report = Report::new();
    let line = "stream --links 2 --rate 1000:0 --loss 0.5:0 --socket-buffer-max 9";
    report.add(series(line, "mptcp", vec![stream_sample(900), failed]));
    let lines = lines(&report);
    let throughput: Vec<_> = lines.iter().filter(|line| line["figure"] == "throughput_mbps").collect();
    let fields = ["workload", "protocol", "placement", "links", "rate_mbit", "loss_percent", "size", "wait"];
    let told: Vec<&str> = fields.iter().map(|name| throughput[0][*name].as_str()).collect();
    assert_eq!(told, ["stream", "mptcp", "inter", "2", "1000:0", "0.5:0", "131072", "spin"]);
    let told: Vec<[&str; 4]> = throughput
        .iter()
        .map(|line| ["repetition", "complete", "unit", "value"].map(|name| line[name].as_str()))
        .collect();
    assert_eq!(told, [["1", "true", "Mbit/s", "900"], ["2", "false", "Mbit/s", "7"]]);
    assert_eq!((throughput[0]["socket_buffer_max"].as_str(), throughput[0]["send"].as_str()), ("9", ""));
    assert!(lines.iter().all(|line| !line["value"].is_empty()), "{lines:?}");
    let is_count = |line: &&BTreeMap<String, String>| line["unit"].is_empty();
    assert!(
        lines.iter().filter(is_count).all(|line| line["figure"].starts_with("calibration.")),
        "{lines:?}"
    );
    for figure in
        ["cpu_s_per_gb.sender", "rate_per_s", "calibration.before.cacheline_ns", "calibration.after.clock_ns"]
    {
        let count = lines.iter().filter(|line| line["figure"] == figure).count();
        assert_eq!(count, 2, "{figure}");
    }
}

#[test]
fn a_repetition_without_a_value_leaves_no_line_and_moves_no_other() {
    let nothing = Sample { error: Some("no".to_owned()), ..Sample::default() };
    let mut report = Report::new();
    report.add(series("stream", "tcp-cubic", vec![nothing, stream_sample(900)]));
    let lines = lines(&report);
    let repetitions: Vec<&str> = lines
        .iter()
        .filter(|line| line["figure"] == "throughput_mbps")
        .map(|line| line["repetition"].as_str())
        .collect();
    assert_eq!(repetitions, ["2"]);
}

#[test]
fn cuts_are_numbered_within_their_repetition() {
    let cut = |kind, gap_ns, aftermath_ns| Cut {
        place: Place { kind, link: 0, node: 0, direction: Direction::Both },
        cut_ns: 0,
        restored_ns: 0,
        judgement: Judgement {
            gap_ns,
            gap_net_ns: gap_ns,
            goodput: Some(Goodput { bytes: 1_250, span_ns: 10_000 }),
            ..Judgement::default()
        },
        carried_share: 0.5,
        aftermath_ns,
        reuse: if kind == Kind::Carrier { Reuse::After(4_000_000) } else { Reuse::Not },
        flaps: 0,
    };
    let sample = |gap_ns| Sample {
        cuts: vec![cut(Kind::Carrier, gap_ns, Some(5)), cut(Kind::Blackhole, gap_ns + 1_000_000, None)],
        ..Sample::default()
    };
    let mut report = Report::new();
    report.add(series("failover", "mptcp", vec![sample(2_000_000), sample(4_000_000)]));
    let lines = lines(&report);
    let gaps: Vec<_> = lines.iter().filter(|line| line["figure"] == "gap_ms").collect();
    let told: Vec<_> = gaps
        .iter()
        .map(|line| ["repetition", "cut", "kind", "value", "unit"].map(|name| line[name].as_str()))
        .collect();
    let expected = [
        ["1", "1", "carrier", "2", "ms"],
        ["1", "2", "blackhole", "3", "ms"],
        ["2", "1", "carrier", "4", "ms"],
        ["2", "2", "blackhole", "5", "ms"],
    ];
    assert_eq!(told, expected);
    assert_eq!(lines.iter().filter(|line| line["figure"] == "return_ms").count(), 2);
    let told = |figure: &str| -> Vec<[&str; 3]> {
        let lines = lines.iter().filter(|line| line["figure"] == figure && line["repetition"] == "1");
        lines.map(|line| ["kind", "value", "unit"].map(|name| line[name].as_str())).collect()
    };
    assert_eq!(told("goodput_mbps"), [["carrier", "1000", "Mbit/s"], ["blackhole", "1000", "Mbit/s"]]);
    assert_eq!(told("goodput_share").len(), 2);
    assert_eq!(told("goodput_share")[0][2], "", "a share has no unit");
    assert_eq!(told("reuse_ms"), [["carrier", "4", "ms"]]);
    assert!(told("flaps").is_empty(), "nothing flapped");
}

#[test]
fn every_kind_of_name_has_its_unit() {
    let expected = [
        ("throughput_mbps", "Mbit/s"),
        ("rate_per_s", "1/s"),
        ("latency_us.p99", "us"),
        ("cpu_s_per_gb.sender", "s/GB"),
        ("idle.cpu_percent.sender", "%"),
        ("idle.wakeups_per_s.receiver", "1/s"),
        ("memory_mib.sender.start", "MiB"),
        ("blocked_s", "s"),
        ("gap_ms", "ms"),
        ("calibration.before.memcpy_gb_per_s", "GB/s"),
        ("calibration.before.stalls.over_5us", ""),
    ];
    for (figure, unit) in expected {
        assert_eq!(super::unit(figure), unit, "{figure}");
    }
}

#[test]
fn nothing_measured_is_headings_alone() {
    let text = Report::new().csv();
    assert!(
        text.starts_with("workload,protocol,placement,links,rate_mbit,") && text.ends_with(",value\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
}
