//! I13: connections. Each way of each connection carries what was sent on it, once, in order, to the port at the other
//! end and to nobody else; it ends once, behind the last message; and whatever goes wrong has a cause.
//!
//! Messages of a connection are known by their place, so that even empty ones can be told apart.

use super::PortKey;
use crate::content;
use crate::queue::TimeNs;
use polyrail::engine::command::{Ended, NotConnecting};
use std::collections::{BTreeMap, BTreeSet};

/// What both sides call the session, and the connection's number in it: the asking node's seat, life and session.
pub type Identity = (usize, u32, u32, u32);

/// So many connections may wait for a port of a run: few, so that some are refused.
pub const BACKLOG: u32 = 3;

/// What an objection says.
pub type Verdict = Result<(), String>;

/// Which way messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the side that asked.
    There = 0,
    /// To the side that asked.
    Back = 1,
}

impl Way {
    /// The way on which a side sends.
    pub const fn of_sender(asks: bool) -> Way {
        if asks { Way::There } else { Way::Back }
    }

    /// The way by which a side receives.
    pub const fn of_reader(asks: bool) -> Way {
        Way::of_sender(!asks)
    }
}

#[derive(Debug, Default)]
struct Traffic {
    /// Bytes of each message handed in.
    sent: Vec<usize>,
    /// Its sender has said that this was all, or its port was closed in good order.
    finished: bool,
    delivered: usize,
    /// Its reader was told the end.
    end_told: bool,
    /// Its reader has gone, or receives no more.
    dropped: bool,
}

#[derive(Debug)]
struct Record {
    asker: PortKey,
    /// Who was asked, as the asking node says.
    acceptor: Option<PortKey>,
    class: u8,
    service: Option<(u32, u32)>,
    asked_at_ns: TimeNs,
    offered: bool,
    /// The acceptor has answered.
    answered_at_ns: Option<TimeNs>,
    refused: bool,
    over: [bool; 2],
    ways: [Traffic; 2],
}

/// All connections of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    records: Vec<Record>,
    known: BTreeMap<Identity, usize>,
    gone: BTreeSet<PortKey>,
    /// Lives that are over.
    dead: BTreeSet<(usize, u32)>,
}

/// The number that stands for a message in its contents.
pub const fn content_id(number: usize, way: Way, index: usize) -> u64 {
    1 << 60 | (number as u64) << 21 | (way as u64) << 20 | index as u64
}

impl Ledger {
    /// The number of the next connection.
    pub fn next(&self) -> usize {
        self.records.len()
    }

    /// A port asks for a connection.
    pub fn on_asked(&mut self, at_ns: TimeNs, asker: PortKey, class: u8, service: Option<(u32, u32)>) {
        self.records.push(Record {
            asker,
            acceptor: None,
            class,
            service,
            asked_at_ns: at_ns,
            offered: false,
            answered_at_ns: None,
            refused: false,
            over: [false; 2],
            ways: Default::default(),
        });
    }

    /// The asking node has named the connection.
    pub fn on_connecting(&mut self, number: usize, identity: Identity, acceptor: PortKey) -> Verdict {
        self.records[number].acceptor = Some(acceptor);
        match self.known.insert(identity, number) {
            Some(other) => Err(self.about(number, &format!("has the name of connection {other}"))),
            None => Ok(()),
        }
    }

    /// The asking node says that there will be no connection.
    pub fn on_not_connecting(&mut self, number: usize, why: NotConnecting) -> Verdict {
        self.records[number].over = [true; 2];
        match why {
            NotConnecting::NoService | NotConnecting::NoNode | NotConnecting::Blocked => Ok(()),
            _ => Err(self.about(number, &format!("can't be asked for: {why:?}"))),
        }
    }

    /// A request is offered to an application; which it is.
    pub fn on_request(
        &mut self,
        identity: Identity,
        to: PortKey,
        from: u32,
        class: u8,
        service: Option<(u32, u32)>,
    ) -> Result<usize, String> {
        let Some(&number) = self.known.get(&identity) else {
            return Err(format!("{to} is offered a connection that nobody asked for: {identity:?}"));
        };
        let record = &mut self.records[number];
        let twice = std::mem::replace(&mut record.offered, true);
        if twice {
            return Err(self.about(number, "is offered twice"));
        }
        let right = record.acceptor == Some(to) && record.asker.port == from;
        if !right || (record.class, record.service) != (class, service) {
            return Err(self.about(number, &format!("is offered to {to} as from port {from}, class {class}")));
        }
        Ok(number)
    }

    /// The acceptor has answered: yes, or no.
    pub fn on_answered(&mut self, at_ns: TimeNs, number: usize, yes: bool) {
        let record = &mut self.records[number];
        record.answered_at_ns = Some(at_ns);
        if !yes {
            record.refused = true;
            record.over[1] = true;
        }
    }

    /// A message was handed in.
    pub fn on_sent(&mut self, number: usize, way: Way, bytes: usize) {
        self.records[number].ways[way as usize].sent.push(bytes);
    }

    /// Its sender has said that this was all.
    pub fn on_finished(&mut self, number: usize, way: Way) {
        self.records[number].ways[way as usize].finished = true;
    }

    /// A side has given its end up: it sends no more and receives no more.
    pub fn on_dropped(&mut self, number: usize, asks: bool) {
        let record = &mut self.records[number];
        record.ways[Way::of_sender(asks) as usize].finished = true;
        record.ways[Way::of_reader(asks) as usize].dropped = true;
    }

    /// A message was read.
    pub fn on_message(&mut self, number: usize, way: Way, bytes: &[u8]) -> Verdict {
        let traffic = &mut self.records[number].ways[way as usize];
        let index = traffic.delivered;
        traffic.delivered += 1;
        let objection = if traffic.end_told {
            "behind the end".to_owned()
        } else if index >= traffic.sent.len() {
            "which nobody sent".to_owned()
        } else if traffic.sent[index] != bytes.len() {
            format!("of {} bytes, not {}", bytes.len(), traffic.sent[index])
        } else if let Some(at) = content::first_difference(content_id(number, way, index), bytes) {
            format!("that differs at offset {at}")
        } else {
            return Ok(());
        };
        Err(self.about(number, &format!("gets message {index} ({way:?}) {objection}")))
    }

    /// A reader is told that the other side has sent all.
    pub fn on_end(&mut self, number: usize, way: Way) -> Verdict {
        let traffic = &mut self.records[number].ways[way as usize];
        let twice = std::mem::replace(&mut traffic.end_told, true);
        let (delivered, sent) = (traffic.delivered, traffic.sent.len());
        if twice || !traffic.finished || delivered != sent {
            let text = format!("ends ({way:?}) after {delivered} of {sent} messages, again: {twice}");
            return Err(self.about(number, &text));
        }
        Ok(())
    }

    /// A sender is told that the other side receives no more.
    pub fn on_deaf(&mut self, number: usize, asks: bool) -> Verdict {
        let dropped = self.records[number].ways[Way::of_sender(asks) as usize].dropped;
        if dropped {
            Ok(())
        } else {
            Err(self.about(number, "is called deaf by a node whose application reads"))
        }
    }

    /// A side is told that the connection is over. `excused`: the nodes may hold each other for lost.
    pub fn on_over(
        &mut self,
        at_ns: TimeNs,
        number: usize,
        asks: bool,
        why: Ended,
        excused: bool,
    ) -> Verdict {
        let record = &self.records[number];
        let twice = record.over[usize::from(!asks)];
        let dead = |port: PortKey| self.dead.contains(&(port.node, port.life));
        let gone = record.acceptor.is_some_and(|port| self.gone.contains(&port) || dead(port));
        let answered = record.answered_at_ns.is_some() && !record.refused;
        let justified = match why {
            Ended::NodeLost => excused || dead(record.asker) || record.acceptor.is_some_and(dead),
            Ended::NobodyListens => asks && gone && !answered,
            Ended::NotAllowed => asks && (record.refused || gone) && !answered,
            Ended::Backlog => asks && !answered && self.waiting_with(number, at_ns) >= BACKLOG as usize,
            Ended::Aborted | Ended::SentAll | Ended::Deaf => false,
        };
        let record = &mut self.records[number];
        record.over[usize::from(!asks)] = true;
        // It waits no longer, and is no excuse for the refusal of another.
        record.answered_at_ns.get_or_insert(at_ns);
        if twice || !justified {
            return Err(self.about(number, &format!("is over ({why:?}) without cause, again: {twice}")));
        }
        Ok(())
    }

    /// How many other connections may have waited for the same port since `number` was asked for.
    fn waiting_with(&self, number: usize, at_ns: TimeNs) -> usize {
        let record = &self.records[number];
        let others = self.records.iter().enumerate().filter(|(other, entry)| {
            *other != number
                && entry.acceptor == record.acceptor
                && entry.asked_at_ns <= at_ns
                && entry.answered_at_ns.is_none_or(|answered_ns| answered_ns >= record.asked_at_ns)
        });
        others.count()
    }

    /// A port was closed in good order.
    pub fn on_port_closed(&mut self, port: PortKey) {
        self.gone.insert(port);
        for record in &mut self.records {
            for (asks, own) in [(true, Some(record.asker)), (false, record.acceptor)] {
                if own == Some(port) {
                    record.ways[Way::of_sender(asks) as usize].finished = true;
                    record.ways[Way::of_reader(asks) as usize].dropped = true;
                }
            }
        }
    }

    /// A life of a node is over, or it has said goodbye.
    pub fn on_life_over(&mut self, node: usize, life: u32) {
        self.dead.insert((node, life));
    }

    /// Class of its messages.
    pub fn class(&self, number: usize) -> u8 {
        self.records[number].class
    }

    /// The port at the other end.
    pub fn peer(&self, number: usize, asks: bool) -> Option<PortKey> {
        let record = &self.records[number];
        if asks { record.acceptor } else { Some(record.asker) }
    }

    /// A sentence about a connection.
    pub fn about(&self, number: usize, what: &str) -> String {
        let Record { asker, acceptor, class, asked_at_ns, .. } = &self.records[number];
        let to = acceptor.map_or("nobody yet".to_owned(), |port| port.to_string());
        format!(
            "connection {number} {what} (of {asker} with {to}, class {class}, asked for at {} us)",
            asked_at_ns / 1_000
        )
    }
}

#[cfg(test)]
mod tests;
