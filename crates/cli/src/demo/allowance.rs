//! How far the sender may get ahead of the script: what keeps every switch in mid-transfer, however small the file.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Spacing of the messages past the allowance: the links still carry something when the next switch is thrown.
const TRICKLE_SPACING: Duration = Duration::from_millis(50);

/// Bytes that may be sent at full speed. Past them one message leaves per [`TRICKLE_SPACING`], and the transfer does
/// not end before it is allowed in full.
pub struct Allowance {
    bytes: u64,
    raises: Receiver<u64>,
}

impl Allowance {
    /// In full.
    pub const ALL: u64 = u64::MAX;

    /// Of `bytes`, until something arrives by `raises`.
    pub fn new(bytes: u64, raises: Receiver<u64>) -> Self {
        Allowance { bytes, raises }
    }

    /// Returns when the next message may leave, `sent_bytes` having been sent.
    pub fn wait_for_turn(&mut self, sent_bytes: u64) {
        while sent_bytes >= self.bytes && self.bytes != Self::ALL {
            match self.raises.recv_timeout(TRICKLE_SPACING) {
                Ok(bytes) => self.bytes = bytes,
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.bytes = Self::ALL,
            }
        }
    }

    /// Returns when the transfer may end.
    pub fn wait_for_end(&mut self) {
        while self.bytes != Self::ALL {
            self.bytes = self.raises.recv().unwrap_or(Self::ALL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_end_waits_for_the_full_allowance() {
        let (raise, raises) = channel();
        let mut allowance = Allowance::new(10, raises);
        allowance.wait_for_turn(0);
        allowance.wait_for_turn(10);
        raise.send(20).unwrap();
        raise.send(Allowance::ALL).unwrap();
        allowance.wait_for_turn(10);
        assert_eq!(allowance.bytes, 20);
        allowance.wait_for_end();
        assert_eq!(allowance.bytes, Allowance::ALL);
    }

    #[test]
    fn nobody_waits_for_an_orchestrator_that_is_gone() {
        let mut allowance = Allowance::new(0, channel().1);
        allowance.wait_for_turn(5);
        allowance.wait_for_end();
    }
}
