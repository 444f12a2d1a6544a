//! Queues in which a train does not find room.

use super::finding::{Finding, Severity};
use super::picture::Picture;
use polyrail::machine::{Interface, Qdisc, QdiscKind};

/// A train with its headers, in bytes: what one call hands to an interface.
const TRAIN_BYTES: u64 = 65_536;
/// Packets of a train.
const TRAIN_PACKETS: u32 = 64;
/// What is good: two of them, so that one can wait while one leaves.
const GOOD_BYTES: u64 = 2 * TRAIN_BYTES;
const GOOD_PACKETS: u32 = 1_000;
/// The kernel tells a bucket's depth as time, which rounds it by so much at the most: a part in so many.
const ROUNDED: u64 = 256;

/// Token buckets that are more shallow than a train, queues that are shorter.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let used = picture.used();
    used.iter()
        .flat_map(|interface| interface.qdiscs.iter().filter_map(|one| of_queue(interface, one)))
        .collect()
}

fn of_queue(interface: &Interface, queue: &Qdisc) -> Option<Finding> {
    let (seen, why, rest) = match &queue.kind {
        QdiscKind::TokenBucket { rate_bytes_per_s, burst_bytes, limit_bytes } => {
            token_bucket(*rate_bytes_per_s, *burst_bytes, *limit_bytes)?
        }
        QdiscKind::Packets { name, limit_packets } if *limit_packets < TRAIN_PACKETS => {
            let seen =
                format!("{name} has room for {limit_packets} packets, a train has up to {TRAIN_PACKETS}");
            let why = "the rest of each train is dropped and has to be sent again";
            (seen, why, format!("{name} limit {GOOD_PACKETS}"))
        }
        QdiscKind::Bytes { limit_bytes } if u64::from(*limit_bytes) < TRAIN_BYTES => {
            let seen = format!("bfifo has room for {limit_bytes} bytes, a train has up to {TRAIN_BYTES}");
            let why = "trains are dropped whole and have to be sent again";
            (seen, why, format!("bfifo limit {GOOD_BYTES}"))
        }
        _ => return None,
    };
    let place = match queue.parent {
        None => "root".to_owned(),
        Some((major, minor)) => format!("parent {major:x}:{minor:x}"),
    };
    let dropped = if queue.drops > 0 { format!("; {} packets dropped", queue.drops) } else { String::new() };
    let about = format!("interface {}", interface.name);
    let finding = Finding::new(Severity::Warning, "shallow-queue", about, format!("{seen}{dropped}"), why);
    Some(finding.mend(format!("tc qdisc replace dev {} {place} {rest}", interface.name)))
}

/// What was seen of a bucket, why it matters, and how it should be; none if it is deep enough.
fn token_bucket(
    rate_bytes_per_s: u64,
    burst_bytes: u64,
    limit_bytes: u32,
) -> Option<(String, &'static str, String)> {
    let shallow = burst_bytes.saturating_add(burst_bytes / ROUNDED) < TRAIN_BYTES;
    let short = u64::from(limit_bytes) < TRAIN_BYTES;
    let (seen, why) = match (shallow, short) {
        (true, _) => (
            format!("the token bucket holds {burst_bytes} bytes, a train has up to {TRAIN_BYTES}"),
            "the processor cuts each train apart at the bucket, which costs ten times as much",
        ),
        (false, true) => (
            format!(
                "the token bucket's queue has room for {limit_bytes} bytes, a train has up to {TRAIN_BYTES}"
            ),
            "trains are dropped whole and have to be sent again",
        ),
        (false, false) => return None,
    };
    let rate_bits = rate_bytes_per_s.saturating_mul(8);
    let limit = u64::from(limit_bytes).max(GOOD_BYTES);
    Some((seen, why, format!("tbf rate {rate_bits}bit burst {GOOD_BYTES} limit {limit}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn with(kind: QdiscKind, parent: Option<(u16, u16)>, drops: u32) -> Vec<Finding> {
        let mut picture = planted::sound();
        picture.machine.interfaces[1].qdiscs =
            vec![Qdisc { interface_index: 3, parent, kind, drops, passed_bytes: 0, waiting_bytes: 0 }];
        check(&picture)
    }

    fn bucket(burst_bytes: u64, limit_bytes: u32) -> QdiscKind {
        QdiscKind::TokenBucket { rate_bytes_per_s: 125_000_000, burst_bytes, limit_bytes }
    }

    #[test]
    fn a_bucket_that_a_train_does_not_fit_is_found_with_a_deeper_one() {
        let found = with(bucket(16_384, 200_000), None, 7);
        assert!(found[0].seen.ends_with("65536; 7 packets dropped"), "{found:?}");
        let mend = "tc qdisc replace dev eth1 root tbf rate 1000000000bit burst 131072 limit 200000";
        assert_eq!(found[0].mend, [mend]);
        assert!(with(bucket(131_072, 30_000), None, 0)[0].seen.contains("room for 30000 bytes"));
        assert_eq!(with(bucket(131_072, 200_000), None, 0), []);
        assert_eq!(with(bucket(65_500, 200_000), None, 0), [], "rounded by the system");
    }

    #[test]
    fn a_queue_shorter_than_a_train_is_found_where_it_stands() {
        let packets = |limit_packets| QdiscKind::Packets { name: "fq_codel".into(), limit_packets };
        let found = with(packets(10), Some((0x8001, 2)), 0);
        assert_eq!(found[0].mend, ["tc qdisc replace dev eth1 parent 8001:2 fq_codel limit 1000"]);
        assert_eq!(with(packets(10_240), None, 9), []);
        assert_eq!(with(QdiscKind::Bytes { limit_bytes: 3_000 }, None, 0).len(), 1);
        assert_eq!(with(QdiscKind::Bytes { limit_bytes: 100_000 }, None, 0), []);
        assert_eq!(with(QdiscKind::Other("noqueue".into()), None, 9), []);
    }
}
