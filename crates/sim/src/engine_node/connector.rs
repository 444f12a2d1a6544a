//! Connections of a port, by the same verbs that applications use.

use super::{Seat, destination};
use crate::subject::{Connector, To};
use polyrail::engine::client::Arrival;
use polyrail::engine::client::connections::{Answer, Progress, Request, Wish};
use polyrail::{Class, Destination};
use polyrail_proto::id::ConnectionId;

/// Stands for a message of a connection, whose failure is never told by itself.
const BY_CONNECTION: u64 = u64::MAX - 1;

impl Connector for Seat {
    fn listen(&mut self, backlog: u32) -> bool {
        self.client.listen(backlog).is_ok()
    }

    fn connect(&mut self, to: To, class: u8, first: Option<&[u8]>, last: bool) -> Option<u64> {
        let wish = Wish { class: Class::from_bits(class), stream: false, last };
        let cookie = self.client.connect(destination(to), wish, first).ok()?;
        if first.is_some() {
            self.ids.push(BY_CONNECTION);
        }
        Some(cookie)
    }

    fn take_in(&mut self) {
        self.client.sort_fresh();
    }

    fn answer(&mut self, cookie: u64) -> Option<Answer> {
        self.client.take_answer(cookie)
    }

    fn request(&mut self) -> Option<Request> {
        self.client.take_request()
    }

    fn accept(&mut self, id: ConnectionId) -> bool {
        self.client.accept_connection(id).is_ok()
    }

    fn send_on(&mut self, id: ConnectionId, class: u8, bytes: &[u8]) -> bool {
        let to = Destination::Connection(id);
        let sent = self.client.send(to, Class::from_bits(class), None, bytes).is_ok();
        if sent {
            self.ids.push(BY_CONNECTION);
        }
        sent
    }

    fn shut_down(&mut self, id: ConnectionId, sent_all: bool, deaf: bool) -> bool {
        self.client.shut_down(id, sent_all, deaf).is_ok()
    }

    fn progress(&self, id: ConnectionId) -> Option<Progress> {
        self.client.progress(id)
    }

    fn next_readable(&mut self) -> Option<ConnectionId> {
        self.client.next_readable()
    }

    fn read(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        match self.client.read(id)? {
            Arrival::Message(envelope, offset) => {
                let bytes = self.client.bytes(offset, envelope.len).to_vec();
                self.client.give_back(&envelope, Some(offset));
                Some(bytes)
            }
            Arrival::Owned(envelope, buffer) => {
                self.client.give_back(&envelope, None);
                Some(buffer.to_vec())
            }
            Arrival::Offer { from, len, offer } => {
                let accepted = match self.pool.alloc(len as usize) {
                    Ok(buffer) => self.client.accept(offer, buffer).is_ok(),
                    Err(_) => false,
                };
                if !accepted {
                    self.client.unread(id, Arrival::Offer { from, len, offer });
                }
                None
            }
            Arrival::Sorted
            | Arrival::Failed(..)
            | Arrival::Returned(_)
            | Arrival::Answer(_)
            | Arrival::Came(_) => None,
            Arrival::Taken(_) | Arrival::Unbound(..) | Arrival::Direct(_) | Arrival::Past(_) => None,
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        self.client.forget(id);
    }
}
