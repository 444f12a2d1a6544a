//! `polyrail bench model`: documents in, models out, and what it refuses.

#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A folder that vanishes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-model-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder of our own");
        Self(path)
    }

    fn write(&self, name: &str, document: &Value) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, document.to_string()).expect("a file of our own");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(arguments: &str, files: &[&String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.arg("bench").args(arguments.split_whitespace()).args(files);
    command.output().expect("the program starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON document in every case")
}

/// A document of this machine, measured once and in no time; what is measured does not matter.
fn measured(workload: &str) -> Value {
    static ALL: [OnceLock<Value>; 2] = [OnceLock::new(), OnceLock::new()];
    let measure = || {
        json(&bench(
            &format!(
                "{workload} --placement intra --protocol tcp-nodelay --size 64..8K --wait block --repeat 1 --warmup 0 \
                 --duration 0.01 --json"
            ),
            &[],
        ))
    };
    let document = ALL[usize::from(workload == "stream")].get_or_init(measure);
    assert_eq!(document["results"].as_array().map(Vec::len), Some(8), "{document}");
    document.clone()
}

/// The same with other figures: of each row, by its size, one value for each of 5 repetitions, 1 % apart.
fn planted(mut document: Value, path: &[&str], value: impl Fn(f64) -> f64) -> Value {
    for row in document["results"].as_array_mut().expect("rows") {
        let size = row["size"].as_f64().expect("a size");
        let values: Vec<f64> = (-2..=2).map(|i| value(size) * (1.0 + 0.01 * f64::from(i))).collect();
        let spread = json!({ "median": values[2], "low": values[0], "high": values[4], "samples": 5, "values": values });
        let (last, before) = path.split_last().expect("a name");
        let mut place = &mut *row;
        for name in before {
            place = &mut place[*name];
        }
        place[*last] = spread;
        row["calibration"] = json!([]);
    }
    document
}

/// 5 us and 800 Mbit/s, measured as round trips.
fn round_trips() -> Value {
    planted(measured("pingpong"), &["latency_us", "p50"], |size| 2.0 * (5.0 + size * 8.0 / 800.0))
}

/// 2 us and 1600 Mbit/s, one way, and 1 us of CPU time for the smallest message.
fn one_way() -> Value {
    let document =
        planted(measured("stream"), &["throughput_mbps"], |size| size * 8.0 / (2.0 + size * 8.0 / 1_600.0));
    let cpu = |document, side| planted(document, &["cpu_s_per_gb", side], |size| 1e3 / size);
    cpu(cpu(document, "sender"), "receiver")
}

fn is_about(value: &Value, truth: f64) -> bool {
    let of = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    (of("value") / truth - 1.0).abs() < 0.05 && of("low") <= of("value") && of("value") <= of("high")
}

#[test]
fn documents_of_two_workloads_become_lines_and_loggp() {
    let folder = Folder::new("lines");
    let files = [folder.write("a.json", &round_trips()), folder.write("b.json", &one_way())];
    let output = bench("model --json --at 3000,1M", &[&files[0], &files[1]]);
    let models = json(&output);
    assert_eq!(
        (&models["schema"], output.status.code()),
        (&json!("polyrail-model/1"), Some(1)),
        "1M is refused"
    );
    let [first, second] = models["models"].as_array().expect("models").as_slice() else { panic!("{models}") };
    for (model, start_us, mbps) in [(first, 5.0, 800.0), (second, 2.0, 1_600.0)] {
        assert_eq!(model["pieces"].as_array().map(Vec::len), Some(1), "{model}");
        assert!(is_about(&model["pieces"][0]["t_start_us"], start_us), "{model}");
        assert!(is_about(&model["pieces"][0]["bandwidth_mbps"], mbps), "{model}");
        assert!(is_about(&model["n_half_bytes"], start_us * mbps / 8.0), "{model}");
        assert!(is_about(&model["predicted"][0]["time_us"], start_us + 3_000.0 * 8.0 / mbps), "{model}");
        assert!(
            model["predicted"][1]["refused"].to_string().contains("not within the sizes measured"),
            "{model}"
        );
        assert_eq!(model["residuals"].as_array().map(Vec::len), Some(8), "{model}");
    }
    let loggp = &models["loggp"][0];
    assert!(is_about(&loggp["o_sender_us"], 1.0) && is_about(&loggp["L_us"], 3.0), "{loggp}");
    assert!(
        is_about(&loggp["g_us"], 2.0 + 64.0 * 8.0 / 1_600.0) && is_about(&loggp["G_ns_per_byte"], 5.0),
        "{loggp}"
    );
    assert_eq!(loggp["unknown"], json!([]));
    let text = String::from_utf8(bench("model --plot", &[&files[0], &files[1]]).stdout).expect("text");
    assert!(text.contains("T_start us") && text.contains("residual %") && text.contains("+---"), "{text}");
}

#[test]
fn what_one_workload_does_not_tell_is_named_with_what_would_tell_it() {
    let folder = Folder::new("unknown");
    let file = folder.write("a.json", &round_trips());
    let models = json(&bench("model --json", &[&file]));
    let unknown = models["loggp"][0]["unknown"].to_string();
    for (parameter, command) in [("g: ", "bench stream"), ("o: ", "--wait block"), ("L: ", "T_start")] {
        assert!(unknown.contains(parameter) && unknown.contains(command), "{unknown}");
    }
}

#[test]
fn another_machine_few_sizes_and_no_document_are_refused_and_a_missing_protocol_is_told() {
    let folder = Folder::new("refused");
    let good = folder.write("good.json", &round_trips());
    let mut other = one_way();
    other["host"]["cpu"] = json!("another one");
    let other = folder.write("other.json", &other);
    let refused = |files: &[&String]| {
        let output = bench("model --json", files);
        let error = json(&output)["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        error
    };
    let error = refused(&[&good, &other]);
    assert!(
        error.contains("another one")
            && error.contains("other.json")
            && error.contains("give the documents of one")
    );
    let mut few = round_trips();
    few["results"].as_array_mut().expect("rows").truncate(3);
    let few = folder.write("few.json", &few);
    assert!(refused(&[&few]).contains("3 sizes"), "what is too few is said");
    let absent = folder.0.join("absent.json").display().to_string();
    assert!(refused(&[&absent]).contains("absent.json"));
    let mut renamed = one_way();
    for row in renamed["results"].as_array_mut().expect("rows") {
        row["protocol"] = json!("tcp-cubic");
    }
    let renamed = folder.write("renamed.json", &renamed);
    let notes = json(&bench("model --json", &[&good, &renamed]))["notes"].to_string();
    assert!(notes.contains("tcp-cubic is not in") && notes.contains("tcp-nodelay is not in"), "{notes}");
}
