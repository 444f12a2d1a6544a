//! Whose turn it is at a bearer: sessions that have something to send share it by bytes, as if each had the same part of it
//! all the time (start-time fair queueing).
//!
//! Turns by trains would not do: a link that delivers more has larger trains, and so would deliver more still. And a train
//! that finds no room costs nothing, or those whose trains meet a full bearer each time would never send.

/// The bytes that each session had at one bearer.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Where each session goes on, by slot.
    goes_on_at: Vec<u64>,
    /// Where the one went on that sent last: who comes later has missed what was before.
    now: u64,
}

/// A session that could have a turn; the least one has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Turn {
    at: u64,
    /// Its slot.
    pub slot: usize,
}

impl Turns {
    fn of(&self, slot: usize) -> Turn {
        let at = self.goes_on_at.get(slot).copied().unwrap_or(0).max(self.now);
        Turn { at, slot }
    }

    /// The first of these slots, of those behind `after`, which had nothing to send after all.
    pub(super) fn first(&self, slots: impl Iterator<Item = usize>, after: Option<Turn>) -> Option<Turn> {
        slots.map(|slot| self.of(slot)).filter(|turn| Some(*turn) > after).min()
    }

    /// The session in `slot` has sent so many bytes.
    pub(super) fn charge(&mut self, slot: usize, bytes: u64) {
        let turn = self.of(slot);
        self.now = turn.at;
        if self.goes_on_at.len() <= slot {
            self.goes_on_at.resize(slot + 1, 0);
        }
        self.goes_on_at[slot] = turn.at + bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets those of `slots` send whose turn it is, a slot's bytes at a time; how often each did.
    fn send(turns: &mut Turns, slots: &[(usize, u64)], times: usize) -> Vec<usize> {
        let mut sent = vec![0; slots.len()];
        for _ in 0..times {
            let turn = turns.first(slots.iter().map(|(slot, _)| *slot), None).unwrap();
            let which = slots.iter().position(|(slot, _)| *slot == turn.slot).unwrap();
            turns.charge(turn.slot, slots[which].1);
            sent[which] += 1;
        }
        sent
    }

    #[test]
    fn sessions_share_by_bytes_and_not_by_trains() {
        let mut turns = Turns::default();
        assert_eq!(send(&mut turns, &[(0, 1_000), (1, 4_000), (2, 2_000)], 700), [400, 100, 200]);
    }

    #[test]
    fn who_had_nothing_to_send_makes_up_for_nothing() {
        let mut turns = Turns::default();
        send(&mut turns, &[(0, 1_000), (1, 1_000)], 1_000);
        assert_eq!(send(&mut turns, &[(0, 1_000), (1, 1_000), (5, 1_000)], 300), [100, 100, 100]);
    }

    #[test]
    fn who_finds_no_room_is_first_and_who_has_nothing_is_passed_over() {
        let mut turns = Turns::default();
        turns.charge(0, 1_000);
        let first = turns.first([0, 1, 2].into_iter(), None).unwrap();
        assert_eq!((first.slot, turns.first([0, 1, 2].into_iter(), None)), (1, Some(first)));
        let second = turns.first([0, 1, 2].into_iter(), Some(first)).unwrap();
        let third = turns.first([0, 1, 2].into_iter(), Some(second)).unwrap();
        assert_eq!((second.slot, third.slot), (2, 0));
        assert_eq!(turns.first([0, 1, 2].into_iter(), Some(third)), None);
    }
}
