//! Messages that come back to their senders with the reason, and the ways of sending that lead to it.

use crate::engine::client::{Returned as Kept, ReturnedBody};
use crate::error::{ErrorCode, SendError};
use crate::port::{Port, deadline};
use polyrail_proto::flow::Class;
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::time::Instant;
use polyrail_shm::Buffer;
use std::time::Duration;

/// How to send: see [`Port::send_as`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions {
    /// Class of the message; normal if not set.
    pub class: Class,
    /// A tag that travels with it.
    pub tag: Option<u64>,
    /// The message comes back with the reason if it is not delivered: [`Port::take_returned`].
    pub returns: bool,
    /// If nothing of the message has left within this time, it is given up ([`ErrorCode::Expired`]). What has begun to leave
    /// is delivered, however late; so is a message of more than 64 KiB once it was announced.
    pub deadline: Option<Duration>,
}

/// A message that was not delivered, or may not have been, and is its sender's again. Its memory is the port's; dropping
/// it makes room to send.
pub struct Returned<'a> {
    port: &'a Port,
    /// Taken out only by drop.
    kept: Option<Kept>,
    bytes: &'a [u8],
}

impl Port {
    /// Sends a copy of `bytes` to a port or a service; the count of messages sent before it. Waits for memory if need be,
    /// until the deadline if it has one.
    ///
    /// With `returns`, `Ok` is all that the call says of it: if it fails, be it at once, it comes back, and is told by nothing
    /// else. It holds memory of the port's sending arena until its receiver's program has taken it from its port, or until it
    /// came back and was dropped: who takes nothing back can in the end send no more. (A node of an older version does not
    /// tell what was read: for such a receiver it ends when it has arrived.)
    ///
    /// # Errors
    /// As [`Port::send`]; and what goes to several or on a connection neither comes back nor expires.
    pub fn send_as(
        &self,
        to: impl Into<Destination>,
        bytes: &[u8],
        how: &SendOptions,
    ) -> Result<u64, SendError> {
        let to = to.into();
        let (how, until_ns) = how.checked(to)?;
        self.submit_bytes(to, how, bytes, until_ns)
    }

    /// The same for a buffer of [`Port::alloc`]. One that comes back holds memory of the node's pool.
    ///
    /// # Errors
    /// As [`Port::send_as`].
    pub fn send_buffer_as(
        &self,
        to: impl Into<Destination>,
        buffer: Buffer,
        how: &SendOptions,
    ) -> Result<u64, SendError> {
        let to = to.into();
        let (how, until_ns) = how.checked(to)?;
        self.submit_buffer(to, how, buffer, until_ns)
    }

    /// The next message that came back, in the order in which they did. Looks at what has arrived and drives nothing.
    pub fn take_returned(&self) -> Option<Returned<'_>> {
        self.take_returns();
        self.sort_arrivals();
        let kept = self.returned.borrow_mut().pop_front()?;
        let bytes = match kept.body {
            ReturnedBody::Arena(offset) => self.tx.bytes(offset, kept.len as usize).unwrap_or(&[]),
            ReturnedBody::Owned(_) => &[],
        };
        Some(Returned { port: self, kept: Some(kept), bytes })
    }

    /// The same, waiting for it; `None` after `timeout`.
    pub fn wait_returned(&self, timeout: Option<Duration>) -> Option<Returned<'_>> {
        if !self.shared.host.is_forked() {
            self.wait_until(timeout, |port| {
                port.sort_arrivals();
                !port.returned.borrow().is_empty()
            });
        }
        self.take_returned()
    }
}

impl SendOptions {
    /// As the engine takes it, and until when the caller waits for memory.
    fn checked(&self, to: Destination) -> Result<(Manner, Option<u64>), SendError> {
        let SendOptions { class, tag, returns, deadline: within } = *self;
        let alone = matches!(to, Destination::Port(_) | Destination::Service(_));
        if !alone && (returns || within.is_some()) {
            return Err(SendError::Unsupported(to));
        }
        let until_ns = deadline(within);
        let expires_at = until_ns.map(Instant);
        Ok((Manner { class, tag, returns, expires_at }, until_ns))
    }
}

impl Returned<'_> {
    fn kept(&self) -> &Kept {
        self.kept.as_ref().expect("it is here until it is dropped")
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.kept().body {
            ReturnedBody::Arena(_) => self.bytes,
            ReturnedBody::Owned(buffer) => buffer,
        }
    }

    /// Why it is here. After [`ErrorCode::Indeterminate`] it may have been delivered all the same; after all others it was
    /// not, and is not going to be.
    pub fn why(&self) -> ErrorCode {
        self.kept().why.into()
    }

    /// The count of messages sent before it, which sending it gave.
    pub fn number(&self) -> u64 {
        self.kept().number
    }

    /// Where it was to go.
    pub fn to(&self) -> Destination {
        self.kept().to
    }

    /// Its tag.
    pub fn tag(&self) -> Option<u64> {
        self.kept().tag
    }

    /// Its class.
    pub fn class(&self) -> Class {
        self.kept().class
    }
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.port.drop_returned(kept);
        }
    }
}

impl std::fmt::Debug for Returned<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Returned")
            .field("number", &self.number())
            .field("to", &self.to())
            .field("why", &self.why())
            .field("len", &self.bytes().len())
            .finish()
    }
}
