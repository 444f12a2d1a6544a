//! What was read of connections past the engine: memory is given back, and more may come.

use super::{Part, Past};
use crate::engine::client::slots::DirectBody;
use crate::engine::client::{Client, Envelope};
use polyrail_proto::id::ConnectionId;
use polyrail_proto::limits::credit_cost;
use polyrail_shm::Buffer;

/// The credit for bytes that such a message has cost. What is passed costs none, for it lies in its sender's memory.
pub(super) fn cost_of(len: usize, body: &DirectBody) -> u64 {
    if matches!(body, DirectBody::Passed { .. }) { 0 } else { credit_cost(len as u64) }
}

impl Client {
    /// A message of a connection past the engine was read: its memory is free, and more may come.
    pub(crate) fn give_back_past(&mut self, envelope: &Envelope, body: DirectBody) {
        let Some(id) = envelope.connection else { return };
        let cost = cost_of(envelope.len as usize, &body);
        self.drop_past(id, envelope.len as usize, body);
        self.note_read_past(id, cost);
    }

    /// A message of a connection was read, or a piece of one, which had cost so much credit.
    pub(super) fn note_read_past(&mut self, id: ConnectionId, cost: u64) {
        let Some((trunk, key)) = self.trunks.at(id) else { return };
        let Some(talk) = trunk.talks.get_mut(&key) else { return };
        talk.read = (talk.read.0 + cost, talk.read.1 + 1);
        let left = (talk.granted.0 - talk.read.0, talk.granted.1 - talk.read.1);
        // A quarter was read since that was told last.
        let due = left.0 <= talk.window.0 / 4 * 3 || left.1 <= talk.window.1 / 4 * 3;
        if due && !self.tell_read_past(id) {
            self.connections.note_untold(id);
        }
    }

    /// Copies a piece behind those that have come of its message; that message, if it is whole now. What is no piece of it ends the
    /// connection.
    pub(crate) fn add_piece(&mut self, id: ConnectionId, past: Past) -> Option<Buffer> {
        let Past { len, body, part } = past;
        let known = self.connections.get_mut(id)?;
        let (whole, filled) = known.whole.as_mut()?;
        let fits = part == Part::Piece(whole.len() as u64) && len > 0 && *filled + len <= whole.len();
        if fits {
            whole[*filled..*filled + len].copy_from_slice(body.bytes(len));
            *filled += len;
        }
        let done = fits && *filled == whole.len();
        let whole = if done || !fits { known.whole.take() } else { None };
        let cost = cost_of(len, &body);
        self.drop_past(id, len, body);
        if !fits {
            self.give_up(id);
            return None;
        }
        self.note_read_past(id, cost);
        whole.map(|(whole, _)| whole)
    }

    /// Ends a connection whose other end makes no sense.
    fn give_up(&mut self, id: ConnectionId) {
        let Client { trunks, connections, .. } = self;
        let Some((trunk, key)) = trunks.at(id) else { return };
        trunk.give_up(connections, key);
        trunk.pay();
    }

    /// Tells the other end of a connection how much was read; whether that could be done.
    pub(in crate::engine::client) fn tell_read_past(&mut self, id: ConnectionId) -> bool {
        let Some((trunk, key)) = self.trunks.at(id) else { return true };
        trunk.tell_read(key)
    }

    /// Gives the memory of what came by a connection back.
    pub(in crate::engine::client) fn drop_past(&mut self, id: ConnectionId, len: usize, body: DirectBody) {
        let Some((trunk, _)) = self.trunks.at(id) else { return };
        match body {
            DirectBody::Short(short) => {
                self.shorts.give_back(short);
                return;
            }
            DirectBody::Copied(_) => {
                trunk.copied -= (len as u64).min(trunk.copied);
                return;
            }
            DirectBody::Long { offset, .. } => {
                trunk.lent -= (len as u64).min(trunk.lent);
                trunk.given.back.release(offset);
            }
            DirectBody::Passed { number, .. } => trunk.given.back.return_passed(number),
        }
        trunk.tell();
    }
}
