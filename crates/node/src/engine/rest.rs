//! How long whoever drives may leave the sockets alone (protocol.md §5.13).

use super::Engine;
use polyrail_proto::session::Rest;
use polyrail_proto::time::Instant;

/// A rest that is shorter costs more than it saves.
const REST_NS_MIN: u64 = 200_000;

impl Engine {
    /// How long whoever drives may leave the sockets alone, nanoseconds; 0: what comes or leaves may matter at once. Bearers by
    /// which something leaves are looked at again while half of what waits in their queues is left: where nothing waits, as
    /// in front of a path that is slower than its first link, nobody rests.
    pub fn rest_ns(&mut self, now_ns: u64) -> u64 {
        let Rest { span, sends } = self.node.rest(Instant(now_ns));
        if !sends || span.0 == 0 {
            return span.0;
        }
        let used = self.bearers.iter_mut().filter(|entry| !entry.loopback && !entry.vacant);
        used.fold(span.0, |rest_ns, entry| {
            let (rate_bytes_per_s, _) = self.node.bearer_rate(entry.id);
            rest_beside(rest_ns, rate_bytes_per_s, || entry.bearer.backlog_bytes())
        })
    }
}

/// What is left of a rest beside a bearer that moves so much: half of its queue is to be left at the end.
fn rest_beside(rest_ns: u64, rate_bytes_per_s: u64, backlog_bytes: impl FnOnce() -> u32) -> u64 {
    if rest_ns == 0 || rate_bytes_per_s == 0 {
        return rest_ns;
    }
    let rest_ns = rest_ns.min(backlog_bytes() as u64 * 500_000_000 / rate_bytes_per_s);
    if rest_ns < REST_NS_MIN { 0 } else { rest_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_rests_for_half_of_what_waits_at_most_and_not_where_nothing_does() {
        for (rest_ns, rate, backlog, left_ns) in [
            (1_000_000, 125_000_000, 250_000, 1_000_000),
            (1_000_000, 125_000_000, 100_000, 400_000),
            (1_000_000, 125_000_000, 49_000, 0),
            (1_000_000, 125_000_000, 0, 0),
            (1_000_000, 0, 0, 1_000_000),
            (0, 125_000_000, 250_000, 0),
        ] {
            assert_eq!(rest_beside(rest_ns, rate, || backlog), left_ns, "{rate} {backlog}");
        }
    }
}
