//! What must hold of the numbers in the headers of a session: no packet number of a link is used twice (I9), and a link's
//! number is never another link's (I10).
//!
//! Sessions are told apart by the answers that open them: who answers has the session from then on, who asked as soon as
//! that answer is there. Two sessions may have the same index, if the asker gave the first of them up before it began.

use crate::network::peek;
use crate::network::unit::Station;
use crate::queue::TimeNs;
use std::collections::BTreeMap;

/// How long who asked may go on in an earlier session of that index after the answer has left.
const ANSWER_NS: TimeNs = 50_000_000;

/// One way of a session: the sender's node, the receiver's, and the receiver's index.
type Way = (usize, usize, u32);

/// A number that a sender used for something else before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reused {
    /// When the second use left.
    pub at_ns: TimeNs,
    /// Who sent it.
    pub from: Station,
    /// The header of the second use.
    pub peek: peek::Peek,
}

/// What was seen of one way of a session.
#[derive(Debug, Default)]
struct Session {
    /// The attempt that opened it, if its answer was seen.
    attempt: Option<u32>,
    /// The sender's index of it, for the way back.
    back: Option<u32>,
    /// Packets of an earlier session with that index may still leave.
    unsure_until_ns: TimeNs,
    links: BTreeMap<u16, Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// From where to where it goes.
    ends: (Station, Station),
    number: u64,
}

/// All sessions of a run.
#[derive(Debug, Default)]
pub struct Streams {
    /// The first packet number used twice, if any.
    pub number: Option<Reused>,
    /// The first link number used twice, if any.
    pub link: Option<Reused>,
    /// Links of sessions, each way counted.
    pub links: u64,
    ways: BTreeMap<Way, Session>,
}

impl Streams {
    /// A node started a new life: its sessions and those towards it are over.
    pub fn on_restart(&mut self, node: usize) {
        self.ways.retain(|way, _| way.0 != node && way.1 != node);
    }

    /// A node answers who wants to open a session: from `nodes.0`, which answers, to `nodes.1`.
    pub(super) fn on_answer(&mut self, now_ns: TimeNs, nodes: (usize, usize), to: u32, answer: peek::Answer) {
        let peek::Answer { session, attempt } = answer;
        self.begin((nodes.0, nodes.1, to), attempt, session, 0);
        self.begin((nodes.1, nodes.0, session), attempt, to, now_ns + ANSWER_NS);
    }

    fn begin(&mut self, way: Way, attempt: u32, back: u32, unsure_until_ns: TimeNs) {
        let session = self.ways.entry(way).or_default();
        if session.attempt != Some(attempt) || session.back != Some(back) {
            let (attempt, back) = (Some(attempt), Some(back));
            *session = Session { attempt, back, unsure_until_ns, links: BTreeMap::new() };
        }
    }

    /// A packet of a session leaves.
    pub(super) fn on_packet(
        &mut self,
        now_ns: TimeNs,
        nodes: (usize, usize),
        ends: (Station, Station),
        peek: peek::Peek,
    ) {
        let way = (nodes.0, nodes.1, peek.session);
        let session = self.ways.entry(way).or_default();
        if now_ns < session.unsure_until_ns {
            return;
        }
        let back = session.back;
        let reused = Reused { at_ns: now_ns, from: ends.0, peek };
        match session.links.get_mut(&peek.link) {
            None => {
                session.links.insert(peek.link, Link { ends, number: peek.number });
                self.links += 1;
                let there = back.and_then(|back| self.ways.get(&(nodes.1, nodes.0, back)));
                let there = there.and_then(|session| session.links.get(&peek.link));
                if there.is_some_and(|link| link.ends != (ends.1, ends.0)) {
                    self.link.get_or_insert(reused);
                }
            }
            Some(link) => {
                if link.ends != ends {
                    self.link.get_or_insert(reused);
                } else if peek.number <= link.number {
                    self.number.get_or_insert(reused);
                }
                link.number = peek.number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stations of node 0 have even numbers, those of node 1 odd ones.
    fn send(
        streams: &mut Streams,
        now_ns: TimeNs,
        ends: (Station, Station),
        session: u32,
        link: u16,
        number: u64,
    ) {
        let peek = peek::Peek { kind: peek::TYPE_DATA, flags: 0, link, session, number };
        streams.on_packet(now_ns, (ends.0 % 2, ends.1 % 2), ends, peek);
    }

    fn answer(streams: &mut Streams, now_ns: TimeNs, to: u32, session: u32, attempt: u32) {
        streams.on_answer(now_ns, (1, 0), to, peek::Answer { session, attempt });
    }

    #[test]
    fn a_number_counts_once_in_its_link_and_session() {
        let mut streams = Streams::default();
        for (link, number) in [(0, 5), (1, 5), (0, 6), (1, 7)] {
            send(&mut streams, 1, (0, 1), 9, link, number);
        }
        send(&mut streams, 1, (0, 1), 8, 0, 5);
        send(&mut streams, 1, (1, 0), 9, 0, 5);
        assert_eq!((streams.number, streams.links), (None, 4));
        send(&mut streams, 2, (0, 1), 9, 1, 7);
        assert_eq!(streams.number.map(|reused| (reused.at_ns, reused.peek.link)), Some((2, 1)));
    }

    #[test]
    fn a_link_number_stays_with_its_two_ends() {
        let mut streams = Streams::default();
        send(&mut streams, 1, (0, 1), 9, 0, 0);
        send(&mut streams, 1, (2, 3), 9, 1, 0);
        send(&mut streams, 2, (0, 1), 9, 0, 1);
        assert_eq!(streams.link, None);
        send(&mut streams, 3, (2, 3), 9, 0, 2);
        assert_eq!(streams.link.map(|reused| reused.from), Some(2));
        assert_eq!(streams.number, None, "it went on where the other link was");
    }

    #[test]
    fn both_ends_mean_the_same_link_by_a_number() {
        let mut streams = Streams::default();
        answer(&mut streams, 0, 9, 4, 1);
        send(&mut streams, 1, (1, 0), 9, 0, 0);
        send(&mut streams, 2, (3, 2), 9, 1, 0);
        send(&mut streams, ANSWER_NS, (0, 1), 4, 0, 0);
        assert_eq!(streams.link, None);
        send(&mut streams, ANSWER_NS, (0, 1), 4, 1, 1);
        assert!(streams.link.is_some());
    }

    #[test]
    fn another_attempt_is_another_session_and_a_repeated_answer_is_not() {
        let mut streams = Streams::default();
        answer(&mut streams, 0, 9, 4, 1);
        send(&mut streams, 1, (1, 0), 9, 0, 7);
        answer(&mut streams, 2, 9, 4, 2);
        send(&mut streams, 3, (3, 2), 9, 0, 0);
        // Who asked may not have heard of it yet.
        send(&mut streams, 3, (0, 1), 4, 0, 8);
        send(&mut streams, 2 + ANSWER_NS, (2, 3), 4, 0, 0);
        assert_eq!((streams.number, streams.link), (None, None));
        answer(&mut streams, 4, 9, 4, 2);
        send(&mut streams, 5, (3, 2), 9, 0, 0);
        assert!(streams.number.is_some());
        streams.on_restart(0);
        assert!(streams.ways.is_empty());
    }
}
