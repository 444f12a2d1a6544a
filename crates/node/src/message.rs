//! A message as its receiver holds it: borrowed from the port's arena until dropped.

use crate::engine::Client;
use crate::engine::client::slots::{DirectBody, Held, Short};
use crate::engine::client::trunks::{Part, Past};
use crate::engine::client::{Arrival, Envelope};
use crate::port::Port;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::PortAddress;
use polyrail_shm::Buffer;
use polyrail_shm::slot_ring::BODY_BYTES;

/// A received message. Its memory is the port's; dropping it lets senders send more.
pub struct Message<'a> {
    port: &'a Port,
    envelope: Envelope,
    body: MessageBody<'a>,
    /// Bytes of it that were read before: it is the rest of one.
    read: u64,
}

enum MessageBody<'a> {
    Arena {
        bytes: &'a [u8],
        offset: u64,
    },
    Owned(Buffer),
    /// It came past the engine: what is short lies here, for each way round would cost as much as all the rest.
    Short(Short),
    Direct(DirectBody),
    /// It was put back.
    Moved,
}

impl<'a> Message<'a> {
    pub(crate) fn in_arena(port: &'a Port, envelope: Envelope, bytes: &'a [u8], offset: u64) -> Self {
        Message { port, envelope, body: MessageBody::Arena { bytes, offset }, read: 0 }
    }

    pub(crate) fn owned(port: &'a Port, envelope: Envelope, buffer: Buffer) -> Self {
        Message { port, envelope, body: MessageBody::Owned(buffer), read: 0 }
    }

    /// None yet, with a place for one that comes past the engine.
    #[inline]
    pub(crate) fn place(port: &'a Port) -> Self {
        Message { port, envelope: Envelope::EMPTY, body: MessageBody::Short([0; BODY_BYTES]), read: 0 }
    }

    /// The next that has come past the engine; one that was here has been given back. Whether there is one.
    #[inline(always)]
    pub(crate) fn take_direct(&mut self, client: &mut Client) -> bool {
        if !matches!(self.body, MessageBody::Short(_)) {
            self.body = MessageBody::Short([0; BODY_BYTES]);
        }
        let MessageBody::Short(short) = &mut self.body else { return false };
        match client.take_direct(&mut self.envelope, short) {
            None => false,
            Some(None) => true,
            Some(Some(elsewhere)) => {
                self.body = MessageBody::Direct(elsewhere);
                true
            }
        }
    }

    /// One in the arena is here now, where none was.
    #[inline]
    pub(crate) fn fill_in_arena(&mut self, envelope: Envelope, bytes: &'a [u8], offset: u64) {
        (self.envelope, self.body) = (envelope, MessageBody::Arena { bytes, offset });
    }

    /// The same of one in a buffer of its own.
    pub(crate) fn fill_owned(&mut self, envelope: Envelope, buffer: Buffer) {
        (self.envelope, self.body) = (envelope, MessageBody::Owned(buffer));
    }

    /// One that came by a connection past the engine.
    pub(crate) fn past(port: &'a Port, envelope: Envelope, body: DirectBody) -> Self {
        Message { port, envelope, body: MessageBody::Direct(body), read: 0 }
    }

    /// What is left of it behind the first `read` bytes, if they are not all.
    pub(crate) fn behind(mut self, read: u64) -> Option<Self> {
        self.read = read.min(self.envelope.len);
        (read == 0 || !self.is_empty()).then_some(self)
    }

    /// What it was before somebody took it, and how many bytes of it were read before that.
    pub(crate) fn into_arrival(mut self) -> (Arrival, u64) {
        let arrival = match std::mem::replace(&mut self.body, MessageBody::Moved) {
            MessageBody::Arena { offset, .. } => Arrival::Message(self.envelope, offset),
            MessageBody::Owned(buffer) => Arrival::Owned(self.envelope, buffer),
            MessageBody::Direct(body) => {
                Arrival::Past(Past { part: Part::Whole, len: self.envelope.len as usize, body })
            }
            // What came by no connection is never put back.
            MessageBody::Short(_) | MessageBody::Moved => Arrival::Sorted,
        };
        (arrival, self.read)
    }

    /// Its bytes; those that are left, of one of which a part was read as bytes of a stream.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let whole = match &self.body {
            MessageBody::Arena { bytes, .. } => bytes,
            MessageBody::Owned(buffer) => &buffer[..self.envelope.len as usize],
            // Of these none is read in part.
            MessageBody::Short(bytes) => return &bytes[..self.envelope.len as usize],
            MessageBody::Direct(body) => body.bytes(self.envelope.len as usize),
            MessageBody::Moved => &[],
        };
        whole.get(self.read as usize..).unwrap_or(&[])
    }

    /// Who sent it: answer there.
    pub fn from(&self) -> PortAddress {
        self.envelope.from
    }

    /// The service that the sender addressed; `None` if it addressed this port.
    pub fn service(&self) -> Option<ServiceAddress> {
        self.envelope.service
    }

    /// The sender's tag.
    pub fn tag(&self) -> Option<u64> {
        self.envelope.tag
    }

    /// Its class.
    pub fn class(&self) -> Class {
        self.envelope.class
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        (self.envelope.len - self.read) as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of its bytes that outlives the port.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }
}

impl Drop for Message<'_> {
    #[inline]
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Message<'_> {
    /// It was read.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        if !matches!(self.body, MessageBody::Short(_)) {
            self.give_back();
        }
    }

    /// Its memory is the port's again, or its sender's.
    #[inline(never)]
    fn give_back(&mut self) {
        match self.body {
            MessageBody::Direct(_) if self.envelope.connection.is_some() => {
                if let MessageBody::Direct(body) = std::mem::replace(&mut self.body, MessageBody::Moved) {
                    self.port.give_back_past(&self.envelope, body);
                }
            }
            MessageBody::Direct(DirectBody::Long { offset, ring, .. }) => {
                self.port.release_direct(ring, Held::Arena(offset));
            }
            MessageBody::Direct(DirectBody::Passed { number, ring, .. }) => {
                self.port.release_direct(ring, Held::Passed(number));
            }
            MessageBody::Arena { offset, .. } => self.port.give_back(&self.envelope, Some(offset)),
            // A connection's sender may send so many messages, wherever they lie.
            MessageBody::Owned(_) if self.envelope.connection.is_some() => {
                self.port.give_back(&self.envelope, None);
            }
            MessageBody::Owned(_) | MessageBody::Direct(_) | MessageBody::Short(_) | MessageBody::Moved => {}
        }
        self.body = MessageBody::Moved;
    }
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("from", &self.envelope.from)
            .field("service", &self.envelope.service)
            .field("len", &self.len())
            .finish()
    }
}
