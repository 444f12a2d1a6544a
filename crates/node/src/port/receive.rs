//! Messages in: what has arrived is sorted, lent to the program, and given back.

use super::{Limit, Port};
use crate::clock::now_ns;
use crate::engine::Budget;
use crate::engine::client::slots::{DirectBody, Held};
use crate::engine::client::{Arrival, Envelope, Returned};
use crate::error::RecvError;
use crate::message::Message;
use std::time::Duration;

impl Port {
    /// The next message; waits for it.
    pub fn recv(&self) -> Result<Message<'_>, RecvError> {
        let mut message = Message::place(self);
        while !self.recv_until(None, &mut message)? {}
        Ok(message)
    }

    /// The next message, or `None` after `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message<'_>>, RecvError> {
        let mut message = Message::place(self);
        Ok(self.recv_until(Some(timeout), &mut message)?.then_some(message))
    }

    /// The next message among those that came with the last one: looks for no more, so that it costs nothing when there
    /// is none. (A large message among them is fetched, which may take a while.)
    pub fn recv_arrived(&self) -> Result<Option<Message<'_>>, RecvError> {
        let mut message = Message::place(self);
        Ok(self.next(&mut message)?.then_some(message))
    }

    /// The next message if one is here or at the door.
    pub fn try_recv(&self) -> Result<Option<Message<'_>>, RecvError> {
        let mut message = Message::place(self);
        Ok(self.try_recv_into(&mut message)?.then_some(message))
    }

    fn try_recv_into<'a>(&'a self, message: &mut Message<'a>) -> Result<bool, RecvError> {
        if self.next(message)? {
            return Ok(true);
        }
        if self.shared.host.is_forked() {
            return Err(RecvError::Forked);
        }
        self.drive();
        if self.next(message)? {
            return Ok(true);
        }
        let Some(descriptor) = self.descriptor.get() else { return Ok(false) };
        self.clear_readiness(descriptor);
        if self.has_no_engine() {
            self.look_around();
        }
        let is_here = self.next(message)?;
        if !is_here && self.is_cut_off() { Err(RecvError::Closed) } else { Ok(is_here) }
    }

    /// The next message, copied to the front of `into`; its length, which may be larger than what was copied.
    pub fn recv_into(&self, into: &mut [u8]) -> Result<usize, RecvError> {
        let message = self.recv()?;
        let len = message.len().min(into.len());
        into[..len].copy_from_slice(&message.bytes()[..len]);
        Ok(message.len())
    }

    /// Hands the next message, and those that are here behind it, up to `most` of them, to `each` as they lie; waits for the first, but
    /// no longer than `timeout`. How many there were. Small messages cost least this way. `each` may use the port.
    ///
    /// # Errors
    /// As [`Port::recv`]: before any was handed over.
    pub fn recv_each(
        &self,
        most: usize,
        timeout: Option<Duration>,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<usize, RecvError> {
        let mut count = self.take_past(most, &mut each);
        if count == 0 && self.look_on() {
            count = self.take_run(most, &mut each);
        }
        if count == 0 && most > 0 {
            count = self.take_first(most, timeout, &mut each)?;
        }
        Ok(count)
    }

    /// Hands over what has come past the engine, up to `most` messages, unless there is something else to be looked at first.
    #[inline]
    fn take_past(&self, most: usize, each: &mut impl FnMut(&Message<'_>)) -> usize {
        let has_more = self.owes.get() || self.client.borrow_mut().has_business();
        if has_more { 0 } else { self.take_run(most, each) }
    }

    /// The same whatever else there is.
    fn take_run(&self, most: usize, each: &mut impl FnMut(&Message<'_>)) -> usize {
        // One place for all: to make one for each would cost as much as to read it.
        let mut message = Message::place(self);
        for count in 0..most {
            if !message.take_direct(&mut self.client.borrow_mut()) {
                return count;
            }
            each(&message);
            message.let_go();
        }
        most
    }

    /// Waits for a message, and hands it over and what is here behind it, up to `most`.
    #[inline(never)]
    fn take_first(
        &self,
        most: usize,
        timeout: Option<Duration>,
        each: &mut impl FnMut(&Message<'_>),
    ) -> Result<usize, RecvError> {
        let mut message = Message::place(self);
        if !self.recv_until(timeout, &mut message)? {
            return Ok(0);
        }
        each(&message);
        message.let_go();
        for count in 1..most {
            if self.owes.get() {
                self.take_returns();
            }
            let arrival = self.client.borrow_mut().poll_message();
            let Some(arrival) = arrival else { return Ok(count + self.take_past(most - count, each)) };
            self.fill(&mut message, arrival);
            each(&message);
            message.let_go();
        }
        Ok(most)
    }

    fn recv_until<'a>(
        &'a self,
        timeout: Option<Duration>,
        message: &mut Message<'a>,
    ) -> Result<bool, RecvError> {
        if self.next(message)? {
            return Ok(true);
        }
        if self.shared.host.is_forked() {
            return Err(RecvError::Forked);
        }
        if self.look_on() && message.take_direct(&mut self.client.borrow_mut()) {
            return Ok(true);
        }
        let mut limit = Limit::from(timeout);
        loop {
            let arrived = self.wait_by(&mut limit, Port::is_cut_off, |port| {
                let mut client = port.client.borrow_mut();
                client.has_arrivals() || client.has_direct()
            });
            if self.next(message)? {
                return Ok(true);
            }
            if self.is_cut_off() {
                return Err(RecvError::Closed);
            }
            if !arrived {
                return Ok(false);
            }
        }
    }

    /// Takes the next message among what has arrived, if there is one; everything else is put where it belongs. It goes to a place of the
    /// caller's, which holds none: to move it from call to call would cost as much as all the rest.
    #[inline]
    fn next<'a>(&'a self, message: &mut Message<'a>) -> Result<bool, RecvError> {
        if self.owes.get() {
            self.take_returns();
        }
        let mut client = self.client.borrow_mut();
        if client.has_business() {
            drop(client);
            return self.next_of_all(message);
        }
        Ok(message.take_direct(&mut client))
    }

    #[inline(never)]
    fn next_of_all<'a>(&'a self, message: &mut Message<'a>) -> Result<bool, RecvError> {
        loop {
            let Some(arrival) = self.client.borrow_mut().poll() else {
                return Ok(message.take_direct(&mut self.client.borrow_mut()));
            };
            match arrival {
                Arrival::Message(..) | Arrival::Owned(..) => {
                    self.fill(message, arrival);
                    return Ok(true);
                }
                Arrival::Offer { len, offer, from } => {
                    if let Err(error) = self.accept_offer(len, offer) {
                        self.client.borrow_mut().keep_offer(len, offer, from);
                        return Err(error);
                    }
                }
                Arrival::Failed(number, why) => self.failures.borrow_mut().push_back((number, why.into())),
                Arrival::Returned(returned) => self.returned.borrow_mut().push_back(*returned),
                Arrival::Direct(number) => self.take_ring(number),
                Arrival::Unbound(range, by) => return Err(RecvError::Unbound { range, by }),
                Arrival::Answer(_) | Arrival::Came(_) | Arrival::Taken(_) | Arrival::Past(_) => {}
                Arrival::Sorted => self.take_offered_trunk(),
            }
        }
    }

    /// Takes a message that has come by the engine.
    #[inline(always)]
    fn fill<'a>(&'a self, message: &mut Message<'a>, arrival: Arrival) {
        match arrival {
            Arrival::Message(envelope, offset) => {
                self.note_taken(&envelope);
                let bytes = self.rx.bytes(offset, envelope.len as usize).unwrap_or(&[]);
                message.fill_in_arena(envelope, bytes, offset);
            }
            Arrival::Owned(envelope, buffer) => {
                self.note_taken(&envelope);
                message.fill_owned(envelope, buffer);
            }
            other => debug_assert!(false, "no message: {other:?}"),
        }
    }

    /// The program gets a message. If its sender waits to hear of that, it is told now, for the program may be busy with it
    /// for long; unless more is here, for which it will be back.
    #[inline]
    fn note_taken(&self, envelope: &Envelope) {
        if envelope.notify && !self.client.borrow_mut().has_arrivals() {
            self.turn(now_ns(), Budget::USUAL);
        }
    }

    /// Finds memory for a large message whose turn it is.
    pub(crate) fn accept_offer(&self, len: u64, offer: (u32, u32)) -> Result<(), RecvError> {
        let max = self.shared.config.message_bytes_max as u64;
        if len > max {
            return Err(RecvError::TooLarge { len, max });
        }
        let Ok(buffer) = self.shared.pool.alloc(len as usize) else { return Err(RecvError::Memory(len)) };
        if let Some(tie) = &self.tie {
            let number = self.lend(tie, buffer).ok_or(RecvError::Memory(len))?;
            self.wait_until(Limit::Never, |port| port.client.borrow_mut().accept_lent(offer, number).is_ok());
            self.drive();
            return Ok(());
        }
        let mut slot = Some(buffer);
        self.wait_until(Limit::Never, |port| {
            let Some(buffer) = slot.take() else { return true };
            slot = port.client.borrow_mut().accept(offer, buffer).err();
            slot.is_none()
        });
        self.drive();
        Ok(())
    }

    /// A message was dropped. Its port may be in the middle of a verb, so that the memory is given back at the next.
    pub(crate) fn give_back(&self, envelope: &Envelope, offset: Option<u64>) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.give_back(envelope, offset),
            Err(_) => {
                self.returns.borrow_mut().push((*envelope, offset));
                self.owes.set(true);
            }
        }
    }

    /// The same for a message that came back.
    pub(crate) fn drop_returned(&self, returned: Returned) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.drop_returned(returned),
            Err(_) => {
                self.dropped.borrow_mut().push(returned);
                self.owes.set(true);
            }
        }
    }

    /// The same for a message that came past the engine.
    pub(crate) fn release_direct(&self, ring: u64, held: Held) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.release_direct(ring, held),
            Err(_) => {
                self.direct_returns.borrow_mut().push((ring, held));
                self.owes.set(true);
            }
        }
    }

    /// The same for one that came by a connection past the engine.
    pub(crate) fn give_back_past(&self, envelope: &Envelope, body: DirectBody) {
        match self.client.try_borrow_mut() {
            Ok(mut client) => client.give_back_past(envelope, body),
            Err(_) => {
                self.past_returns.borrow_mut().push((*envelope, body));
                self.owes.set(true);
            }
        }
    }

    pub(crate) fn take_returns(&self) {
        if !self.owes.replace(false) {
            return;
        }
        let mut client = self.client.borrow_mut();
        for (ring, held) in self.direct_returns.borrow_mut().drain(..) {
            client.release_direct(ring, held);
        }
        for (envelope, body) in self.past_returns.borrow_mut().drain(..) {
            client.give_back_past(&envelope, body);
        }
        for returned in self.dropped.borrow_mut().drain(..) {
            client.drop_returned(returned);
        }
        for (envelope, offset) in self.returns.borrow_mut().drain(..) {
            client.give_back(&envelope, offset);
        }
    }
}
