//! Messages that their senders want back if they are not delivered: their bytes stay where they are until the sender has had
//! them again. Others are not here and cost nothing.

use super::{EngineStore, Place};
use crate::engine::command::{Body, Completion, FailureCode};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{BufferId, PortId};
use polyrail_proto::node::Destination;

/// What of such a message its sender is told again.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Asked {
    pub to: Destination,
    pub class: Class,
    pub tag: Option<u64>,
    pub len: u64,
}

impl EngineStore {
    /// The sender of a message wants it back if it fails.
    pub(in crate::engine) fn ask_back(&mut self, buffer: BufferId, asked: Asked) {
        self.asked.insert(buffer, asked);
    }

    /// Whether the bytes of a message that is over must stay, for its sender wants them back.
    pub(super) fn stays(&mut self, port: PortId, buffer: BufferId, delivered: bool) -> bool {
        // Nearly always there is none.
        if self.asked.is_empty() || !self.asked.contains_key(&buffer) {
            return false;
        }
        // Nobody takes what comes back to a port that closes.
        let wanted = !delivered && self.slot_of(port).is_some_and(|(_, slot)| !slot.closing);
        if !wanted {
            self.asked.remove(&buffer);
        }
        wanted
    }

    /// Tells a client that its message failed, by handing it back if that was asked.
    pub(in crate::engine) fn give_up(&mut self, port: PortId, buffer: BufferId, why: FailureCode) {
        let cookie = Place::of(buffer).cookie();
        let Some(Asked { to, class, tag, len }) = self.asked.remove(&buffer) else {
            return self.complete(port, Completion::Failed { cookie, why });
        };
        let body = match Place::of(buffer) {
            Place::Held(..) => self.hand_over(port, buffer).map(Body::Exchanged),
            Place::Tx(_, offset, _) => Some(Body::Arena(offset)),
            Place::Spaced(..) | Place::Rx(..) => None,
        };
        self.complete(
            port,
            match body {
                Some(body) => Completion::Returned { cookie, why, to, class, tag, body, len },
                None => Completion::Failed { cookie, why },
            },
        );
    }
}
