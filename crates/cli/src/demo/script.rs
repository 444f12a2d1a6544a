//! What happens to the links, and when: a table.

use crate::failure::Failure;
use polyrail_bench::netns::{Direction, Testbed, device};

/// One switch of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Share of the bytes that has arrived when it is thrown, in percent.
    pub at_percent: u64,
    /// Its name in the results.
    pub name: &'static str,
    link: usize,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Carrier(bool),
    BlackHole(bool),
}

/// In order. Both faults are restored well before the end.
pub const STEPS: [Step; 4] = [
    Step { at_percent: 15, name: "carrier", link: 0, change: Change::Carrier(false) },
    Step { at_percent: 35, name: "carrier_restored", link: 0, change: Change::Carrier(true) },
    Step { at_percent: 55, name: "black_hole", link: 1, change: Change::BlackHole(true) },
    Step { at_percent: 75, name: "black_hole_restored", link: 1, change: Change::BlackHole(false) },
];

/// The node whose end of the link the switches are at: the sender's.
const NODE: usize = 0;

impl Step {
    /// Throws the switch.
    pub fn throw(&self, testbed: &mut Testbed) -> Result<(), Failure> {
        match self.change {
            Change::Carrier(up) => testbed.carrier(self.link, NODE, up)?,
            Change::BlackHole(on) => testbed.black_hole(self.link, NODE, Direction::Both, on)?,
        }
        Ok(())
    }

    /// The link that it changes.
    pub fn link(&self) -> usize {
        self.link
    }

    /// Whether the link is to be usable afterwards.
    pub fn heals(&self) -> bool {
        matches!(self.change, Change::Carrier(true) | Change::BlackHole(false))
    }

    /// What it does, for people.
    pub fn describe(&self) -> String {
        let device = device(self.link);
        match self.change {
            Change::Carrier(false) => format!("{device}: carrier cut"),
            Change::Carrier(true) => format!("{device}: carrier restored"),
            Change::BlackHole(true) => format!("{device}: every packet dropped in silence"),
            Change::BlackHole(false) => format!("{device}: packets pass again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_in_order_and_every_fault_is_restored() {
        assert!(STEPS.is_sorted_by_key(|step| step.at_percent));
        let faults = STEPS.chunks(2);
        for pair in faults {
            assert_eq!(pair[0].link, pair[1].link);
            assert_eq!(pair[1].name, format!("{}_restored", pair[0].name));
        }
        assert!(STEPS[STEPS.len() - 1].at_percent < 90);
    }
}
