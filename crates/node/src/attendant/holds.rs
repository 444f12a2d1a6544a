//! How long an interface that keeps going waits before it gets a bearer again.
//!
//! Each bearer that is opened costs sockets, a number, and a word to every peer, so an interface that comes and goes many times
//! a second must not have one each time. One that was there for long is taken up at once.

use std::collections::BTreeMap;

/// A bearer that has lived so long was no failure.
const STEADY_NS: u64 = 10_000_000_000;
/// The first wait and the longest: each is twice the one before.
const WAIT_NS: (u64, u64) = (250_000_000, 10_000_000_000);
/// Interfaces that are remembered.
const HOLDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    /// When its bearer was opened, if that was while the node ran.
    opened_at_ns: u64,
    wait_ns: u64,
    not_before_ns: u64,
}

/// The interfaces that lost a bearer, or could not get one.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<String, Hold>);

impl Holds {
    /// Whether an interface may have a bearer now.
    pub fn may_open(&self, name: &str, now_ns: u64) -> bool {
        self.0.get(name).is_none_or(|hold| now_ns >= hold.not_before_ns)
    }

    /// It got one.
    pub fn note_opened(&mut self, name: &str, now_ns: u64) {
        self.entry(name, now_ns).opened_at_ns = now_ns;
    }

    /// It lost it.
    pub fn note_closed(&mut self, name: &str, now_ns: u64) {
        let hold = self.entry(name, now_ns);
        if now_ns.saturating_sub(hold.opened_at_ns) >= STEADY_NS {
            hold.wait_ns = 0;
            hold.not_before_ns = now_ns;
        } else {
            hold.put_off(now_ns);
        }
    }

    /// It could not be opened.
    pub fn note_refused(&mut self, name: &str, now_ns: u64) {
        self.entry(name, now_ns).put_off(now_ns);
    }

    fn entry(&mut self, name: &str, now_ns: u64) -> &mut Hold {
        if !self.0.contains_key(name) && self.0.len() >= HOLDS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, hold)| hold.not_before_ns.max(hold.opened_at_ns));
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| self.0.remove(&name));
        }
        let new = Hold { opened_at_ns: 0, wait_ns: 0, not_before_ns: now_ns };
        self.0.entry(name.to_owned()).or_insert(new)
    }
}

impl Hold {
    fn put_off(&mut self, now_ns: u64) {
        self.wait_ns = (2 * self.wait_ns).clamp(WAIT_NS.0, WAIT_NS.1);
        self.not_before_ns = now_ns + self.wait_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000_000 * MS;

    #[test]
    fn an_interface_that_was_there_for_long_is_taken_up_at_once() {
        let mut holds = Holds::default();
        assert!(holds.may_open("eth0", START));
        holds.note_closed("eth0", START);
        assert!(holds.may_open("eth0", START), "its bearer is as old as the node");
        holds.note_opened("eth0", START);
        holds.note_closed("eth0", START + STEADY_NS);
        assert!(holds.may_open("eth0", START + STEADY_NS));
    }

    #[test]
    fn one_that_flaps_gets_fewer_and_fewer_bearers() {
        let (mut holds, mut opened, mut is_open) = (Holds::default(), 0, false);
        // Ten times a second, for ten minutes.
        for half in 0..12_000 {
            let now = START + half * 50 * MS;
            if half % 2 == 0 && holds.may_open("eth0", now) {
                holds.note_opened("eth0", now);
                (opened, is_open) = (opened + 1, true);
            } else if half % 2 == 1 && std::mem::take(&mut is_open) {
                holds.note_closed("eth0", now);
            }
        }
        assert!((60..70).contains(&opened), "{opened}");
        assert!(!holds.may_open("eth0", START + 600_000 * MS), "and still waits");
        assert!(holds.may_open("eth0", START + 611_000 * MS));
    }

    #[test]
    fn few_interfaces_are_remembered() {
        let mut holds = Holds::default();
        for number in 0..1_000 {
            holds.note_refused(&format!("veth{number}"), START + number);
        }
        assert_eq!(holds.0.len(), HOLDS_MAX);
        assert!(!holds.may_open("veth999", START + 1_000));
    }
}
