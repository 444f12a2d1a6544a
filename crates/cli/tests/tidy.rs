//! House rules that no compiler checks: which crate may need which, where the clock and raw atomics may be touched,
//! how long functions and files may grow. Every failure names file and line and says what to do.

#![forbid(unsafe_code)]

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/length.rs"]
mod length;
#[path = "tidy/source.rs"]
mod source;

use source::Source;

/// Fails with one line per finding.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}\n  {}\n", findings.join("\n  "));
}

/// Every line outside tests on which one of `words` stands as a word of the code.
fn uses(sources: &[Source], words: &[&str], is_free: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|s| !s.is_test && !is_free(s)) {
        for (number, line) in source.product_lines() {
            if let Some(word) = words.iter().find(|word| source::has_word(line, word)) {
                findings.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    findings
}

#[test]
fn crates_need_only_what_the_architecture_allows() {
    report(
        "an arrow that ARCHITECTURE.md does not draw: turn it round, or change the plan and crates/cli/tests/tidy/arrows.rs with the reason",
        &arrows::findings(),
    );
}

#[test]
fn the_core_knows_no_machine() {
    let words =
        ["std::net", "std::time", "core::time", "std::thread", "std::fs", "std::env", "HashMap", "HashSet"];
    report(
        "proto is told everything and orders everything: use its own Instant and MediaAddress, BTreeMap for maps",
        &uses(&source::all(), &words, |s| s.package != "proto"),
    );
}

#[test]
fn the_engine_and_the_simulator_use_no_randomised_maps() {
    let words = ["HashMap", "HashSet", "RandomState"];
    let is_engine = |s: &Source| s.package == "sim" || s.path.starts_with("crates/node/src/engine");
    report("a seed must replay bit for bit: use BTreeMap", &uses(&source::all(), &words, |s| !is_engine(s)));
}

#[test]
fn the_clock_is_read_in_one_place() {
    report(
        "take the time as an argument, or from polyrail_sys",
        &uses(&source::all(), &["Instant::now", "SystemTime::now", "UNIX_EPOCH.elapsed"], |s| {
            ["sys", "bench", "cli"].contains(&s.package.as_str())
        }),
    );
}

// The instrument times a cache line that goes to and fro between two threads: that needs one of its own.
#[test]
fn raw_atomics_stay_in_shm_and_sys_and_the_instrument() {
    let words = ["std::sync::atomic", "core::sync::atomic"];
    report(
        "use a flag, counter or ring of the crate shm, or its `sync`, which loom can replace",
        &uses(&source::all(), &words, |s| ["sys", "shm", "bench"].contains(&s.package.as_str())),
    );
}

#[test]
fn unsafe_code_is_forbidden_where_it_is_not_needed() {
    let mut findings = Vec::new();
    for source in source::all() {
        let is_root = source.path.ends_with("src/lib.rs") || source.path.ends_with("src/main.rs");
        let is_bound = !["sys", "shm"].contains(&source.package.as_str());
        if is_root && is_bound && !source.text.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{}:1: #![forbid(unsafe_code)] is missing", source.path));
        }
    }
    report("only sys and shm may hold unsafe code", &findings);
}

#[test]
fn nothing_unfinished_is_checked_in() {
    // Put together here, so that this file does not find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let macros = ["dbg!", "todo!", "unimplemented!"];
    let mut findings = Vec::new();
    for source in source::all() {
        for (number, (raw, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
            let unfinished = words.iter().find(|word| source::has_word(raw, word));
            if let Some(word) = unfinished.or_else(|| macros.iter().find(|word| source::has_word(code, word)))
            {
                findings.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    report("finish it, or file it as an issue", &findings);
}

#[test]
fn an_ignored_test_says_why() {
    let mut findings = Vec::new();
    for source in source::all() {
        for (number, line) in source.code.lines().enumerate() {
            if line.replace(' ', "").contains("#[ignore]") {
                findings.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    report("write #[ignore = \"reason\"]", &findings);
}

#[test]
fn functions_and_files_fit_a_screen_and_a_sitting() {
    report(
        "shorten it; the list crates/cli/tests/tidy/long_functions.txt may only shrink",
        &length::function_findings(&source::all()),
    );
    report(
        "a file has at most 1,000 lines: split it by what its parts are for",
        &length::file_findings(&source::all()),
    );
}
