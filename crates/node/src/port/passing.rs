//! Buffers that are passed past the engine, instead of being copied.

use super::Port;
use crate::error::SendError;
use polyrail_proto::node::{Destination, Manner};
use polyrail_shm::{Buffer, DIRECT_BYTES_MAX};

/// Up to so many bytes a copy costs no more.
pub(super) const COPIED_MAX: u64 = 2_048;

/// What came of a buffer that was to be passed.
pub(super) enum Passed {
    /// It was; the message's number.
    Number(u64),
    /// It goes another way.
    Not(Buffer),
}

impl Port {
    /// Whether bytes that are to be sent are better copied to a buffer that is passed: a ring has no room for so many.
    pub(super) fn is_better_passed(&self, to: Destination, how: &Manner, len: u64) -> bool {
        // A child of the process says nothing by its parent's socket.
        len > DIRECT_BYTES_MAX && self.tie.is_some() && !self.shared.host.is_forked() && {
            self.prepare_way(to, how.class);
            self.may_pass(to, how, len)
        }
    }

    fn may_pass(&self, to: Destination, how: &Manner, len: u64) -> bool {
        len <= self.shared.config.message_bytes_max as u64 && self.client.borrow().may_pass(to, how)
    }

    /// Passes a buffer to who receives it, if that is a port to which there is a way for that; waits until that one has given others
    /// back if it must.
    pub(super) fn pass(
        &self,
        to: Destination,
        how: &Manner,
        buffer: Buffer,
        until_ns: Option<u64>,
    ) -> Result<Passed, SendError> {
        let len = buffer.len() as u64;
        if len <= COPIED_MAX || matches!(to, Destination::Connection(_) | Destination::Multicast(_)) {
            return Ok(Passed::Not(buffer));
        }
        self.check_send(to)?;
        self.prepare_way(to, how.class);
        // Those that go by the engine's arena ask behind that.
        if len > self.client.borrow().arena_message_max() && !self.may_pass(to, how, len) {
            self.seek_ring(to, how.class, len, until_ns);
        }
        if !self.may_pass(to, how, len) {
            return Ok(Passed::Not(buffer));
        }
        let mut slot = Some(self.own(buffer)?);
        let mut number = None;
        let mut attempt = |port: &Port| {
            let Some(buffer) = slot.take() else { return true };
            match port.client.borrow_mut().pass(to, how, buffer) {
                Ok(passed) => number = Some(passed),
                Err(back) => slot = Some(back),
            }
            number.is_some() || !port.may_pass(to, how, len)
        };
        // While one waits for a number, a copy is there.
        if !attempt(self) && len > DIRECT_BYTES_MAX {
            self.wait_past(until_ns, attempt);
        }
        match (number, slot) {
            (Some(number), _) => Ok(Passed::Number(number)),
            (None, Some(buffer)) if len <= DIRECT_BYTES_MAX || !self.may_pass(to, how, len) => {
                Ok(Passed::Not(buffer))
            }
            (None, _) => Err(self.not_taken(true)),
        }
    }

    /// A buffer that another process can map: of another node of this process, a copy.
    pub(super) fn own(&self, buffer: Buffer) -> Result<Buffer, SendError> {
        if buffer.file().is_some() {
            return Ok(buffer);
        }
        let mut own = self.alloc(buffer.len())?;
        own.copy_from_slice(&buffer);
        Ok(own)
    }
}
