//! A page of metrics in Prometheus' text format (version 0.0.4): families with what they mean, and their samples.

use std::fmt::Write;

/// What a metric is to whoever computes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// It only grows, or begins anew.
    Counter,
    /// It is what it is now.
    Gauge,
}

/// A metric of things that have a row `T` each.
pub(super) struct Metric<T> {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    /// Nothing where it is not known: a sample that is not there is better than one that is made up.
    pub value: fn(&T) -> Option<f64>,
}

impl<T> Metric<T> {
    pub const fn counter(name: &'static str, help: &'static str, value: fn(&T) -> Option<f64>) -> Metric<T> {
        Metric { name, kind: Kind::Counter, help, value }
    }

    pub const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> Option<f64>) -> Metric<T> {
        Metric { name, kind: Kind::Gauge, help, value }
    }
}

/// Labels as they stand between the braces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Labels(String);

impl Labels {
    /// Of names, which are ours, and values, which may be anybody's.
    pub fn new(pairs: &[(&str, &str)]) -> Labels {
        Labels(String::new()).and(pairs)
    }

    /// These and more.
    pub fn and(&self, pairs: &[(&str, &str)]) -> Labels {
        let mut text = self.0.clone();
        for (name, value) in pairs {
            if !text.is_empty() {
                text.push(',');
            }
            let _ = write!(text, "{name}=\"{}\"", escaped(value));
        }
        Labels(text)
    }
}

/// A label's value between quotes: what would end it, or its line, is written otherwise.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // Allowed there, but whoever prints the page has a terminal.
            c if c.is_control() => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// The page as it grows.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// All families of a table, with a sample for each row. A family without samples is there all the same, so that the
    /// page tells which there are.
    pub fn add<T>(&mut self, metrics: &[Metric<T>], rows: &[(Labels, T)]) {
        for metric in metrics {
            let samples =
                rows.iter().filter_map(|(labels, row)| Some((labels.clone(), (metric.value)(row)?)));
            self.family(metric.name, metric.kind, metric.help, samples);
        }
    }

    /// One family.
    pub fn family(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl Iterator<Item = (Labels, f64)>,
    ) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (Labels(labels), value) in samples {
            let _ = match labels.is_empty() {
                true => writeln!(self.0, "{name} {value}"),
                false => writeln!(self.0, "{name}{{{labels}}} {value}"),
            };
        }
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_ends_neither_its_quotes_nor_its_line() {
        let labels = Labels::new(&[("peer", "a\"b\\c\nd"), ("link", "0\u{1b}")]);
        assert_eq!(labels.0, r#"peer="a\"b\\c\nd",link="0�""#);
        assert_eq!(labels.and(&[("bearer", "udp/l0")]).0, format!("{},bearer=\"udp/l0\"", labels.0));
    }

    #[test]
    fn a_family_is_what_it_means_its_kind_and_its_samples() {
        const METRICS: [Metric<u32>; 2] = [
            Metric::counter("x_total", "All.", |row| Some(f64::from(*row))),
            Metric::gauge("y_seconds", "Now.", |row| (*row > 1).then_some(0.000_061_2)),
        ];
        let mut page = Page::default();
        page.add(&METRICS, &[(Labels::new(&[]), 1), (Labels::new(&[("a", "b")]), 7)]);
        let text = "# HELP x_total All.\n# TYPE x_total counter\nx_total 1\nx_total{a=\"b\"} 7\n\
                    # HELP y_seconds Now.\n# TYPE y_seconds gauge\ny_seconds{a=\"b\"} 0.0000612\n";
        assert_eq!(page.into_text(), text);
    }

    #[test]
    fn large_counters_are_written_in_full() {
        let mut page = Page::default();
        let sample = (Labels::new(&[]), (1u64 << 53) as f64);
        page.family("x_total", Kind::Counter, "All.", std::iter::once(sample));
        assert!(page.into_text().ends_with("x_total 9007199254740992\n"));
    }
}
