//! The queueing disciplines of interfaces: what shapes, and how much finds room.

use std::io;

use super::list::dump;
use super::netlink::{attributes, u32_at, u64_at};

/// Fixed part of a message about queueing disciplines: family, interface, handle, parent, info.
const QDISC_BYTES: usize = 20;
/// What `parent` is of the outermost one.
const ROOT: u32 = 0xffff_ffff;
/// Names of attributes, from `linux/rtnetlink.h` and `linux/pkt_sched.h`.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_FQ_CODEL_LIMIT: u16 = 2;
/// A token bucket's depth is told as time, in units of 64 ns.
const TICK_NS: u64 = 64;

/// One queueing discipline of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qdisc {
    /// Number of the interface.
    pub interface_index: u32,
    /// Below what it stands: none for the outermost one, else major and minor number.
    pub parent: Option<(u16, u16)>,
    /// What it does.
    pub kind: QdiscKind,
    /// Packets that it has dropped.
    pub drops: u32,
    /// Bytes that have left it, headers of all packets that a large segment will become among them.
    pub passed_bytes: u64,
    /// Bytes that wait in it.
    pub waiting_bytes: u32,
}

/// What a queueing discipline does, of those that are looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QdiscKind {
    /// `tbf`: a token bucket.
    TokenBucket {
        /// Rate, in bytes per second.
        rate_bytes_per_s: u64,
        /// Depth of the bucket, in bytes, as near as the kernel tells it.
        burst_bytes: u64,
        /// Bytes that find room.
        limit_bytes: u32,
    },
    /// `pfifo` or `fq_codel`: a queue of so many packets.
    Packets {
        /// Its name.
        name: String,
        /// Packets that find room.
        limit_packets: u32,
    },
    /// `bfifo`: a queue of so many bytes.
    Bytes {
        /// Bytes that find room.
        limit_bytes: u32,
    },
    /// Another, by name.
    Other(String),
}

/// All queueing disciplines of the calling thread's network name space.
pub fn qdiscs() -> io::Result<Vec<Qdisc>> {
    let mut found = Vec::new();
    dump(libc::RTM_GETQDISC, QDISC_BYTES, |message| {
        if message.kind == libc::RTM_NEWQDISC {
            found.extend(qdisc(message.body));
        }
    })?;
    Ok(found)
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let (interface_index, parent) = (u32_at(body, 4)?, u32_at(body, 12)?);
    let (mut name, mut options, mut statistics) = (String::new(), &[][..], &[][..]);
    for (kind, value) in attributes(body.get(QDISC_BYTES..)?) {
        match kind {
            TCA_KIND => {
                let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
                name = String::from_utf8_lossy(&value[..end]).into_owned();
            }
            TCA_OPTIONS => options = value,
            TCA_STATS2 => statistics = value,
            _ => {}
        }
    }
    let parent = (parent != ROOT).then_some(((parent >> 16) as u16, parent as u16));
    let kind = kind_of(&name, options).unwrap_or(QdiscKind::Other(name));
    // Of the queue's counters the second number is bytes that wait, the third packets dropped.
    let (waiting_bytes, drops) = (queue_counter(statistics, 4), queue_counter(statistics, 8));
    let passed_bytes = passed_bytes(statistics).unwrap_or(0);
    Some(Qdisc { interface_index, parent, kind, drops, passed_bytes, waiting_bytes })
}

fn queue_counter(value: &[u8], at: usize) -> u32 {
    let queue = attributes(value).find(|(kind, _)| *kind == TCA_STATS_QUEUE);
    queue.and_then(|(_, queue)| u32_at(queue, at)).unwrap_or(0)
}

/// Bytes passed, the first number of the basic counters.
fn passed_bytes(value: &[u8]) -> Option<u64> {
    attributes(value).find(|(kind, _)| *kind == TCA_STATS_BASIC).and_then(|(_, basic)| u64_at(basic, 0))
}

fn kind_of(name: &str, options: &[u8]) -> Option<QdiscKind> {
    match name {
        "tbf" => token_bucket(options),
        "pfifo" => Some(QdiscKind::Packets { name: name.to_owned(), limit_packets: u32_at(options, 0)? }),
        "bfifo" => Some(QdiscKind::Bytes { limit_bytes: u32_at(options, 0)? }),
        "fq_codel" => {
            let (_, limit) = attributes(options).find(|(kind, _)| *kind == TCA_FQ_CODEL_LIMIT)?;
            Some(QdiscKind::Packets { name: name.to_owned(), limit_packets: u32_at(limit, 0)? })
        }
        _ => None,
    }
}

/// Rate (12 bytes, the rate itself last), peak rate (12 bytes), limit, depth as time.
fn token_bucket(options: &[u8]) -> Option<QdiscKind> {
    let (mut parameters, mut rate64) = (None, None);
    for (kind, value) in attributes(options) {
        match kind {
            TCA_TBF_PARMS => parameters = Some(value),
            TCA_TBF_RATE64 => rate64 = u64_at(value, 0),
            _ => {}
        }
    }
    let parameters = parameters?;
    let rate_bytes_per_s = rate64.unwrap_or(u64::from(u32_at(parameters, 8)?));
    let depth_ns = u64::from(u32_at(parameters, 28)?) * TICK_NS;
    let burst_bytes = u128::from(rate_bytes_per_s) * u128::from(depth_ns) / 1_000_000_000;
    let burst_bytes = u64::try_from(burst_bytes).unwrap_or(u64::MAX);
    Some(QdiscKind::TokenBucket { rate_bytes_per_s, burst_bytes, limit_bytes: u32_at(parameters, 24)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::netlink::{messages, request};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        request(0, &[], &[(kind, value)])[16..].to_vec()
    }

    /// A message as the kernel makes it.
    fn message(name: &str, parent: u32, options: &[u8]) -> Option<Qdisc> {
        let mut fixed = [0; QDISC_BYTES];
        fixed[4] = 3;
        fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
        let queue = [2, 2_500, 9].map(u32::to_ne_bytes).concat();
        let mut statistics = attribute(TCA_STATS_BASIC, &70_000u64.to_ne_bytes());
        statistics.extend(attribute(TCA_STATS_QUEUE, &queue));
        let bytes = request(
            libc::RTM_NEWQDISC,
            &fixed,
            &[(TCA_KIND, format!("{name}\0").as_bytes()), (TCA_OPTIONS, options), (TCA_STATS2, &statistics)],
        );
        messages(&bytes).next().and_then(|message| qdisc(message.body))
    }

    #[test]
    fn a_token_bucket_is_read_with_its_depth_in_bytes() {
        let mut parameters = [0u8; 36];
        parameters[8..12].copy_from_slice(&125_000_000u32.to_ne_bytes());
        parameters[24..28].copy_from_slice(&200_000u32.to_ne_bytes());
        // 64 KiB at 125 MB/s last 524,288 ns.
        parameters[28..32].copy_from_slice(&8_192u32.to_ne_bytes());
        let found = message("tbf", ROOT, &attribute(TCA_TBF_PARMS, &parameters)).unwrap();
        let bucket = |rate_bytes_per_s, burst_bytes| QdiscKind::TokenBucket {
            rate_bytes_per_s,
            burst_bytes,
            limit_bytes: 200_000,
        };
        assert_eq!((found.interface_index, found.parent, found.drops), (3, None, 9));
        assert_eq!((found.passed_bytes, found.waiting_bytes), (70_000, 2_500));
        assert_eq!(found.kind, bucket(125_000_000, 65_536));
        let mut options = attribute(TCA_TBF_RATE64, &10_000_000_000u64.to_ne_bytes());
        options.extend(attribute(TCA_TBF_PARMS, &parameters));
        assert_eq!(message("tbf", ROOT, &options).unwrap().kind, bucket(10_000_000_000, 5_242_880));
    }

    #[test]
    fn queues_are_read_with_their_limit_and_others_by_name() {
        let limit = 100u32.to_ne_bytes();
        let packets = |name: &str| QdiscKind::Packets { name: name.into(), limit_packets: 100 };
        assert_eq!(message("pfifo", 0x0001_0002, &limit).unwrap().parent, Some((1, 2)));
        assert_eq!(message("pfifo", ROOT, &limit).unwrap().kind, packets("pfifo"));
        let options = attribute(TCA_FQ_CODEL_LIMIT, &limit);
        assert_eq!(message("fq_codel", ROOT, &options).unwrap().kind, packets("fq_codel"));
        assert_eq!(message("bfifo", ROOT, &limit).unwrap().kind, QdiscKind::Bytes { limit_bytes: 100 });
        assert_eq!(message("noqueue", ROOT, &[]).unwrap().kind, QdiscKind::Other("noqueue".into()));
    }

    #[test]
    fn what_is_cut_short_is_a_name_or_nothing() {
        assert_eq!(message("tbf", ROOT, &[1, 2]).unwrap().kind, QdiscKind::Other("tbf".into()));
        assert_eq!(message("pfifo", ROOT, &[]).unwrap().kind, QdiscKind::Other("pfifo".into()));
        assert_eq!(qdisc(&[0; 12]), None);
    }

    #[test]
    fn the_machine_tells_its_own() {
        assert!(qdiscs().is_ok());
    }
}
