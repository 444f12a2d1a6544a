//! What was received once, twice, out of order or not at all.

use std::collections::BTreeMap;

/// The messages of one flow, numbered from 0 by their sender.
#[derive(Default)]
pub struct Arrivals {
    /// Runs of numbers received, first to last.
    runs: BTreeMap<u64, u64>,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later one.
    pub disordered: u64,
}

impl Arrivals {
    /// Notes that message `number` arrived; false if it had arrived before.
    pub fn note(&mut self, number: u64) -> bool {
        if let Some((&first, &last)) = self.runs.range(..=number).next_back() {
            if number <= last {
                self.duplicated += 1;
                return false;
            }
            self.disordered += u64::from(self.runs.range(number..).next().is_some());
            if number == last + 1 {
                self.runs.insert(first, number);
                self.join(first, number);
                return true;
            }
        } else {
            self.disordered += u64::from(!self.runs.is_empty());
        }
        self.runs.insert(number, number);
        self.join(number, number);
        true
    }

    /// How many of the messages `0..sent` did not arrive.
    pub fn lost(&self, sent: u64) -> u64 {
        let received: u64 =
            self.runs.range(..sent).map(|(first, last)| last.min(&(sent - 1)) - first + 1).sum();
        sent - received
    }

    fn join(&mut self, first: u64, last: u64) {
        if let Some(end) = self.runs.remove(&(last + 1)) {
            self.runs.insert(first, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(numbers: &[u64], sent: u64) -> (u64, u64, u64) {
        let mut arrivals = Arrivals::default();
        for number in numbers {
            arrivals.note(*number);
        }
        (arrivals.lost(sent), arrivals.duplicated, arrivals.disordered)
    }

    #[test]
    fn in_order_once_each_is_clean() {
        assert_eq!(counts(&[0, 1, 2, 3], 4), (0, 0, 0));
        assert_eq!(counts(&[], 0), (0, 0, 0));
    }

    #[test]
    fn losses_duplicates_and_disorder_are_told_apart() {
        assert_eq!(counts(&[0, 1, 3], 5), (2, 0, 0));
        assert_eq!(counts(&[0, 1, 1, 2, 0], 3), (0, 2, 0));
        assert_eq!(counts(&[1, 0, 3, 2], 4), (0, 0, 2));
        assert_eq!(counts(&[2, 0, 2, 4], 4), (2, 1, 1));
    }
}
