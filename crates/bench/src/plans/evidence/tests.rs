//! What decides a finding.

use super::*;

/// Rows and their figures by round, by protocol and size.
struct Rows(Vec<(&'static str, u64, Vec<f64>)>);

impl Measured for Rows {
    fn rows(&self) -> Vec<Vec<(&'static str, Json)>> {
        let row = |(protocol, size, _): &(&str, u64, Vec<f64>)| {
            vec![("protocol", Json::from(*protocol)), ("size", Json::from(*size))]
        };
        self.0.iter().map(row).collect()
    }

    fn figure(&self, row: usize, _: Figure) -> BTreeMap<u32, f64> {
        (0..).zip(self.0[row].2.iter().copied()).collect()
    }

    fn unavailable(&self, protocol: &str) -> Option<String> {
        (protocol == "tipc-rdm").then(|| "not in this kernel".to_owned())
    }
}

/// Two sizes, of which one is measured here.
fn plan(claim: &str) -> PlanFile {
    let text = format!(
        "title = \"t\"\nsource = \"paper\"\n[[measure]]\nworkload = \"stream\"\nprotocol = [\"udp\", \"tcp-cubic\", \"tipc-rdm\"]\n\
         size = [64, 128]\n[[finding]]\nname = \"f\"\nsays = \"s\"\nfigure = \"throughput\"\n\
         of = [{{ protocol = \"udp\" }}]\nby = [{{ protocol = \"tcp-cubic\" }}]\neach.size = [64, 128]\npublished = [2, 3.5]\n{claim}\n\
         [[finding]]\nname = \"g\"\nsays = \"s\"\nfigure = \"throughput\"\nrows.size = 64\n\
         of = [{{ protocol = \"udp\" }}]\nby = [{{ protocol = \"tipc-rdm\" }}]\nabove = 1\n\
         [[finding]]\nname = \"h\"\nsays = \"s\"\nneeds = \"a ladder\"\n"
    );
    PlanFile::read("x.toml", text).unwrap()
}

/// The verdict of size 64.
fn verdict(claim: &str, of: &[f64], by: &[f64]) -> (Verdict, String) {
    let measured = Rows(vec![("udp", 64, of.to_vec()), ("tcp-cubic", 64, by.to_vec())]);
    let row = judge(&plan(claim), &measured).swap_remove(0);
    (row.verdict, row.why.unwrap_or_default())
}

#[test]
fn an_interval_decides_and_its_middle_does_not() {
    let clear = [2.0, 2.1, 1.9, 2.2, 2.0, 2.1];
    let wide = [2.0, 0.5, 3.0, 0.4, 2.5, 2.2];
    let one = [1.0; 6];
    assert_eq!(verdict("above = 1.5", &clear, &one).0, Verdict::Holds);
    assert_eq!(verdict("above = 2.5", &clear, &one).0, Verdict::DoesNotHold);
    assert_eq!(verdict("below = 2.5", &clear, &one).0, Verdict::Holds);
    assert_eq!(verdict("below = 1.5", &clear, &one).0, Verdict::DoesNotHold);
    assert_eq!(verdict("between = [1.5, 2.5]", &clear, &one).0, Verdict::Holds);
    assert_eq!(verdict("between = [2.5, 3.5]", &clear, &one).0, Verdict::DoesNotHold);
    let (undecided, why) = verdict("above = 1.5", &wide, &one);
    assert!(undecided == Verdict::NotSeen && why.contains("--repeat 12"), "{why}");
    assert_eq!(verdict("between = [1.5, 2.05]", &clear, &one).0, Verdict::NotSeen);
    let (few, why) = verdict("above = 1.5", &clear[..5], &one);
    assert!(few == Verdict::NotSeen && why.contains("5 rounds decide nothing"), "{why}");
}

#[test]
fn what_slows_a_whole_round_changes_no_ratio() {
    let slow = [1.0, 10.0, 2.0, 30.0, 1.0, 7.0];
    let twice = slow.map(|figure| 2.0 * figure);
    assert_eq!(verdict("between = [1.99, 2.01]", &twice, &slow).0, Verdict::Holds);
}

#[test]
fn what_was_not_measured_is_told_with_the_reason() {
    let measured = Rows(vec![("udp", 64, vec![2.0; 6]), ("tcp-cubic", 64, vec![1.0; 6])]);
    let rows = judge(&plan("above = 1.0"), &measured);
    let told: Vec<(&str, Verdict, Option<&str>)> =
        rows.iter().map(|row| (row.name.as_str(), row.verdict, row.why.as_deref())).collect();
    assert_eq!(
        told,
        [
            ("f", Verdict::Holds, None),
            ("f", Verdict::NotSeen, Some("not measured: protocol udp, size 128")),
            ("g", Verdict::NotSeen, Some("tipc-rdm: not in this kernel")),
            ("h", Verdict::NotSeen, Some("needs a ladder")),
        ]
    );
    assert_eq!(rows[0].published.zip(rows[1].published), Some((2.0, 3.5)));
    assert_eq!((rows[0].source.as_deref(), rows[0].measured.as_ref().unwrap().pairs), (Some("paper"), 6));
    assert!(judge(&plan("above = 1.0"), &Rows(Vec::new())).iter().all(|row| row.verdict == Verdict::NotSeen));
}
