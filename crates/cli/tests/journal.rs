//! A measurement that is killed in the middle and goes on by the same command line.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const REPETITIONS: usize = 5;
const PROTOCOLS: [&str; 2] = ["pipe", "unix-stream"];

/// Files that vanish with the value.
struct Files {
    journal: PathBuf,
    csv: PathBuf,
}

impl Files {
    fn new() -> Self {
        let path =
            |name: &str| std::env::temp_dir().join(format!("polyrail-cut-{}-{name}", std::process::id()));
        Self { journal: path("journal"), csv: path("csv") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.journal);
        let _ = std::fs::remove_file(&self.csv);
    }
}

fn command(files: &Files) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.args(["bench", "stream", "--placement", "intra", "--wait", "block", "--warmup", "0", "--json"]);
    command.args(["--duration", "0.05", "--repeat", &REPETITIONS.to_string()]);
    command.args(["--protocol", &PROTOCOLS.join(",")]);
    command.arg("--journal").arg(&files.journal).arg("--csv").arg(&files.csv);
    command
}

/// The journal's whole lines so far.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

/// How many samples a journal has, and of how many repetitions of how many protocols.
fn samples(lines: &[String]) -> (usize, usize) {
    let values = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let places = values.filter_map(|line| {
        let sample = line.get("sample")?;
        Some(format!("{} {}", sample["case"]["protocol"], sample["repetition"]))
    });
    let mut places: Vec<String> = places.collect();
    let count = places.len();
    places.sort();
    places.dedup();
    (count, places.len())
}

fn document(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn rows(document: &Value) -> &[Value] {
    document["results"].as_array().expect("rows")
}

#[test]
fn a_run_that_was_killed_goes_on_and_measures_only_what_is_missing() {
    let files = Files::new();
    let all = REPETITIONS * PROTOCOLS.len();
    let mut first = command(&files).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    while lines(&files.journal).len() < 4 {
        assert!(first.try_wait().expect("its state").is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    let before = lines(&files.journal);
    let (taken, places) = samples(&before);
    assert!(taken >= 3 && taken < all && places == taken, "{taken} samples of {all} before it was killed");
    assert!(!files.csv.exists(), "a run that was killed leaves no half of a CSV file");

    // What a power cut may leave of a line.
    let torn = [&before.concat(), "{\"sample\":{\"case\":"].concat();
    std::fs::write(&files.journal, torn).expect("the journal can be written");
    let resumed = document(&command(&files).output().expect("it starts"));
    let after = lines(&files.journal);
    assert_eq!(after[..before.len()], before, "what was there stays");
    assert_eq!(samples(&after), (all, all), "each sample was measured once");
    assert!(after[before.len()].starts_with("{\"continued\":"));
    for row in rows(&resumed) {
        assert_eq!(row["throughput_mbps"]["samples"], REPETITIONS, "{row}");
        assert_eq!(row["calibration"].as_array().map(Vec::len), Some(REPETITIONS));
    }
    assert_eq!(rows(&resumed).len(), PROTOCOLS.len());
    let note = resumed["notes"][0].as_str().unwrap_or_default();
    assert!(note.starts_with(&format!("{taken} samples are from an earlier run")), "{note}");
    let csv = std::fs::read_to_string(&files.csv).expect("the CSV file is there");
    assert_eq!(csv.lines().filter(|line| line.contains(",throughput_mbps,")).count(), all);

    // Once more: all is there, and nothing is measured.
    let again = document(&command(&files).output().expect("it starts"));
    for (row, before) in rows(&again).iter().zip(rows(&resumed)) {
        for kept in ["protocol", "throughput_mbps", "cpu_s_per_gb", "calibration"] {
            assert_eq!(row[kept], before[kept]);
        }
    }
    assert_eq!(samples(&lines(&files.journal)), (all, all));

    let other = command(&files).args(["--size", "64"]).output().expect("it starts");
    let complaint = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!((other.status.code(), complaint.lines().count()), (Some(2), 1), "{complaint}");
    assert!(complaint.contains("was begun with other arguments (points "), "{complaint}");
    assert_eq!(samples(&lines(&files.journal)), (all, all));
}
