//! A capture of what passes the bearers: the engine copies packets into a ring, and whoever wants them reads it.
//!
//! The engine never waits for the reader. The buffers of the ring are a fixed number, and go round: where none is left,
//! the packets are not captured, and counted.

use polyrail_bearer::Address;
use polyrail_proto::time::Instant;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Trains and groups on their way to the reader: at most 64 KiB each, so 16 MiB in all.
pub(crate) const RING_RECORDS_MAX: usize = 256;

/// Packets of one train or group.
#[derive(Debug, Default)]
pub(crate) struct Record {
    at: Instant,
    way: Option<(Address, Address)>,
    bytes: Vec<u8>,
    /// Of each packet: how many bytes of it are here, and how many it had.
    lens: Vec<(usize, usize)>,
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct Tap {
    ring: SyncSender<Record>,
    empties: Receiver<Record>,
    filter: Filter,
    missed: u64,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Only packets from and to these addresses.
    pub only: Option<Vec<Address>>,
    /// So many bytes of each packet.
    pub bytes_max: usize,
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Reader {
    ring: Receiver<Record>,
    give_back: SyncSender<Record>,
}

/// Both ends of a new ring.
pub(crate) fn ring(filter: Filter) -> (Tap, Reader) {
    let (ring, records) = sync_channel(RING_RECORDS_MAX);
    let (give_back, empties) = sync_channel(RING_RECORDS_MAX);
    for _ in 0..RING_RECORDS_MAX {
        // There is room for exactly so many.
        let _ = give_back.try_send(Record::default());
    }
    (Tap { ring, empties, filter, missed: 0 }, Reader { ring: records, give_back })
}

impl Tap {
    /// Takes in packets of `stride` bytes each, the last perhaps shorter, whose bytes are `parts`.
    pub(crate) fn take<'a>(
        &mut self,
        at: Instant,
        way: (Address, Address),
        stride: usize,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let wanted = |all: &Vec<Address>| all.contains(&way.0) || all.contains(&way.1);
        if !self.filter.only.as_ref().is_none_or(wanted) {
            return;
        }
        let Ok(mut record) = self.empties.try_recv() else {
            let bytes: usize = parts.map(<[u8]>::len).sum();
            self.missed += bytes.div_ceil(stride.max(1)) as u64;
            return;
        };
        record.fill(at, way, stride.max(1), self.filter.bytes_max, parts);
        let packets = record.lens.len() as u64;
        if self.ring.try_send(record).is_err() {
            self.missed += packets;
        }
    }

    /// Packets that were wanted and found no room.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }
}

impl Record {
    fn fill<'a>(
        &mut self,
        at: Instant,
        way: (Address, Address),
        stride: usize,
        bytes_max: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        self.bytes.clear();
        self.lens.clear();
        (self.at, self.way) = (at, Some(way));
        // Where the next byte stands in its packet. The cuts between parts have nothing to do with those between packets.
        let mut place = 0;
        for mut part in parts {
            while !part.is_empty() {
                if place == 0 {
                    self.lens.push((0, 0));
                }
                let (piece, rest) = part.split_at(part.len().min(stride - place));
                let kept = piece.len().min(bytes_max.saturating_sub(place));
                self.bytes.extend_from_slice(&piece[..kept]);
                if let Some(last) = self.lens.last_mut() {
                    *last = (last.0 + kept, last.1 + piece.len());
                }
                place = (place + piece.len()) % stride;
                part = rest;
            }
        }
    }

    /// When they passed.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Sender and receiver of all of them.
    pub(crate) fn way(&self) -> Option<(Address, Address)> {
        self.way
    }

    /// The packets: what is kept of each, and how long it was.
    pub(crate) fn packets(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let mut from = 0;
        self.lens.iter().map(move |&(kept, whole)| {
            from += kept;
            (&self.bytes[from - kept..from], whole)
        })
    }
}

impl Reader {
    /// The next packets; `None` if there are none now. Give them back afterwards.
    pub(crate) fn next(&self) -> Option<Record> {
        self.ring.try_recv().ok()
    }

    /// The buffer of packets that were read can be used again.
    pub(crate) fn give_back(&self, record: Record) {
        // The engine's end may be gone.
        let _ = self.give_back.try_send(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Address = Address::Memory(1);
    const THERE: Address = Address::Memory(2);

    fn whole() -> Filter {
        Filter { only: None, bytes_max: usize::MAX }
    }

    fn seen(record: &Record) -> Vec<(Vec<u8>, usize)> {
        record.packets().map(|(bytes, whole)| (bytes.to_vec(), whole)).collect()
    }

    fn packets(all: &[(&[u8], usize)]) -> Vec<(Vec<u8>, usize)> {
        all.iter().map(|(bytes, whole)| (bytes.to_vec(), *whole)).collect()
    }

    #[test]
    fn packets_come_out_whatever_the_parts_they_came_in() {
        for parts in [&[&b"aabbc"[..]][..], &[b"a", b"abb", b"", b"c"], &[b"aab", b"bc"]] {
            let (mut tap, reader) = ring(whole());
            tap.take(Instant(7), (HERE, THERE), 2, parts.iter().copied());
            let record = reader.next().unwrap();
            assert_eq!(seen(&record), packets(&[(b"aa", 2), (b"bb", 2), (b"c", 1)]));
            assert_eq!((record.at(), record.way()), (Instant(7), Some((HERE, THERE))));
            assert!(reader.next().is_none());
        }
    }

    #[test]
    fn of_packets_that_are_cut_the_beginnings_stay() {
        let (mut tap, reader) = ring(Filter { only: None, bytes_max: 3 });
        tap.take(Instant(0), (HERE, THERE), 5, [&b"aa"[..], b"aaabb"].into_iter());
        assert_eq!(seen(&reader.next().unwrap()), packets(&[(b"aaa", 5), (b"bb", 2)]));
    }

    #[test]
    fn only_packets_from_and_to_the_wanted_addresses_are_taken() {
        let (mut tap, reader) = ring(Filter { only: Some(vec![THERE]), bytes_max: usize::MAX });
        let other = Address::Memory(3);
        for (way, taken) in
            [((HERE, THERE), true), ((THERE, HERE), true), ((HERE, other), false), ((other, HERE), false)]
        {
            tap.take(Instant(0), way, 1, std::iter::once(&b"x"[..]));
            assert_eq!(reader.next().is_some(), taken, "{way:?}");
        }
        assert_eq!(tap.missed(), 0, "what is not wanted is not missed");
    }

    #[test]
    fn a_reader_that_does_not_read_costs_packets_and_they_are_counted() {
        let (mut tap, reader) = ring(whole());
        for _ in 0..RING_RECORDS_MAX + 3 {
            tap.take(Instant(0), (HERE, THERE), 2, std::iter::once(&b"aabbc"[..]));
        }
        assert_eq!(tap.missed(), 9);
        let first = reader.next().unwrap();
        reader.give_back(first);
        tap.take(Instant(9), (HERE, THERE), 2, std::iter::once(&b"zz"[..]));
        assert_eq!(tap.missed(), 9);
        let rest: Vec<Record> = std::iter::from_fn(|| reader.next()).collect();
        assert_eq!((rest.len(), rest.last().unwrap().at()), (RING_RECORDS_MAX, Instant(9)));
    }

    #[test]
    fn a_reader_that_is_gone_costs_nothing_but_packets() {
        let (mut tap, reader) = ring(whole());
        drop(reader);
        tap.take(Instant(0), (HERE, THERE), 2, std::iter::once(&b"aa"[..]));
        tap.take(Instant(0), (HERE, THERE), 2, std::iter::once(&b"aa"[..]));
        assert_eq!(tap.missed(), 2);
    }
}
