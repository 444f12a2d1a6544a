use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::control::SideReport;
use crate::report::Report;
use crate::report::tests::series;
use crate::run::Sample;
use crate::stats::Prng;

/// Two files that vanish with the value.
struct Files([PathBuf; 2]);

impl Files {
    fn new(name: &str) -> Self {
        let path = |side: &str| {
            std::env::temp_dir().join(format!("polyrail-compare-{}-{name}-{side}.json", std::process::id()))
        };
        Self([path("a"), path("b")])
    }

    fn compare(&self, a: &str, b: &str, threshold_percent: f64) -> Comparison {
        fs::write(&self.0[0], a).unwrap();
        fs::write(&self.0[1], b).unwrap();
        Comparison::of_files(&self.0[0], &self.0[1], threshold_percent)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn compare(name: &str, a: &Value, b: &Value) -> Comparison {
    Files::new(name).compare(&a.to_string(), &b.to_string(), 0.0)
}

fn refused(name: &str, a: &str, b: &str) -> String {
    let comparison = Files::new(name).compare(a, b, 0.0);
    let error = comparison.error().expect(name).to_owned();
    assert_eq!((comparison.exit_code(), error.lines().count()), (2, 1), "{error}");
    let told: Value = serde_json::from_str(&comparison.json()).expect("valid JSON also on error");
    assert_eq!((&told["schema"], &told["error"]), (&json!(COMPARE_SCHEMA), &json!(error)));
    error
}

/// A sample of a stream; the sender says nothing, so that throughput is its only figure that is compared.
fn stream(mbps: f64) -> Sample {
    let bytes = (mbps * 125_000.0) as u64;
    let receiver =
        SideReport { window_ns: 1_000_000_000, bytes, cpu_ns: 1_000_000_000, ..SideReport::default() };
    Sample { receiver, ..Sample::default() }
}

fn pingpong(rtt_ns: u64) -> Sample {
    let sender = SideReport {
        window_ns: 1_000_000_000,
        messages: 1_000_000_000 / rtt_ns,
        rtt_ns: vec![(rtt_ns, 990), (rtt_ns * 3, 10)],
        ..SideReport::default()
    };
    Sample { sender, ..Sample::default() }
}

fn document(line: &str, protocol: &str, samples: Vec<Sample>) -> Value {
    let mut report = Report::new();
    report.set_plan(&crate::args::tests::parse(line).unwrap().plan().unwrap());
    report.add(series(line, protocol, samples));
    serde_json::from_str(&report.json()).unwrap()
}

/// Throughputs that scatter by 0.1 %.
fn steady(mbps: f64, count: u32) -> Value {
    let samples = (0..count).map(|i| stream(mbps * (1.0 + 0.000_1 * f64::from(i % 10)))).collect();
    document("stream", "tcp-cubic", samples)
}

fn figure<'a>(comparison: &'a Comparison, name: &str) -> &'a Compared {
    let figures = comparison.rows.iter().flat_map(|row| &row.figures);
    figures.into_iter().find(|figure| figure.figure == name).expect(name)
}

#[test]
fn more_throughput_is_better_and_more_latency_is_worse() {
    let faster = compare("faster", &steady(900.0, 15), &steady(990.0, 15));
    let found = figure(&faster, "throughput_mbps");
    assert_eq!((found.verdict, faster.exit_code()), (Verdict::Better, 0));
    assert!((found.ratio.unwrap().ratio - 1.1).abs() < 0.001);

    let latency =
        |rtt_ns: u64| document("pingpong", "udp", (0..15_u64).map(|i| pingpong(rtt_ns + 7 * i)).collect());
    let slower = compare("slower", &latency(10_000), &latency(11_000));
    for name in ["latency_us.p50", "latency_us.p99", "rate_per_s"] {
        let found = figure(&slower, name);
        assert_eq!((found.verdict, found.regression), (Verdict::Worse, true), "{name}");
    }
    assert_eq!((slower.exit_code(), slower.regressions), (1, 3));
    assert_eq!(compare("quicker", &latency(11_000), &latency(10_000)).exit_code(), 0);
}

#[test]
fn a_document_has_no_difference_to_itself() {
    let document = steady(900.0, 15);
    let comparison = compare("itself", &document, &document);
    assert_eq!(figure(&comparison, "throughput_mbps").verdict, Verdict::NotShown);
    assert_eq!((comparison.exit_code(), comparison.notes.len()), (0, 0));
    assert!(comparison.rows[0].notes.is_empty(), "{:?}", comparison.rows[0].notes);
}

#[test]
fn a_shown_difference_below_the_threshold_is_no_regression() {
    let (a, b) = (steady(900.0, 15).to_string(), steady(882.0, 15).to_string());
    for (threshold_percent, code) in [(0.0, 1), (1.9, 1), (2.1, 0)] {
        let comparison = Files::new("threshold").compare(&a, &b, threshold_percent);
        assert_eq!(comparison.exit_code(), code, "{threshold_percent} %");
        assert_eq!(figure(&comparison, "throughput_mbps").verdict, Verdict::Worse);
    }
}

#[test]
fn fewer_than_five_samples_a_side_show_nothing_however_far_apart() {
    for (a, b) in [(4, 15), (15, 4), (1, 1)] {
        let comparison = compare("few", &steady(900.0, a), &steady(90.0, b));
        let found = figure(&comparison, "throughput_mbps");
        assert_eq!((found.verdict, comparison.exit_code()), (Verdict::TooFew, 0));
        assert!(found.ratio.is_none() && comparison.table().contains("too few samples"));
    }
    let comparison = compare("five", &steady(900.0, 5), &steady(90.0, 5));
    assert_eq!(figure(&comparison, "throughput_mbps").verdict, Verdict::Worse);
}

#[test]
fn failed_repetitions_are_left_out_and_noted() {
    let mut samples: Vec<Sample> = (0..8).map(|i| stream(900.0 + f64::from(i))).collect();
    for place in [1, 4, 5, 6] {
        samples[place] = Sample { error: Some("receiver: killed".to_owned()), ..stream(1.0) };
    }
    let comparison = compare("failed", &document("stream", "tcp-cubic", samples), &steady(900.0, 15));
    assert_eq!(figure(&comparison, "throughput_mbps").a.samples, 4);
    assert!(comparison.rows[0].notes[0].contains("A: 4 repetitions failed and are left out"));
}

#[test]
fn rows_are_matched_by_all_their_conditions_and_the_others_named() {
    let (mut a, mut b) = (steady(900.0, 5), steady(900.0, 5));
    let row = a["results"][0].clone();
    let with = |name: &str, value: Value| {
        let mut row = row.clone();
        row[name] = value;
        row
    };
    a["results"].as_array_mut().unwrap().push(with("wait", json!("block")));
    b["results"].as_array_mut().unwrap().push(with("socket_buffer_max", json!(4096)));
    b["results"].as_array_mut().unwrap().push(with("loss_percent", json!([0.5])));
    let comparison = compare("matched", &a, &b);
    assert_eq!(comparison.rows.len(), 1);
    assert_eq!(comparison.only_in_a, ["stream tcp-cubic inter - block 131072 B"]);
    assert_eq!(comparison.only_in_b.len(), 2);
    let table = comparison.table();
    assert!(table.contains("only in A: ") && table.contains("loss 0.5%"), "{table}");
}

#[test]
fn what_cannot_be_read_is_told_in_one_line_with_its_file() {
    let good = steady(900.0, 5).to_string();
    assert!(refused("text", "hello", &good).contains("-a.json: is not JSON"));
    assert!(refused("empty", &good, "").contains("-b.json: is not JSON"));
    assert!(refused("cut", &good, &good[..good.len() / 2]).contains("-b.json: is not JSON"));
    let newer = good.replacen(crate::SCHEMA, "polyrail-bench/2", 1);
    let said = refused("newer", &good, &newer);
    assert!(
        said.contains("-b.json: has schema polyrail-bench/2, this program knows polyrail-bench/1"),
        "{said}"
    );
    assert!(refused("other", "{\"schema\":\"x/1\"}", &good).contains("has schema x/1, not polyrail-bench/1"));
    assert!(refused("none", "{}", &good).contains("names no schema"));
    assert!(refused("list", &crate::report::List::here().json(), &good).contains("is no report of bench"));
    let apart = steady(900.0, 5).to_string().replace("tcp-cubic", "udp");
    assert!(refused("apart", &good, &apart).contains("no row in common"));
    let nowhere = Comparison::of_files(Path::new("/nowhere/a"), Path::new("/nowhere/b"), 0.0);
    assert!(nowhere.error().unwrap().starts_with("/nowhere/a: No such file"));
}

#[test]
fn fields_that_came_later_and_samples_that_came_later_do_no_harm() {
    let mut later = steady(900.0, 15);
    later["weather"] = json!("fair");
    later["results"][0]["humidity"] = json!({ "median": 7 });
    assert_eq!(compare("later", &later, &steady(900.0, 15)).exit_code(), 0);

    let mut early = steady(900.0, 15);
    early.as_object_mut().unwrap().remove("plan");
    early["results"][0]["throughput_mbps"].as_object_mut().unwrap().remove("values");
    early["results"][0]["rate_per_s"].as_object_mut().unwrap().remove("values");
    let comparison = compare("early", &early, &steady(90.0, 15));
    assert_eq!(figure(&comparison, "throughput_mbps").verdict, Verdict::TooFew);
    assert!(comparison.notes[0].contains("keeps no single samples"), "{:?}", comparison.notes);
}

#[test]
fn what_differs_around_the_figures_is_noted() {
    let (a, mut b) = (steady(900.0, 5), steady(900.0, 5));
    b["host"]["kernel"] = json!("Linux 9");
    b["plan"]["duration_ns"] = json!(7);
    b["plan"]["repeat"] = json!(1);
    b["error"] = json!("interrupted");
    b["results"][0]["lost"] = json!(3);
    for pulse in b["results"][0]["calibration"].as_array_mut().unwrap() {
        pulse["before"]["cacheline_ns"] = json!(81.0);
        pulse["after"]["cacheline_ns"] = json!(81.0);
    }
    let comparison = compare("around", &a, &b);
    let notes = [comparison.notes.clone(), comparison.rows[0].notes.clone()].concat();
    let told = |text: &str| notes.iter().filter(|note| note.contains(text)).count();
    assert_eq!(told("kernel differs: A "), 1, "{notes:?}");
    assert_eq!(told("duration_ns differs: A 1000000000, B 7"), 1, "{notes:?}");
    assert_eq!(told("its run ended with an error: interrupted"), 1, "{notes:?}");
    assert_eq!(told("B: 3 messages lost, which tcp-cubic promises not to do"), 1, "{notes:?}");
    assert_eq!(told("a cache line took 50 ns in A, 81 ns in B"), 1, "{notes:?}");
    assert_eq!(notes.len(), 5, "{notes:?}");
    // What promises nothing has broken nothing; 1.6 is still the same phase.
    let (udp, mut lossy) =
        (document("stream", "udp", vec![stream(9.0)]), document("stream", "udp", vec![stream(9.0)]));
    lossy["results"][0]["lost"] = json!(3);
    for side in ["before", "after"] {
        lossy["results"][0]["calibration"][0][side]["cacheline_ns"] = json!(80.0);
    }
    assert!(compare("udp", &udp, &lossy).rows[0].notes.is_empty());
}

#[test]
fn each_cut_is_a_sample_of_its_kind_and_a_second_mode_is_noted() {
    use crate::failover::{Cut, Judgement, Kind, Place, Reuse};
    use crate::netns::Direction;
    let cut = |gap_ns| Cut {
        place: Place { kind: Kind::Carrier, link: 0, node: 0, direction: Direction::Both },
        cut_ns: 0,
        restored_ns: 0,
        judgement: Judgement { gap_ns, ..Judgement::default() },
        carried_share: 0.5,
        aftermath_ns: None,
        reuse: Reuse::Not,
        flaps: 0,
    };
    let sample = |gap_ns: u64, far: usize| Sample {
        cuts: (0..20).map(|i| cut(if i < far { 80 } else { 1 } * (gap_ns + 1_000 * i as u64))).collect(),
        ..Sample::default()
    };
    let document = |gap_ns, far| document("failover", "mptcp", vec![sample(gap_ns, far)]);
    let comparison = compare("cuts", &document(2_000_000, 0), &document(3_000_000, 5));
    let found = figure(&comparison, "gap_ms.carrier");
    assert_eq!((found.verdict, found.a.samples, found.b.outliers), (Verdict::Worse, 20, 5));
    let notes = &comparison.rows[0].notes;
    assert!(
        notes.iter().any(|note| note.contains("B: 5 of 20 samples of gap_ms.carrier lie far")),
        "{notes:?}"
    );
}

#[test]
fn the_json_form_has_every_figure_with_its_verdict() {
    let value: Value =
        serde_json::from_str(&compare("json", &steady(900.0, 15), &steady(800.0, 15)).json()).unwrap();
    assert_eq!((&value["schema"], &value["regressions"]), (&json!(COMPARE_SCHEMA), &json!(1)));
    let row = &value["rows"][0];
    assert_eq!((&row["protocol"], &row["size"]), (&json!("tcp-cubic"), &json!(131_072)));
    let found = &row["figures"][0];
    assert_eq!((&found["figure"], &found["verdict"]), (&json!("throughput_mbps"), &json!("worse")));
    assert_eq!((&found["better"], &found["regression"]), (&json!("higher"), &json!(true)));
    assert!(found["ratio"]["low"].as_f64() < found["ratio"]["high"].as_f64());
}

/// Samples as a shared machine gives them: log-normal noise of 2 %, one in twenty slower by 10 to 30 %.
fn noisy(random: &mut Prng, mbps: f64, count: usize) -> Vec<Sample> {
    let mut uniform = || (random.below(1 << 30) as f64 + 0.5) / f64::from(1 << 30);
    let mut sample = || {
        let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let slower = if uniform() < 0.05 { 1.1 + 0.2 * uniform() } else { 1.0 };
        stream(mbps * (0.02 * normal).exp() / slower)
    };
    (0..count).map(|_| sample()).collect()
}

/// Of `seeds` pairs of documents, how many are told to differ, and how many of those as worse in B.
fn told(name: &str, seeds: std::ops::Range<u64>, count: usize, factor: f64) -> (usize, usize) {
    let files = Files::new(name);
    let mut told = (0, 0);
    for seed in seeds {
        let mut random = Prng::new(seed);
        let mut written =
            |mbps: f64| document("stream", "tcp-cubic", noisy(&mut random, mbps, count)).to_string();
        let comparison = files.compare(&written(1_000.0), &written(1_000.0 * factor), 0.0);
        let found = figure(&comparison, "throughput_mbps");
        told.0 += usize::from(matches!(found.verdict, Verdict::Better | Verdict::Worse));
        told.1 += usize::from(comparison.exit_code() == 1);
    }
    told
}

/// 200 runs judge a rate of one in twenty only within three runs or so.
const SEEDS: std::ops::Range<u64> = 0..200;
/// Samples a side, as docs/measuring.md advises.
const SAMPLES: usize = 20;

#[test]
fn three_percent_less_is_told_in_nineteen_of_twenty_runs() {
    let (_, worse) = told("less", SEEDS, SAMPLES, 0.97);
    println!("told in {worse} of 200 runs");
    assert!(worse >= 190, "told in {worse} of 200 runs");
}

#[test]
fn what_is_equal_is_told_to_differ_in_one_of_twenty_runs_at_most() {
    let (different, _) = told("equal", SEEDS, SAMPLES, 1.0);
    println!("told to differ in {different} of 200 runs");
    assert!(different <= 10, "told to differ in {different} of 200 runs");
}
