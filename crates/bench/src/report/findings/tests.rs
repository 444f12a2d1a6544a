//! Findings in a document and in a table.

use serde_json::Value;

use super::*;
use crate::report::tests::{series, stream_sample};

#[test]
fn rounds_are_gathered_and_decide_what_the_plan_asks() {
    let file = PlanFile::load("s4-bandwidth").unwrap();
    let mut report = Report::new();
    for round in 0..6 {
        for (protocol, mbps) in [("tcp-nodelay", 800 + u64::from(round)), ("polyrail", 900)] {
            let line = "stream --rate 1000 --size 8000 --socket-buffer-max 512K --wait block";
            let mut one = series(line, protocol, vec![stream_sample(mbps)]);
            one.samples[0].0 = round;
            report.add(one);
        }
    }
    assert_eq!(report.series.len(), 2, "one row for each protocol, whatever the number of rounds");
    report.decide(&file);
    let document: Value = serde_json::from_str(&report.json()).unwrap();
    let values = document["results"][0]["throughput_mbps"]["values"].as_array().unwrap();
    assert_eq!(values.len(), 6);
    let findings = document["findings"].as_array().unwrap();
    let at = |name: &str, size: u64| {
        let found = findings.iter().find(|row| row["name"] == name && row["at"]["size"] == size);
        found.unwrap_or_else(|| panic!("{name} {size}: {document:#}"))
    };
    let held = at("user-level-bandwidth", 8_000);
    assert_eq!((&held["verdict"], &held["claim"]), (&"holds".into(), &"above 1".into()));
    assert!((held["measured"]["median"].as_f64().unwrap() - 900.0 / 802.5).abs() < 1e-3, "{held:#}");
    assert_eq!(at("user-level-bandwidth", 64)["verdict"], "not seen here");
    let table = report.table();
    for line in [
        "Latency and bandwidth with socket buffers of 512 KiB\n",
        "size 8000: holds, 1.121 (95 %: ",
        "not seen here: needs the IP module",
        "findings: 1 hold, 0 do not hold, 11 are not seen here\n",
    ] {
        assert!(table.contains(line), "{line}\n{table}");
    }
}
