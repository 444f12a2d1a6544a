//! Buffers that are passed past the engine, instead of being copied.

use super::Port;
use crate::error::SendError;
use polyrail_proto::flow::Class;
use polyrail_proto::node::{Destination, Manner};
use polyrail_shm::{Buffer, DIRECT_BYTES_MAX, SharedBuffer, ToPass};

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
        let mut slot = Some(ToPass::Own(buffer));
        let number = self.pass_one(to, how, &mut slot, until_ns)?;
        Ok(match (number, slot) {
            (None, Some(ToPass::Own(buffer))) => Passed::Not(buffer),
            (number, _) => Passed::Number(number.unwrap_or_default()),
        })
    }

    /// The same for what lies in the slot, where it stays if it is not passed; the message's number if it is.
    fn pass_one(
        &self,
        to: Destination,
        how: &Manner,
        slot: &mut Option<ToPass>,
        until_ns: Option<u64>,
    ) -> Result<Option<u64>, SendError> {
        let len = slot.as_deref().map_or(0, <[u8]>::len) as u64;
        if len <= COPIED_MAX || matches!(to, Destination::Connection(_) | Destination::Multicast(_)) {
            return Ok(None);
        }
        self.check_send(to)?;
        self.prepare_way(to, how.class);
        // Those that go by the engine's arena ask behind that.
        if len > self.client.borrow().arena_message_max() && !self.may_pass(to, how, len) {
            self.seek_ring(to, how.class, len, until_ns);
        }
        if !self.may_pass(to, how, len) {
            return Ok(None);
        }
        // One that others have too may be in the hands of this receiver already: another copy waits for less.
        let waits = len > DIRECT_BYTES_MAX && matches!(slot, Some(ToPass::Own(_)));
        *slot = match slot.take() {
            Some(ToPass::Own(buffer)) => Some(self.own(buffer)?.into()),
            shared => shared,
        };
        let mut number = None;
        let mut attempt = |port: &Port| {
            let Some(buffer) = slot.take() else { return true };
            match port.client.borrow_mut().pass(to, how, buffer) {
                Ok(passed) => number = Some(passed),
                Err(back) => *slot = Some(back),
            }
            number.is_some() || !port.may_pass(to, how, len)
        };
        // While one waits for a number, a copy is there.
        if !attempt(self) && waits {
            self.wait_past(until_ns, attempt);
        }
        let is_copied = !waits || !self.may_pass(to, how, len);
        if number.is_some() || is_copied { Ok(number) } else { Err(self.not_taken(true)) }
    }

    /// Sends a buffer of [`Port::alloc`] to each of several ports or services, as [`Port::send_buffer`] would to each alone; what came of each, in
    /// the same order. Programs of the same user that are attached to the same node all read this one buffer where it lies, if it is longer
    /// than 2 KiB, and it is free when the last of them has dropped its message; for all others it is copied. Who has no room holds up
    /// those that stand behind it.
    #[must_use = "each of them may have failed"]
    pub fn send_buffer_to_each(&self, to: &[Destination], buffer: Buffer) -> Vec<Result<(), SendError>> {
        let owned = if self.tie.is_some() { self.own(buffer) } else { Ok(buffer) };
        let shared = match owned {
            Ok(own) => SharedBuffer::from(own),
            Err(error) => return vec![Err(error); to.len()],
        };
        to.iter().map(|to| self.send_shared(*to, shared.clone())).collect()
    }

    fn send_shared(&self, to: Destination, shared: SharedBuffer) -> Result<(), SendError> {
        let how = (Class::Normal, None).into();
        let mut slot = Some(shared.into());
        let passed = if self.tie.is_some() { self.pass_one(to, &how, &mut slot, None)? } else { None };
        match (passed, slot) {
            (None, Some(kept)) => self.submit_bytes(to, how, &kept, None).map(drop),
            _ => Ok(()),
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
