//! Plan files, good and bad.

use super::*;

const GOOD: &str = r#"title = "t"

[[measure]]
workload = "stream"
protocol = ["tcp-cubic", "polyrail"]
size = [64, "1K"]
rate = 1_000

[[finding]]
name = "f"
says = "s"
figure = "throughput"
of = [{ protocol = "polyrail" }]
by = [{ protocol = "tcp-cubic" }]
each.size = [64, 1_024]
above = 1.0
"#;

fn parse(text: &str) -> Result<PlanFile, String> {
    PlanFile::read("x.toml", text.to_owned())
}

/// The error for a plan in which a line was put in place of another.
fn refused(line: &str, instead: &str) -> String {
    assert!(GOOD.contains(line), "{line}");
    parse(&GOOD.replace(line, instead)).expect_err(instead)
}

#[test]
fn options_are_those_of_the_command_line() {
    let plan = parse(GOOD).unwrap();
    let plans = plan.plans().unwrap();
    assert_eq!((plans.len(), plans[0].points.len(), plans[0].repeat), (1, 2, REPEAT_DEFAULT));
    assert_eq!(plans[0].environments[0].rates, [Some(1_000)]);
    assert_eq!(plans[0].protocols, ["tcp-cubic", "polyrail"]);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (line, instead, place, says) in [
        ("workload = \"stream\"", "workload = \"steam\"", "x.toml:4:", "steam"),
        ("rate = 1_000", "rat = 1_000", "x.toml:7:", "`rat`"),
        ("rate = 1_000", "socket_buffer_max = 4096", "x.toml:7:", "write `socket-buffer-max`"),
        ("rate = 1_000", "repeat = 3", "x.toml:7:", "top of the file"),
        ("rate = 1_000", "links = \"many\"", "x.toml:7:", "many"),
        ("rate = 1_000", "rate = \"fast\"", "x.toml:7:", "fast"),
        ("rate = 1_000", "pairs = 2", "x.toml:7:", "changes nothing in stream"),
        ("rate = 1_000", "placement = \"intra\"\nrate = 1_000", "x.toml:7:", "no links to shape"),
        ("rate = 1_000", "rate = { a = 1 }", "x.toml:7:", "neither a word"),
        ("\"polyrail\"]", "\"polyrial\"]", "x.toml:5:", "polyrial"),
        ("title = \"t\"", "title = \"t\"\nrepeat = 0", "x.toml:2:", "not within 1"),
        ("title = \"t\"", "tilte = \"t\"", "x.toml:1:", "tilte"),
        ("title = \"t\"", "title = \"t", "x.toml:1:", ""),
        ("above = 1.0", "abvoe = 1.0", "x.toml:", "abvoe"),
        ("above = 1.0", "above = 1.0\nbelow = 2.0", "x.toml:9:", "one of `above`"),
        ("above = 1.0", "", "x.toml:9:", "one of `above`"),
        ("figure = \"throughput\"", "", "x.toml:9:", "`figure`"),
        ("each.size = [64, 1_024]", "each.size = [64, 65]", "x.toml:9:", "measures nothing with"),
        ("each.size = [64, 1_024]", "", "x.toml:9:", "2 of the plan's rows"),
        ("each.size = [64, 1_024]", "each.seize = [64]", "x.toml:9:", "`seize` is no condition"),
        (
            "each.size = [64, 1_024]",
            "each.size = [64, 1_024]\npublished = [1.0]",
            "x.toml:9:",
            "1 numbers for 2",
        ),
        ("each.size = [64, 1_024]", "each.size = [64, 1_024]\npublished = \"x\"", "x.toml:", ""),
    ] {
        let said = refused(line, instead);
        assert!(
            said.starts_with(place) && said.contains(says) && said.lines().count() == 1,
            "{instead}: {said}"
        );
    }
    let twice = format!(
        "{GOOD}\n[[measure]]\nworkload = \"stream\"\nprotocol = \"polyrail\"\nsize = 64\nrate = 1_000\n"
    );
    assert!(parse(&twice).unwrap_err().contains("same rows"));
    assert!(parse("title = \"t\"\n").unwrap_err().contains("[[measure]]"));
    let nowhere = PlanFile::load("/no/such/plan").unwrap_err();
    assert!(nowhere.contains("/no/such/plan") && nowhere.contains("s1-buffers"), "{nowhere}");
}

#[test]
fn every_plan_of_the_program_can_be_measured_and_each_finding_is_about_its_rows() {
    for name in shipped::names() {
        let plan = PlanFile::load(name).expect(name);
        assert!(plan.plans().expect(name).len() == plan.measurements.len(), "{name}");
    }
}

#[test]
fn a_command_line_changes_what_the_plan_says_and_nothing_else() {
    let asked = Overrides {
        protocol: &["udp".to_owned()],
        rate: Some("500:250"),
        repeat: Some(2),
        ..Overrides::default()
    };
    let plan = parse(GOOD).unwrap().with(&asked).unwrap();
    let plans = plan.plans().unwrap();
    assert_eq!((&plans[0].protocols[..], plans[0].repeat), (&["udp".to_owned()][..], 2));
    assert_eq!(plans[0].environments[0].rates, [Some(500)], "one link");
    let sizes = Overrides { size: &["4K".to_owned()], ..Overrides::default() };
    let plan = parse(GOOD).unwrap().with(&sizes).unwrap();
    assert_eq!(plan.plans().unwrap()[0].points[0].size, 4_096);
}
