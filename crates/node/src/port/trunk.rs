//! Connections past the engine: when a port asks for a trunk, how it takes one that leads to it, and how it sends by it.

use super::passing::COPIED_MAX;
use super::{Limit, Port};
use crate::engine::Client;
use crate::engine::client::Arrival;
use crate::engine::client::connections::Wish;
use crate::engine::client::trunks::{Part, Past};
use crate::engine::directs::Wanted;
use crate::error::{ConnectionError, SendError};
use polyrail_proto::id::{ConnectionId, PortAddress};
use polyrail_proto::node::Destination;
use polyrail_shm::{Buffer, DIRECT_BYTES_MAX};
use std::cell::RefMut;

/// Bytes of a stream that become one message.
const WRITTEN_BYTES: usize = 128 << 10;

impl Port {
    /// Takes in what has arrived for connections.
    #[inline]
    pub(crate) fn sorted(&self) -> RefMut<'_, Client> {
        loop {
            let mut client = self.client.borrow_mut();
            client.sort_fresh();
            let Some(number) = client.take_offered_trunk() else { return client };
            drop(client);
            self.take_trunk(number);
        }
    }

    /// Takes a trunk if one was announced.
    pub(super) fn take_offered_trunk(&self) {
        let offered = self.client.borrow_mut().take_offered_trunk();
        offered.into_iter().for_each(|number| self.take_trunk(number));
    }

    /// Takes a trunk that another port's connections come by from now on.
    fn take_trunk(&self, number: u64) {
        let Some(tie) = &self.tie else { return };
        // Where that fails the node is gone, or the other end before it has asked for anything.
        if let Ok(given) = tie.take_trunk(number) {
            self.begin_way(&given.line);
            self.client.borrow_mut().add_trunk(given, 0);
        }
    }

    /// Asks for a connection past the engine; `None`: it is to be asked for at the engine.
    pub(crate) fn ask_past(
        &self,
        to: Destination,
        (wish, waits): (Wish, bool),
        first: Option<&[u8]>,
    ) -> Option<(ConnectionId, PortAddress)> {
        self.tie.as_ref()?;
        if self.client.borrow_mut().wants_trunk(to, wish.class, waits) {
            self.ask_way(to, (wish.class, Wanted::Trunk));
        }
        let mut opened = None;
        self.wait_past(Limit::Never, |port| {
            match port.client.borrow_mut().open_by_trunk(to, (wish, waits), first) {
                Some(result) => opened = result.ok(),
                None => return true,
            }
            opened.is_some()
        });
        opened
    }

    /// Adds a piece to the message of which it is one; that message, if it is whole now. A first piece that finds no memory stays
    /// next in line.
    pub(crate) fn put_together(
        &self,
        id: ConnectionId,
        past: Past,
    ) -> Result<Option<Buffer>, ConnectionError> {
        let mut client = self.client.borrow_mut();
        let Some(known) = client.connection(id) else { return Ok(None) };
        let Part::Piece(len) = past.part else {
            known.whole = None;
            return Ok(None);
        };
        if known.whole.is_none() {
            match self.memory_for(len) {
                Ok(memory) => known.whole = Some((memory, 0)),
                Err(error) => {
                    known.put_back(Arrival::Past(past), 0);
                    return Err(error);
                }
            }
        }
        Ok(client.add_piece(id, past))
    }

    fn memory_for(&self, len: u64) -> Result<Buffer, ConnectionError> {
        let max = self.shared.config.message_bytes_max as u64;
        if len > max {
            return Err(ConnectionError::TooLarge { len, max });
        }
        self.shared.pool.alloc(len as usize).map_err(|_| ConnectionError::Memory(len))
    }

    /// Sends bytes of a stream, in messages that go at once where their writer waits for all of them.
    pub(crate) fn write_past(
        &self,
        id: ConnectionId,
        bytes: &[u8],
        until_ns: Option<u64>,
    ) -> Result<(), SendError> {
        let most = if until_ns.is_none() { WRITTEN_BYTES } else { bytes.len().max(1) };
        bytes.chunks(most).try_for_each(|piece| self.send_past(id, piece, false, until_ns).map(drop))
    }

    /// Sends a buffer by a connection past the engine: it is passed if the other end can read it where it lies and has not too many
    /// of them, else copied. The message's number.
    pub(crate) fn send_buffer_past(
        &self,
        id: ConnectionId,
        buffer: Buffer,
        last: bool,
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        self.check_send(Destination::Connection(id))?;
        let is_passed = self.is_passed_past(id, buffer.len() as u64);
        if !is_passed && buffer.len() as u64 <= DIRECT_BYTES_MAX {
            return self.send_past(id, &buffer, last, until_ns);
        }
        let mut slot = Some(buffer);
        let mut attempt = |port: &Port| {
            let Some(buffer) = slot.take() else { return true };
            let mut client = port.client.borrow_mut();
            // A copy that was begun in pieces goes on so.
            let passed = if is_passed { client.pass_or_wait(id, buffer, last) } else { Err((buffer, false)) };
            let Err((buffer, waits)) = passed else { return true };
            slot = Some(buffer);
            if waits {
                return false;
            }
            if slot.as_ref().is_some_and(|buffer| client.send_by_trunk(id, buffer, last).is_ok()) {
                slot = None;
            }
            slot.is_none()
        };
        if !attempt(self) && !self.wait_past(until_ns, attempt) {
            self.client.borrow_mut().abandon(id);
            return Err(self.not_taken(true));
        }
        Ok(self.client.borrow().sent_direct())
    }

    fn is_passed_past(&self, id: ConnectionId, len: u64) -> bool {
        len > COPIED_MAX
            && len <= self.shared.config.message_bytes_max as u64
            && self.client.borrow_mut().may_pass_by_trunk(id)
    }

    /// A copy of bytes that are passed rather than cut in pieces, if there is memory for it now.
    fn copy_to_pass(&self, id: ConnectionId, bytes: &[u8]) -> Option<Buffer> {
        let len = bytes.len() as u64;
        // A child of the process says nothing by its parent's socket.
        if len <= DIRECT_BYTES_MAX || self.shared.host.is_forked() || !self.is_passed_past(id, len) {
            return None;
        }
        self.client.borrow_mut().reclaim_passed();
        let mut buffer = self.shared.pool.alloc(bytes.len()).ok()?;
        buffer.copy_from_slice(bytes);
        Some(buffer)
    }

    /// Sends a message by a connection past the engine, waiting for room; its number.
    pub(crate) fn send_past(
        &self,
        id: ConnectionId,
        bytes: &[u8],
        last: bool,
        until_ns: Option<u64>,
    ) -> Result<u64, SendError> {
        if let Some(buffer) = self.copy_to_pass(id, bytes) {
            return self.send_buffer_past(id, buffer, last, until_ns);
        }
        self.check_send(Destination::Connection(id))?;
        let attempt = |port: &Port| port.client.borrow_mut().send_by_trunk(id, bytes, last).is_ok();
        if !attempt(self) && !self.wait_past(until_ns, attempt) {
            self.client.borrow_mut().abandon(id);
            return Err(self.not_taken(true));
        }
        Ok(self.client.borrow().sent_direct())
    }
}
