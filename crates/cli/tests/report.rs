//! The page that `polyrail bench report` writes, looked at as a person meets it: in a real browser, light and dark, wide and on a
//! phone; and what it does with documents that are wrong or mean harm.

#![forbid(unsafe_code)]

#[path = "report/browser.rs"]
mod browser;
#[path = "report/documents.rs"]
mod documents;
#[path = "report/readme.rs"]
mod readme;

use std::path::PathBuf;
use std::process::{Command, Output};

use browser::{Browser, Picture, Screen};
use documents::{MARKUP, host, hostile, nonsense, planned, usual};
use serde_json::{Value, json};

/// A folder that vanishes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyrail-report-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path)
    }

    fn write(&self, name: &str, document: &Value) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, document.to_string()).expect("a temporary file can be written");
        path.to_str().expect("the path is UTF-8").to_owned()
    }

    /// The page of a document.
    fn page(&self, document: &Value) -> String {
        let (file, page) = (self.write("document.json", document), self.0.join("page.html"));
        let page = page.to_str().expect("the path is UTF-8").to_owned();
        let output = report(&[&file, "--output", &page]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        page
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn report(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.args(["bench", "report"]).args(arguments).output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

const SCREENS: [Screen; 4] = [
    Screen { width: 1_280, is_dark: false },
    Screen { width: 1_280, is_dark: true },
    Screen { width: 390, is_dark: false },
    Screen { width: 390, is_dark: true },
];

/// What is wrong on the page as it lies on a screen, and how much was looked at.
const LOOK: &str = include_str!("report/look.js");

/// Looks at a page on every screen; `pictures_min` so that a page without pictures is not taken for a good one.
fn look(browser: &mut Browser, page: &str, pictures_min: u64) {
    for screen in SCREENS {
        browser.open(page, screen);
        let seen: Value = serde_json::from_str(&browser.ask(LOOK)).expect("the look gives JSON");
        let faults = seen["faults"].as_array().expect("a list of faults");
        assert!(faults.is_empty(), "{screen:?}: {faults:#?}");
        let [pictures, texts, shapes] =
            ["pictures", "texts", "shapes"].map(|name| seen[name].as_u64().unwrap_or(0));
        assert!(pictures >= pictures_min, "{screen:?}: {seen}");
        assert!(texts >= 5 * pictures && shapes >= 8 * pictures, "{screen:?}: {seen}");
        assert_eq!(
            browser.requests(),
            [format!("file://{page}")],
            "{screen:?}: the page asks for something else"
        );
    }
}

#[test]
fn a_page_fits_wide_screens_and_phones_in_light_and_dark_and_asks_for_nothing() {
    let folder = Folder::new("fits");
    let page = folder.page(&usual());
    look(&mut Browser::start(), &page, 14);
}

#[test]
fn what_was_published_stands_first_with_its_verdicts() {
    let folder = Folder::new("published");
    let page = folder.page(&planned());
    let mut browser = Browser::start();
    look(&mut browser, &page, 15);
    let text = browser.ask("document.body.innerText");
    let places = [
        "Two questions: 1 hold, 1 do not hold, 2 are not seen here",
        "3.10 holds",
        "0.70 does not hold",
        "1.000 not decided",
        "size 512: not seen here, 1.000 (95 %: 0.900 to 1.20, 6 rounds), the interval reaches over 1",
        "Has to be above 1. Ring: published. a paper",
        "what second says",
        "not seen here, published 1.25, this kernel has no TIPC",
        "Findings",
        "Its cores are emulated",
    ]
    .map(|words| text.find(words).unwrap_or_else(|| panic!("{words} is missing: {text}")));
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn figures_that_make_no_sense_stay_within_their_pictures() {
    let folder = Folder::new("nonsense");
    let page = folder.page(&nonsense());
    look(&mut Browser::start(), &page, 2);
}

#[test]
fn markup_of_a_document_shows_as_text_and_does_nothing() {
    let folder = Folder::new("hostile");
    let page = folder.page(&hostile());
    let mut browser = Browser::start();
    look(&mut browser, &page, 2);
    let found = browser.ask(
        "String(document.querySelectorAll('script, img, iframe, a, object, link, base, [onerror]').length)",
    );
    assert_eq!(found, "0");
    let text = browser.ask("document.body.innerText");
    assert!(text.matches(MARKUP).count() >= 3, "name, note and error show as they stand: {text}");
    assert!(browser.ask("document.title").starts_with("Polyrail measurements"));
}

/// How many points of a picture have about this colour.
fn points_of(picture: &Picture, colour: [u8; 3]) -> usize {
    let near = |point: &&[u8]| point.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 6);
    picture.points().filter(near).count()
}

fn colour(browser: &mut Browser, name: &str) -> [u8; 3] {
    let hex =
        browser.ask(&format!("getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"));
    [1, 3, 5].map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour of six digits"))
}

#[test]
fn paper_and_protocols_have_their_colours_on_the_screen_in_light_and_in_dark() {
    let folder = Folder::new("colours");
    let page = folder.page(&usual());
    let mut browser = Browser::start();
    let mut papers = Vec::new();
    for screen in SCREENS {
        browser.open(&page, screen);
        let picture = browser.picture();
        let paper = colour(&mut browser, "--paper");
        assert!(
            points_of(&picture, paper) * 10 > picture.points().count(),
            "{screen:?}: the paper is to be seen"
        );
        for name in ["--c0", "--c1", "--c2"] {
            let wanted = colour(&mut browser, name);
            assert!(points_of(&picture, wanted) > 200, "{screen:?}: {name} {wanted:?}");
        }
        papers.push(paper);
    }
    assert!(
        papers[0].iter().all(|part| *part > 200) && papers[1].iter().all(|part| *part < 60),
        "{papers:?}"
    );
}

#[test]
fn documents_of_two_machines_are_shown_apart_and_it_is_said() {
    let folder = Folder::new("machines");
    let mut other = usual();
    other["host"] = json!({ "kernel": "Linux 9.9" });
    host().as_object().expect("an object").iter().for_each(|(name, value)| {
        if name != "kernel" {
            other["host"][name] = value.clone();
        }
    });
    let (a, b) = (folder.write("a.json", &usual()), folder.write("b.json", &other));
    let output = report(&[&a, &b, "--output", "-"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    assert!(page.contains("Machine 1: ") && page.contains("Machine 2: Linux 9.9"));
    assert!(page.contains("The documents are of 2 machines or builds"));
}

#[test]
fn what_was_measured_over_is_told_on_the_page_each_thing_once() {
    let folder = Folder::new("testbed");
    let (a, b) = (folder.write("a.json", &usual()), folder.write("b.json", &usual()));
    let output = report(&[&a, &b, "--output", "-"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        page.contains("class=\"link0 ") && page.contains("class=\"link1 "),
        "what left over each link is drawn"
    );
    for line in [
        "l0, l1: qdisc tbf rate 1Gbit burst 128Kb lat 5ms; on: gso; off: tso<",
        "l1: delayed by 2 ms each way by a relay: 64 bytes take 4.250 ms there and back, and it carries 700.0 Mbit/s: less than",
        "the two machines&#39; clocks were compared around each of 1 samples: their difference is known within 42.00 us, and changed \
         by 1.500 us",
    ] {
        assert_eq!(
            page.matches(line).count(),
            1,
            "{line}: {}",
            &page[page.find("What was measured over").unwrap_or(0)..]
        );
    }
}

#[test]
fn a_protocol_that_one_document_lacks_is_named_and_nothing_is_compared_across_documents() {
    let folder = Folder::new("lacking");
    let mut other = usual();
    other["results"].as_array_mut().expect("rows").retain(|row| row["protocol"] != "tcp-cubic");
    let (a, b) = (folder.write("a.json", &usual()), folder.write("b.json", &other));
    let output = report(&[&a, &b, "--output", "-"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.contains("b.json has no tcp-cubic") && !page.contains("a.json has no"), "{page}");
    assert!(page.contains("measured at different times"));
}

#[test]
fn what_is_no_document_is_refused_with_what_to_do() {
    let folder = Folder::new("refused");
    let good = folder.write("good.json", &usual());
    let empty = json!({ "schema": "polyrail-bench/1", "host": host(), "results": [], "ratios": [], "error": "interrupted" });
    let cases = [
        (json!({ "schema": "polyrail-bench/2" }), "newer program"),
        (json!({ "schema": "polyrail-compare/1" }), "not polyrail-bench/1"),
        (json!([1, 2]), "names no schema"),
        (json!({ "schema": "polyrail-bench/1", "results": 7 }), "is no report of bench"),
    ];
    for (document, wanted) in cases {
        let bad = folder.write("bad.json", &document);
        let output = report(&[&good, &bad]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(said(&output).contains(wanted) && said(&output).contains("bad.json"), "{}", said(&output));
    }
    let none = folder.write("none.json", &empty);
    let output = report(&[&none, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("interrupted") && said(&output).contains("measure again"),
        "{}",
        said(&output)
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert!(told["error"].as_str().is_some_and(|error| error.contains("no results")), "{told}");
    // Beside one that has something, it is told of.
    let output = report(&[&none, &good, "--output", "-"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("none.json: it has no results"));
}

#[test]
fn a_document_is_never_written_over_and_a_place_that_cannot_be_written_to_is_told() {
    let folder = Folder::new("output");
    let file = folder.write("a.json", &usual());
    let output = report(&[&file, "--output", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("is one of the documents"), "{}", said(&output));
    let output = report(&[&file, "--output", "/nowhere/report.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("/nowhere/report.html") && said(&output).contains("--output"),
        "{}",
        said(&output)
    );
}

#[test]
fn findings_are_told_to_programs_too_with_how_sure_each_is() {
    let folder = Folder::new("json");
    let file = folder.write("a.json", &usual());
    let page = folder.0.join("page.html");
    let output = report(&[&file, "--json", "--output", page.to_str().expect("UTF-8")]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(told["schema"], "polyrail-report/1");
    let findings = told["findings"].as_array().expect("findings");
    let has = |words: &[&str], certainty: &str| {
        findings.iter().any(|finding| {
            let text = finding["text"].as_str().unwrap_or_default();
            words.iter().all(|word| text.contains(word)) && finding["certainty"] == certainty
        })
    };
    assert!(
        has(&["There and back", "polyrail is fastest", "2.00 times tcp-nodelay"], "certain to 95 %"),
        "{findings:#?}"
    );
    assert!(has(&["No difference is shown between", "mptcp"], "no difference shown"), "{findings:#?}");
    assert!(has(&["While links are cut", "4 cuts of carrier", "late"], "as counted"), "{findings:#?}");
    assert!(has(&["16 clients", "polyrail-attached 0.9"], "as counted"), "{findings:#?}");
}

#[test]
fn a_document_made_brief_gives_the_same_table() {
    let folder = Folder::new("brief");
    let (file, brief) = (folder.write("a.json", &usual()), folder.0.join("brief.json"));
    let brief = brief.to_str().expect("UTF-8");
    assert_eq!(report(&[&file, "--brief", brief]).status.code(), Some(0));
    let length = |path: &str| std::fs::metadata(path).expect("a file").len();
    assert!(length(brief) < length(&file));
    let [whole, brief] = [file.as_str(), brief].map(|path| report(&[path, "--markdown"]).stdout);
    assert!(!whole.is_empty() && whole == brief);
}

/// The program as an ordinary user, in a namespace whose `max` says how many more may be made; none where that cannot be had here.
fn as_user(max: u32, arguments: &[&str]) -> Option<Output> {
    let script = "echo \"$1\" > /proc/sys/user/max_user_namespaces && shift && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "-U",
        "--map-user=1000",
        "--map-group=1000",
        "--keep-caps",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_polyrail"),
    ]);
    command.arg(max.to_string()).args(arguments).env_remove("POLYRAIL_UNSHARED");
    let output = command.output().ok()?;
    let is_refused =
        said(&output).contains("unshare failed") || said(&output).contains("max_user_namespaces");
    (!is_refused).then_some(output)
}

fn skipped(name: &str) {
    use std::io::Write;
    let _ =
        writeln!(std::io::stderr(), "SKIPPED {name}: this machine lets nobody make a user namespace here");
}

#[test]
fn quick_says_what_it_leaves_out_and_why() {
    let folder = Folder::new("quick");
    let page = folder.0.join("page.html");
    let page = page.to_str().expect("UTF-8");
    // So short that nothing is measured, and no namespaces besides.
    let Some(output) = as_user(0, &["bench", "quick", "--limit", "10", "--output", page, "--json"]) else {
        return skipped("quick_says_what_it_leaves_out_and_why");
    };
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let notes: Vec<&str> =
        told["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    let count = |words: &str| notes.iter().filter(|note| note.contains(words)).count();
    assert_eq!((count("needs network namespaces"), count("--limit gives more")), (3, 2), "{notes:#?}");
    assert!(
        said(&output).contains("was left out") && said(&output).contains("page.html is written"),
        "{}",
        said(&output)
    );
    let page = std::fs::read_to_string(page).expect("the page is written");
    assert!(page.contains("needs network namespaces"));
}

#[test]
fn an_ordinary_user_measures_between_nodes_and_within_a_machine_in_one_go() {
    let asked = "bench pingpong --placement intra,inter --protocol polyrail --repeat 1 --warmup 0.05 --duration 0.1 --json";
    let Some(output) = as_user(9, &asked.split(' ').collect::<Vec<_>>()) else {
        return skipped("an_ordinary_user_measures_between_nodes_and_within_a_machine_in_one_go");
    };
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(output.status.code(), Some(0), "{told:#}");
    assert_eq!(told["results"].as_array().map(Vec::len), Some(2));
}
