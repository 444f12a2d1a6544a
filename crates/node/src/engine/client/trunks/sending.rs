//! What is sent by connections past the engine, and that no more is.

use super::items::{DEAF, Key, Kind, LAST, note};
use super::{PIECE_BYTES, Trunk};
use crate::engine::client::connections::Known;
use crate::engine::client::{Arrival, Blocked, Client};
use crate::engine::command::{Ended, FailureCode};
use polyrail_proto::id::ConnectionId;
use polyrail_proto::limits::credit_cost;
use polyrail_shm::{DIRECT_BYTES_MAX, Label};

impl Trunk {
    /// Sends a message, or what is left of it, as far as there is room.
    pub(super) fn send(
        &mut self,
        (known, key): (&mut Known, Key),
        bytes: &[u8],
        last: bool,
        room: u64,
    ) -> Result<(), Blocked> {
        let Some(talk) = self.talks.get_mut(&key) else { return Ok(()) };
        talk.most = talk.most.max(known.credit_left());
        let most = talk.most;
        let (last, sending) = (if last { LAST } else { 0 }, talk.sending);
        self.say_abort(key, room)?;
        if sending.is_none() {
            let cost = (credit_cost(bytes.len() as u64), 0);
            let is_sent = bytes.len() as u64 <= DIRECT_BYTES_MAX
                && known.affords(cost)
                && self.say((Kind::Data, key, last), room, bytes).is_ok();
            if is_sent {
                known.charge(cost.0);
                return Ok(());
            }
            // What fits once its reader has kept up waits for that: in pieces it would be copied once more. (The last quarter may not
            // have been told.)
            if bytes.len() <= PIECE_BYTES || !known.affords(cost) && cost.0 <= most / 4 * 3 {
                return Err(Blocked);
            }
        }
        self.send_pieces((known, key), bytes, sending.unwrap_or(0), last)
    }

    /// Says that a message was given up, if that is owed.
    pub(super) fn say_abort(&mut self, key: Key, room: u64) -> Result<(), Blocked> {
        if self.talks.get(&key).is_some_and(|talk| talk.owes_abort) {
            self.say((Kind::Abort, key, 0), room, &[])?;
            self.talks.entry(key).and_modify(|talk| talk.owes_abort = false);
        }
        Ok(())
    }

    fn send_pieces(
        &mut self,
        (known, key): (&mut Known, Key),
        bytes: &[u8],
        mut sent: usize,
        last: u32,
    ) -> Result<(), Blocked> {
        // Meta is needed for the length: that it is accepted is said before.
        if self.talks.get(&key).is_some_and(|talk| talk.owes_answer) {
            return Err(Blocked);
        }
        while sent < bytes.len() {
            let piece = &bytes[sent..bytes.len().min(sent + PIECE_BYTES)];
            let is_last = sent + piece.len() == bytes.len();
            let cost = credit_cost(piece.len() as u64);
            let flags = key.side() | if is_last { last } else { 0 };
            let label = Label { note: note(Kind::Piece, key, flags), meta: bytes.len() as u64 };
            if !known.affords((cost, 0)) || self.put(label, None, piece).is_err() {
                return Err(Blocked);
            }
            known.charge(cost);
            sent += piece.len();
            if let Some(talk) = self.talks.get_mut(&key) {
                talk.sending = Some(sent).filter(|_| !is_last);
                talk.said_all |= is_last && last != 0;
            }
        }
        self.retire(key);
        Ok(())
    }
}

impl Client {
    /// Sends a message by a connection past the engine. What does not fit at once goes in pieces: blocked meanwhile, it is to be
    /// sent again, or [`Client::abandon`]ed. What has ended takes all.
    pub(crate) fn send_by_trunk(
        &mut self,
        id: ConnectionId,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), Blocked> {
        let mut sent = self.try_send_by_trunk(id, bytes, last);
        if sent.is_err() {
            self.sort_fresh();
            self.flush_trunks();
            sent = self.try_send_by_trunk(id, bytes, last);
        }
        if sent.is_ok() {
            self.directs.count_sent();
        }
        sent
    }

    fn try_send_by_trunk(&mut self, id: ConnectionId, bytes: &[u8], last: bool) -> Result<(), Blocked> {
        let room = self.room();
        let number = self.sent + self.directs.sent();
        let Client { trunks, connections, kept, .. } = self;
        let Some((trunk, key)) = trunks.at(id) else { return Ok(()) };
        let Some(known) = connections.get_mut(id) else { return Ok(()) };
        if known.over.is_some() || known.deaf {
            return Ok(());
        }
        if known.sent_all {
            kept.push_back(Arrival::Failed(number, FailureCode::Invalid));
            return Ok(());
        }
        let sent = trunk.send((known, key), bytes, last, room);
        known.sent_all |= last && sent.is_ok();
        sent
    }

    /// A message that was sent in part is given up.
    pub(crate) fn abandon(&mut self, id: ConnectionId) {
        let Some((trunk, key)) = self.trunks.at(id) else { return };
        let Some(talk) = trunk.talks.get_mut(&key) else { return };
        talk.owes_abort |= talk.sending.take().is_some();
    }

    /// Says that no more is sent, no more received, or both; refuses a connection that waits.
    pub(in crate::engine::client) fn shut_down_by_trunk(
        &mut self,
        id: ConnectionId,
        sent_all: bool,
        deaf: bool,
    ) -> Result<(), Blocked> {
        let room = self.room();
        let Some((trunk, key)) = self.trunks.at(id) else { return Ok(()) };
        let Some(talk) = trunk.talks.get(&key) else { return Ok(()) };
        if !key.ours && !talk.answered && !talk.owes_answer {
            trunk.refuse(key, Ended::NotAllowed, room);
            trunk.remove(key);
            return Ok(());
        }
        let says_deaf = deaf && !talk.said_deaf && !talk.heard_all;
        let flags = [(sent_all && !talk.said_all, LAST), (says_deaf, DEAF)];
        let flags = flags.into_iter().fold(0, |all, (is, flag)| if is { all | flag } else { all });
        if flags == 0 {
            return Ok(());
        }
        let said = trunk.say((Kind::Signal, key, flags), room, &[]);
        if said.is_err() {
            // What makes room may have to be taken first.
            self.sort_trunks();
        }
        said
    }

    /// Nobody wants to know of a connection any more: what still comes is given back at once.
    pub(in crate::engine::client) fn forget_past(&mut self, id: ConnectionId) {
        let Some((trunk, key)) = self.trunks.at(id) else { return };
        if let Some(talk) = trunk.talks.get_mut(&key) {
            talk.dropped = true;
        }
    }

    /// Ends all connections in order, as far as there is room to say so: the port closes.
    pub(in crate::engine::client) fn close_trunks(&mut self) {
        let ids: Vec<ConnectionId> =
            self.trunks.list.iter().flat_map(|trunk| trunk.talks.keys().map(|key| trunk.id(*key))).collect();
        for id in ids {
            let _ = self.shut_down_by_trunk(id, true, true);
        }
    }
}
