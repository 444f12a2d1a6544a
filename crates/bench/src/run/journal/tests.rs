use std::fs;

use super::*;
use crate::args::tests::parse;
use crate::calibrate::tests::pulses_for_tests;
use crate::control::SideReport;
use crate::protocol::find;

const LINE: &str = "stream --placement intra --protocol pipe,unix-stream --repeat 3";

/// A journal's file that vanishes with the value.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }
    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
    fn open(&self, line: &str) -> Result<Journal, String> {
        Journal::open(&self.0, &plan(line), &Host::here())
    }
    fn refused(&self, line: &str) -> String {
        let before = fs::read(&self.0).unwrap();
        let said = self.open(line).map(|_| ()).unwrap_err();
        assert!(said.starts_with(&format!("--journal {}: ", self.0.display())), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(fs::read(&self.0).unwrap(), before, "what is refused is left alone");
        said
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn plan(line: &str) -> Plan {
    parse(line).unwrap().plan().unwrap()
}

fn case(protocol: &str) -> Case {
    let plan = plan(LINE);
    Case::new(&plan, find(protocol).unwrap(), &plan.environments[0], &plan.points[0])
}

fn sample(bytes: u64) -> Sample {
    let side = SideReport {
        window_ns: 1_000_000_000,
        bytes,
        rtt_ns: vec![(10, 2), (300, 1)],
        ..SideReport::default()
    };
    Sample { sender: side.clone(), receiver: side, ..Sample::default() }
}

#[test]
fn samples_come_back_as_they_were_and_each_in_its_place() {
    let place = Place::new("back");
    let mut journal = place.open(LINE).unwrap();
    journal.add(&case("pipe"), 0, &sample(1), &pulses_for_tests(51.1, 52.2)).unwrap();
    journal.add(&case("unix-stream"), 0, &sample(2), &pulses_for_tests(51.1, 52.2)).unwrap();
    journal.add(&case("pipe"), 1, &sample(3), &pulses_for_tests(51.1, 52.2)).unwrap();
    assert!(journal.notes().is_empty());
    drop(journal);
    let mut journal = place.open(LINE).unwrap();
    assert_eq!(journal.len(), 3);
    let (kept, calibration) = journal.known(&case("pipe"), 1).unwrap();
    assert_eq!(
        (kept.sender.clone(), kept.error.clone(), calibration),
        (sample(3).sender, None, pulses_for_tests(51.1, 52.2))
    );
    assert_eq!(journal.known(&case("unix-stream"), 0).unwrap().0.receiver.bytes, 2);
    assert!(journal.known(&case("unix-stream"), 1).is_none());
    assert!(journal.notes()[0].starts_with("2 samples are from an earlier run"));
    assert_eq!(journal.notes().len(), 1, "the same machine is not worth a word");
}

#[test]
fn a_torn_last_line_is_dropped_and_written_over_wherever_it_was_torn() {
    let place = Place::new("torn");
    let mut journal = place.open(LINE).unwrap();
    journal.add(&case("pipe"), 0, &sample(1), &pulses_for_tests(51.1, 52.2)).unwrap();
    let whole = fs::metadata(&place.0).unwrap().len();
    journal.add(&case("pipe"), 1, &sample(2), &pulses_for_tests(51.1, 52.2)).unwrap();
    drop(journal);
    let bytes = fs::read(&place.0).unwrap();
    let head = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let whole_length = usize::try_from(whole).unwrap();
    let edges = [head, whole_length, bytes.len()].map(|edge| edge - 1..bytes.len().min(edge + 2));
    for length in edges.into_iter().flatten().chain((0..bytes.len()).step_by(97)) {
        fs::write(&place.0, &bytes[..length]).unwrap();
        let journal = place.open(LINE).unwrap();
        let expected = usize::from(length as u64 >= whole);
        assert_eq!(journal.len(), expected, "cut to {length} of {} bytes", bytes.len());
        drop(journal);
        let text = place.text();
        assert!(text.ends_with('\n') && text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
        let heads = text.lines().filter(|line| line.starts_with("{\"schema\"")).count();
        assert_eq!((heads, text.contains("continued")), (1, length >= head), "cut to {length}");
    }
}

#[test]
fn what_failed_is_measured_again_and_the_later_success_counts() {
    let place = Place::new("failed");
    let mut journal = place.open(LINE).unwrap();
    let failed = Sample { error: Some("receiver: killed".to_owned()), ..sample(1) };
    journal.add(&case("pipe"), 0, &failed, &pulses_for_tests(51.1, 52.2)).unwrap();
    drop(journal);
    let mut journal = place.open(LINE).unwrap();
    assert!(journal.known(&case("pipe"), 0).is_none());
    journal.add(&case("pipe"), 0, &sample(5), &pulses_for_tests(51.1, 52.2)).unwrap();
    drop(journal);
    assert_eq!(place.open(LINE).unwrap().known(&case("pipe"), 0).unwrap().0.sender.bytes, 5);
}

#[test]
fn another_plan_a_newer_form_and_what_is_no_journal_are_refused() {
    let place = Place::new("other");
    drop(place.open(LINE).unwrap());
    let said = place.refused(&format!("{LINE} --duration 2"));
    assert!(said.contains("duration_ns 1000000000, now 2000000000"), "{said}");
    assert!(place.refused("pingpong --placement intra").contains("workload \"stream\", now \"pingpong\""));
    let newer = place.text().replace(JOURNAL_SCHEMA, "polyrail-bench-journal/2");
    fs::write(&place.0, newer).unwrap();
    let said = place.refused(LINE);
    assert!(said.contains("polyrail-bench-journal/2, this program knows polyrail-bench-journal/1"), "{said}");
    for foreign in ["shopping list", "shopping\nlist\n", "{\"schema\":\"polyrail-bench/1\"}\n", "\n"] {
        fs::write(&place.0, foreign).unwrap();
        place.refused(LINE);
    }
    let nowhere = Journal::open(Path::new("/nowhere/x"), &plan(LINE), &Host::here()).unwrap_err();
    assert!(nowhere.starts_with("--journal /nowhere/x: "), "{nowhere}");
    let device = Journal::open(Path::new("/dev/null"), &plan(LINE), &Host::here()).unwrap_err();
    assert!(device.contains("no ordinary file"), "{device}");
}

#[test]
fn damage_before_the_end_is_refused_by_its_line() {
    let place = Place::new("damage");
    let mut journal = place.open(LINE).unwrap();
    journal.add(&case("pipe"), 0, &sample(1), &pulses_for_tests(51.1, 52.2)).unwrap();
    journal.add(&case("pipe"), 1, &sample(2), &pulses_for_tests(51.1, 52.2)).unwrap();
    drop(journal);
    fs::write(&place.0, place.text().replacen("\"sample\":{\"case\"", "\"sample\":{\"cas", 1)).unwrap();
    assert!(place.refused(LINE).contains("line 2 is damaged"));
}

#[test]
fn two_runs_never_write_one_journal() {
    let place = Place::new("lock");
    let first = place.open(LINE).unwrap();
    assert!(place.refused(LINE).contains("another run writes it"));
    drop(first);
    assert!(place.open(LINE).is_ok());
}

#[test]
fn another_machine_is_noted_also_if_it_was_not_the_first() {
    let place = Place::new("host");
    drop(place.open(LINE).unwrap());
    let other = Host { kernel: "Linux 9".to_owned(), load_1min: 7.0, ..Host::here() };
    let mut journal = Journal::open(&place.0, &plan(LINE), &other).unwrap();
    journal.add(&case("pipe"), 0, &sample(1), &pulses_for_tests(51.1, 52.2)).unwrap();
    drop(journal);
    let mut journal = place.open(LINE).unwrap();
    journal.known(&case("pipe"), 0).unwrap();
    let notes = journal.notes();
    assert!(notes.len() == 2 && notes[1].contains("kernel Linux 9, this one"), "{notes:?}");
}
