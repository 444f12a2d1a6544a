//! A moment on both clocks, so that what the engine timed can be told by the calendar.

use crate::clock::now_ns;
use polyrail_proto::time::Instant;

/// Now, on the engine's clock and by the calendar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub now: Instant,
    pub unix_ns: u64,
}

impl Moment {
    /// Reads both clocks.
    pub(crate) fn read() -> Moment {
        Moment { now: Instant(now_ns()), unix_ns: polyrail_sys::clock::unix_ns() }
    }

    /// How long ago `at` was, seconds, to the millisecond.
    pub(crate) fn ago_s(&self, at: Instant) -> f64 {
        (self.now.since(at).0 as f64 / 1e6).round() / 1e3
    }

    /// `at` by the calendar, nanoseconds since 1970; also a moment that is still to come.
    pub(crate) fn unix_of(&self, at: Instant) -> u64 {
        (self.unix_ns + at.since(self.now).0).saturating_sub(self.now.since(at).0)
    }

    /// `at` by the calendar, UTC: `2026-03-01T12:30:00.250Z`.
    pub(crate) fn date(&self, at: Instant) -> String {
        date(self.unix_of(at))
    }
}

/// A time since 1970 as text.
fn date(unix_ns: u64) -> String {
    let (seconds, ms) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1_000);
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a number of days since 1970. The year is counted from March, so that the day that comes and
/// goes is its last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), text);
        }
        assert_eq!(date(1_999_999_999), "1970-01-01T00:00:01.999Z");
    }

    #[test]
    fn what_was_timed_is_told_by_the_calendar() {
        let moment = Moment { now: Instant(5_000_000_000), unix_ns: 86_400_000_000_000 };
        let at = Instant(3_500_000_000);
        assert_eq!(moment.unix_of(Instant(5_000_000_001)), 86_400_000_000_001);
        assert_eq!((moment.date(at).as_str(), moment.ago_s(at)), ("1970-01-01T23:59:58.500Z", 1.5));
    }
}
