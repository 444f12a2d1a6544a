//! What the instrument measures for the demo: one link and two, beside what the kernel can do.

use clap::{Args, Command, FromArgMatches};
use polyrail_bench::{BenchArgs, measure as bench};
use serde_json::Value;

/// Throughput of long streams, medians in Mbit/s; `None` where it could not be measured.
#[derive(Default)]
pub struct Figures {
    /// Polyrail on one link.
    pub one_link_mbps: Option<f64>,
    /// Polyrail on both.
    pub two_links_mbps: Option<f64>,
    /// TCP on one link.
    pub tcp_mbps: Option<f64>,
    /// MPTCP on both.
    pub mptcp_mbps: Option<f64>,
    /// Why something is missing.
    pub remarks: Vec<String>,
}

/// Measures streams over one link and over two of `link_mbit`, each `repeat` times, interleaved.
pub fn measure(link_mbit: u32, repeat: u32) -> Figures {
    let mut figures = Figures::default();
    let one = stream(1, "polyrail,tcp-cubic", link_mbit, repeat);
    let two = stream(2, "polyrail,mptcp", link_mbit, repeat);
    figures.one_link_mbps = median(&one, "polyrail");
    figures.tcp_mbps = median(&one, "tcp-cubic");
    figures.two_links_mbps = median(&two, "polyrail");
    figures.mptcp_mbps = median(&two, "mptcp");
    for report in [one, two] {
        figures.remarks.extend(remarks(&report));
    }
    figures.remarks.dedup();
    figures
}

fn stream(links: u32, protocols: &str, link_mbit: u32, repeat: u32) -> Value {
    let words = format!(
        "bench stream --protocol {protocols} --links {links} --rate {link_mbit} --size 1048576 --wait adaptive \
         --duration 1.0 --repeat {repeat}"
    );
    let parser = BenchArgs::augment_args(Command::new("bench"));
    let matches =
        parser.try_get_matches_from(words.split_whitespace()).expect("the instrument takes these words");
    let arguments = BenchArgs::from_arg_matches(&matches).expect("the instrument takes these words");
    serde_json::from_str(&bench(&arguments).json()).expect("a report is JSON")
}

fn median(report: &Value, protocol: &str) -> Option<f64> {
    let rows = report["results"].as_array()?;
    rows.iter().find(|row| row["protocol"] == protocol)?["throughput_mbps"]["median"].as_f64()
}

fn remarks(report: &Value) -> Vec<String> {
    let unavailable = report["unavailable"].as_array().into_iter().flatten();
    let unavailable = unavailable.map(|entry| {
        format!("{}: {}", entry["protocol"].as_str().unwrap_or("?"), entry["reason"].as_str().unwrap_or("?"))
    });
    let errors = report["results"].as_array().into_iter().flatten().flat_map(|row| {
        let errors = row["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let protocol = row["protocol"].as_str().unwrap_or("?");
        errors.map(move |error| format!("{protocol}: {error}")).collect::<Vec<_>>()
    });
    unavailable.chain(errors).chain(report["error"].as_str().map(str::to_string)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_is_the_median_of_its_protocol_and_what_is_missing_is_explained() {
        let report = json!({
            "results": [{ "protocol": "polyrail", "throughput_mbps": { "median": 941.5 }, "errors": ["stalled"] }],
            "unavailable": [{ "protocol": "mptcp", "reason": "switched off" }],
        });
        assert_eq!(median(&report, "polyrail"), Some(941.5));
        assert_eq!(median(&report, "mptcp"), None);
        assert_eq!(remarks(&report), ["mptcp: switched off", "polyrail: stalled"]);
    }
}
