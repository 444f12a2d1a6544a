//! Figures in the units that people think in: 64 B, 1 KiB, 10 µs, 1 Gbit/s.

/// What a number of the document counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Unit {
    /// 10^6 bits per second.
    Mbps,
    PerSecond,
    Us,
    Ms,
    Ns,
    Bytes,
    Mib,
    Percent,
    /// CPU seconds for 10^9 bytes.
    SecondsPerGb,
    Seconds,
    /// A number of things, or of no unit.
    Plain,
}

/// Steps of a unit: what one is worth in the unit before it, and its name.
type Steps = &'static [(f64, &'static str)];

const MBPS: Steps = &[(1e-3, "kbit/s"), (1.0, "Mbit/s"), (1e3, "Gbit/s"), (1e6, "Tbit/s")];
const PER_SECOND: Steps = &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")];
const NS: Steps = &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const BYTES: Steps = &[(1.0, "B"), (1_024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")];

impl Unit {
    /// The value with three digits and its unit.
    pub(in crate::report) fn text(self, value: f64) -> String {
        self.with(value, digits)
    }

    /// The same for an axis: without zeros that say nothing.
    pub(super) fn tick(self, value: f64) -> String {
        self.with(value, |value| trimmed(&digits(value)))
    }

    fn with(self, value: f64, number: impl Fn(f64) -> String) -> String {
        let in_steps = |steps: Steps, value: f64| {
            if value == 0.0 {
                return "0".to_owned();
            }
            // What three digits would round up belongs to the next step already: 1 Gbit/s, not 1000 Mbit/s.
            let fits = steps.iter().rev().find(|(worth, _)| value.abs() * 1.000_5 >= *worth);
            let (worth, name) = fits.copied().unwrap_or(steps[0]);
            format!("{} {name}", number(value / worth))
        };
        match self {
            Self::Mbps => in_steps(MBPS, value),
            Self::PerSecond => in_steps(PER_SECOND, value),
            Self::Ns => in_steps(NS, value),
            Self::Us => in_steps(NS, value * 1e3),
            Self::Ms => in_steps(NS, value * 1e6),
            Self::Bytes if value < 1_024.0 => format!("{value:.0} B"),
            Self::Bytes => in_steps(BYTES, value).replace(".00 ", " "),
            Self::Mib => format!("{} MiB", number(value)),
            Self::Percent => format!("{} %", number(value)),
            Self::SecondsPerGb => format!("{} s/GB", number(value)),
            Self::Seconds => format!("{} s", number(value)),
            Self::Plain => number(value),
        }
    }
}

/// Three significant digits: as many as any figure here deserves.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99_999.5 => format!("{value:.1e}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.999_5 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.001 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn trimmed(number: &str) -> String {
    match number.contains('.') && !number.contains('e') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    }
}

/// How many: a thing in the singular or the plural.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// A size of messages for people: 64 B, 1 KiB; in bytes where it is no whole number of the next unit.
pub(in crate::report) fn size(bytes: usize) -> String {
    let whole = |unit: usize| bytes >= unit && bytes.is_multiple_of(unit);
    match () {
        () if whole(1 << 30) => format!("{} GiB", bytes >> 30),
        () if whole(1 << 20) => format!("{} MiB", bytes >> 20),
        () if whole(1 << 10) => format!("{} KiB", bytes >> 10),
        () => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_the_unit_that_suits_them() {
        let said = [
            (Unit::Mbps, 0.5, "500 kbit/s"),
            (Unit::Mbps, 946.2, "946 Mbit/s"),
            (Unit::Mbps, 999.9, "1.00 Gbit/s"),
            (Unit::Mbps, 37_900.0, "37.9 Gbit/s"),
            (Unit::Us, 0.46, "460 ns"),
            (Unit::Us, 8.2, "8.20 µs"),
            (Unit::Us, 649_000.0, "649 ms"),
            (Unit::Ms, 1_500.0, "1.50 s"),
            (Unit::PerSecond, 5_290_000.0, "5.29 M/s"),
            (Unit::Percent, 0.0, "0.00 %"),
            (Unit::Mbps, 0.0, "0"),
        ];
        for (unit, value, text) in said {
            assert_eq!(unit.text(value), text);
        }
        assert_eq!(Unit::Mbps.tick(1_000.0), "1 Gbit/s");
        assert_eq!(Unit::Us.tick(10.0), "10 µs");
        assert!(Unit::Mbps.text(1e300).len() < 20 && Unit::Us.text(1e-300).len() < 20);
    }

    #[test]
    fn sizes_are_whole_numbers() {
        assert_eq!(
            [64, 1_024, 1_500, 65_536, 1 << 20].map(size),
            ["64 B", "1 KiB", "1500 B", "64 KiB", "1 MiB"]
        );
        assert_eq!((Unit::Bytes.tick(64.0), Unit::Bytes.tick(1_048_576.0)), ("64 B".into(), "1 MiB".into()));
    }
}
