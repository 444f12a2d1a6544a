//! `polyrail advise`: from documents to advice and settings, and a measurement of its own.

#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder that vanishes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-advise-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder of our own");
        Self(path)
    }

    /// A document with these rows, as if this machine had measured it.
    fn document(&self, name: &str, rows: Vec<Value>) -> String {
        let mut document = template().clone();
        document["results"] = Value::Array(rows);
        self.write(name, &document.to_string())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file of our own");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn polyrail(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polyrail")).args(arguments).output().expect("the program starts")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document in every case")
}

fn advice(files: &[&str]) -> (Value, Option<i32>) {
    let output = polyrail(&[&["advise", "--json"], files].concat());
    (json_of(&output), output.status.code())
}

/// A document of this machine with one row.
fn template() -> &'static Value {
    static ONE: OnceLock<Value> = OnceLock::new();
    ONE.get_or_init(|| {
        let line = "bench stream --placement intra --protocol tcp-nodelay --wait block --repeat 1 --warmup 0 --duration 0.01 --json";
        json_of(&polyrail(&line.split(' ').collect::<Vec<_>>()))
    })
}

/// What a row is of: workload, protocol, rates of links (none: within a machine), size, way of waiting.
type Conditions<'a> = (&'a str, &'a str, &'a [u32], usize, &'a str);

/// A row whose seven repetitions lie 1 % apart.
fn row((workload, protocol, rates, size, wait): Conditions, middle: f64) -> Value {
    let mut row = template()["results"][0].clone();
    for name in ["throughput_mbps", "cpu_s_per_gb", "machine_cpu_s_per_gb", "rate_per_s"] {
        row.as_object_mut().expect("a row").remove(name);
    }
    let values: Vec<f64> = (-3..=3).map(|i| middle * (1.0 + 0.01 * f64::from(i))).collect();
    let spread =
        json!({ "median": middle, "low": values[0], "high": values[6], "samples": 7, "values": values });
    match workload {
        "stream" | "buffer" | "links" => row["throughput_mbps"] = spread,
        _ => {
            row["latency_us"] =
                json!({ "p50": spread, "p90": spread, "p99": spread, "p999": spread, "max": spread });
        }
    }
    let links = rates.len().max(1);
    row["placement"] = json!(if rates.is_empty() { "intra" } else { "inter" });
    row["rate_mbit"] = if rates.is_empty() { json!([null]) } else { json!(rates) };
    (row["links"], row["loss_percent"]) = (json!(links), json!(vec![0.0; links]));
    (row["workload"], row["protocol"], row["size"], row["wait"]) =
        (json!(workload), json!(protocol), json!(size), json!(wait));
    row
}

fn finding<'a>(advice: &'a Value, question: &str, size: usize) -> &'a Value {
    let all = advice["findings"].as_array().expect("findings");
    let found = all.iter().find(|one| one["question"] == question && one["conditions"]["size"] == size);
    found.unwrap_or_else(|| panic!("no {question} of {size} B in {advice}"))
}

#[test]
fn protocols_links_and_ways_of_waiting_are_chosen_by_what_stands_out() {
    let folder = Folder::new("chosen");
    let one: &[u32] = &[1_000];
    let two: &[u32] = &[1_000, 1_000];
    let cores = |mut row: Value, cores: f64| {
        row["cores_used"] =
            json!({ "median": cores, "low": cores, "high": cores, "samples": 1, "values": [cores] });
        row
    };
    let waiting = |wait, us, busy| cores(row(("openloop", "polyrail", &[], 64, wait), us), busy);
    let rows = vec![
        row(("pingpong", "tcp-nodelay", one, 64, "spin"), 12.0),
        row(("pingpong", "polyrail", one, 64, "spin"), 8.0),
        row(("pingpong", "udp", one, 64, "spin"), 7.0),
        row(("links", "polyrail", one, 1_024, "block"), 500.0),
        row(("links", "polyrail", two, 1_024, "block"), 499.0),
        row(("links", "polyrail", one, 65_536, "block"), 945.0),
        row(("links", "polyrail", two, 65_536, "block"), 1_880.0),
        waiting("spin", 5.0, 2.0),
        waiting("adaptive", 50.0, 0.2),
        waiting("block", 70.0, 0.1),
    ];
    let (advice, code) = advice(&[&folder.document("a.json", rows)]);
    assert_eq!((&advice["schema"], code), (&json!("polyrail-advice/1"), Some(0)));
    let protocol = finding(&advice, "protocol", 64);
    assert_eq!((&protocol["choice"], &protocol["stands_out"]), (&json!("polyrail"), &json!(true)));
    assert!(protocol["evidence"][0].to_string().contains("promises no delivery"), "udp is told: {protocol}");
    let link =
        |size| finding(&advice, "further_links", size)["choice"].as_str().unwrap_or_default().to_owned();
    assert!(link(1_024).starts_with("1 link ") && link(65_536).starts_with("2 links "), "{advice}");
    let wait = finding(&advice, "wait", 64);
    assert_eq!((&wait["choice"], wait["evidence"].as_array().map(Vec::len)), (&json!("adaptive"), Some(3)));
    let unknown = advice["unknown"].to_string();
    assert!(
        unknown.contains("bench buffer") && unknown.contains("policies") && unknown.contains("which size"),
        "{unknown}"
    );
}

#[test]
fn a_node_loads_the_settings_that_follow() {
    let folder = Folder::new("settings");
    let two: &[u32] = &[1_000, 100];
    let buffer = |bytes: usize, mbps| {
        let mut row = row(("buffer", "polyrail", &[], 16_384, "block"), mbps);
        row["socket_buffer_max"] = json!(bytes);
        row
    };
    let rows = vec![
        row(("stream", "polyrail", two, 65_536, "block"), 900.0),
        row(("stream", "polyrail-round-robin", two, 65_536, "block"), 1_000.0),
        row(("openloop", "polyrail", &[], 64, "adaptive"), 50.0),
        row(("openloop", "polyrail", &[], 64, "block"), 51.0),
        buffer(16_384, 500.0),
        buffer(262_144, 900.0),
        buffer(1_048_576, 700.0),
    ];
    let file = folder.document("a.json", rows);
    let output = polyrail(&["advise", &file, "--toml"]);
    let toml = String::from_utf8(output.stdout).expect("text");
    for line in ["wait = \"block\"", "policy = \"round-robin\"", "socket_buffer_max = 262144"] {
        assert!(toml.lines().any(|found| found == line), "{line} is not in\n{toml}");
    }
    let settings = folder.write("node.toml", &toml);
    let checked = polyrail(&["config", "check", &settings]);
    assert!(checked.status.success(), "{}\n{toml}", String::from_utf8_lossy(&checked.stderr));
    let (advice, _) = advice(&[&file]);
    assert_eq!(advice["toml"], json!(toml.trim_end().to_owned() + "\n"));
}

#[test]
fn a_choice_is_held_against_a_sweep() {
    let folder = Folder::new("sweep");
    let of = |protocol, us| row(("pingpong", protocol, &[], 64, "block"), us);
    let quick = folder.document("quick.json", vec![of("tcp-nodelay", 10.0), of("polyrail", 8.0)]);
    let sweep = folder.document("sweep.json", vec![of("polyrail", 9.0), of("pipe", 6.0), of("udp", 1.0)]);
    let (advice, _) = advice(&[&quick, "--against", &sweep]);
    let held = &advice["against"][0];
    assert_eq!((&held["choice"], &held["best"]), (&json!("polyrail"), &json!("pipe")));
    assert!((held["worse_by"]["ratio"].as_f64().expect("a ratio") - 1.5).abs() < 0.01, "{held}");
    let told = String::from_utf8(polyrail(&["advise", &quick, "--against", &sweep]).stdout).expect("text");
    assert!(told.contains("0 of 1 choices are within 5 %"), "{told}");
}

#[test]
fn documents_that_give_no_advice_are_refused_with_what_would() {
    let folder = Folder::new("refused");
    let one = folder.document("one.json", vec![row(("pingpong", "polyrail", &[], 64, "block"), 8.0)]);
    let (nothing, code) = advice(&[&one]);
    assert_eq!(code, Some(1));
    assert!(
        nothing["error"].to_string().contains("no two choices")
            && nothing["error"].to_string().contains("bench")
    );
    let mut other = template().clone();
    other["host"]["cores"] = json!(999);
    let other = folder.write("other.json", &other.to_string());
    let (mixed, code) = advice(&[&one, &other]);
    assert_eq!(code, Some(2));
    assert!(mixed["error"].to_string().contains("999"), "{mixed}");
    assert_eq!(advice(&["absent.json"]).1, Some(2));
    assert_eq!(advice(&["--placement", "node7"]).1, Some(2));
    assert_eq!(advice(&["--placement", "inter", "--links", "2", "--rate", "1000:100:10"]).1, Some(2));
}

#[test]
fn without_documents_it_measures_and_names_what_there_was_no_time_for() {
    let folder = Folder::new("quick");
    let keep = folder.0.join("kept").display().to_string();
    let (advice, code) = advice(&["--placement", "intra", "--limit", "25", "--keep", &keep]);
    assert!(advice["error"].is_null() || code == Some(1), "{advice}");
    let kept = std::fs::read_dir(&keep).map_or(0, Iterator::count);
    let unknown = advice["unknown"].to_string();
    assert!(
        unknown.contains("no time was left") && unknown.contains("polyrail bench stream --placement intra"),
        "{unknown}"
    );
    // A machine on which many others work may have no time for the first look either.
    assert!(
        kept == 0 || finding(&advice, "protocol", 64)["evidence"].as_array().is_some_and(|all| all.len() > 1),
        "{advice}"
    );
}
