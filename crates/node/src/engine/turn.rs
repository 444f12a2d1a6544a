//! One turn: commands in, datagrams in, timers, trains out, news out.

use super::client::Envelope;
use super::command::{Completion, Ended, FailureCode};
use super::store::COOKIE_MASK;
use super::{Attached, Budget, Engine, Look, Work, media};
use crate::node::events::NodeEvent;
use polyrail_bearer::{Address, Notice, SendOutcome, Transmit};
use polyrail_proto::Event;
use polyrail_proto::id::{ConnectionId, PortId};
use polyrail_proto::link::recv::ACK_SOON;
use polyrail_proto::node::{Datagrams, Source};
use polyrail_proto::session::Outcome;
use polyrail_proto::time::{Duration, Instant};
use std::io::IoSlice;
use std::os::fd::RawFd;

/// Beacons may wait.
const BEACON_SPAN: Duration = Duration::ms(1);
/// Coming later than this to a deadline is a stall of this machine, not a silence of others.
const STALL: Duration = Duration::ms(2);
/// How often a full bearer is asked whether it has room again.
const BLOCKED_SPAN: Duration = Duration::us(15);
/// How often it is looked whether send buffers fit the rates, and what passes.
const SIZE_SPAN: Duration = Duration::us(500);

impl Engine {
    /// One bounded pass over everything there is to do.
    pub fn turn(&mut self, now_ns: u64, budget: Budget) -> Work {
        let mut now = Instant(now_ns);
        self.turns += 1;
        let mut work = Work { drained: true, ..Work::default() };
        work.done += self.take_from_clients(now, budget);
        let due = self.next_at <= now;
        let late = now.since(self.next_at.max(self.turned_at));
        self.turned_at = now;
        if self.next_at != Instant::ZERO && late > STALL {
            // We were due and did not come: who was silent meanwhile may have spoken, so nobody is accused for it.
            self.node.handle_stall(late);
        }
        if work.done > 0 {
            // What a client hands in leaves before anything is read: reading costs as much as the way takes.
            self.transmit(now, budget, &mut work);
            now = Instant((self.clock)(now.0));
        }
        let before = work.done;
        self.receive(now, budget, due, &mut work);
        if budget.look == Look::Inside && self.next_at.since(now) <= ACK_SOON {
            self.node.handle_idle();
        }
        let pressing = work.done > before || due || budget.thorough || self.unfinished;
        if pressing {
            // A timer fires only when nothing that could speak against it is waiting to be read.
            if due && work.drained {
                self.node.handle_timeout(now, &mut self.store);
            }
            self.transmit(now, budget, &mut work);
        }
        if pressing || work.done > 0 {
            self.settle(now, &mut work);
        }
        // What is due may wait for room in a bearer, which is asked no more often than that.
        let stuck = work.blocked && work.done == 0;
        let next_at = if stuck { self.next_at.max(now + BLOCKED_SPAN) } else { self.next_at };
        work.next_deadline_ns = (next_at != Instant::NEVER).then_some(next_at.0);
        work
    }

    /// The first turn after a sleep that these descriptors ended, each with the number of its bearer. The kernel has seen
    /// the others empty.
    pub fn woken(&mut self, now_ns: u64, ready: &[(usize, RawFd)]) -> Work {
        self.ready.clear();
        self.ready.extend_from_slice(ready);
        self.turn(now_ns, Budget::WOKEN)
    }

    /// The first turn after a rest, with the descriptors that have something now.
    pub fn rested(&mut self, now_ns: u64, ready: &[(usize, RawFd)]) -> Work {
        self.ready.clear();
        self.ready.extend_from_slice(ready);
        self.turn(now_ns, Budget::RESTED)
    }

    /// What follows from what came in and went out. A turn in which nothing happened needs none of it.
    #[inline(never)]
    fn settle(&mut self, now: Instant, work: &mut Work) {
        work.done += self.deliver(now);
        self.finish_closing(now);
        self.tell_subscribers(work);
        self.pass_waits();
        self.tell_readers();
        work.done += self.store.publish(self.node.table().generation(), &mut work.rang);
        self.next_at = self.node.poll_timeout(now);
        self.unfinished = !work.drained || work.blocked;
    }

    // ----- in ------------------------------------------------------------------------------------------------

    fn receive(&mut self, now: Instant, budget: Budget, due: bool, work: &mut Work) {
        let thorough = due || (budget.thorough && budget.look != Look::Inside);
        for index in 0..self.bearers.len() {
            let entry = &self.bearers[index];
            if entry.vacant {
                continue;
            }
            if entry.loopback {
                if entry.looped || thorough {
                    self.bearers[index].looped =
                        self.receive_from(index, now, budget, (true, thorough), work);
                }
                continue;
            }
            let everywhere = match budget.look {
                Look::Everywhere => true,
                Look::Inside | Look::Ready | Look::Near => due,
                Look::Rested => false,
                Look::Busy => due || self.is_look_due(index, now),
            };
            if matches!(budget.look, Look::Ready | Look::Rested) && !everywhere {
                self.receive_ready(index, now, budget, work);
                continue;
            }
            let is_near = matches!(budget.look, Look::Busy | Look::Near);
            // Of shared memory the kernel knows nothing, so it is looked at even by who leaves the sockets to it.
            let shares = entry.near && entry.bearer.has_senders();
            let near = shares || is_near && self.is_busy_bearer(index, now);
            if near && !budget.sending || everywhere {
                self.receive_from(index, now, budget, (everywhere, thorough), work);
            }
            if everywhere {
                self.receive_rare(index, now, thorough, work);
            }
        }
    }

    /// Reads what the descriptors have that ended a sleep.
    fn receive_ready(&mut self, index: usize, now: Instant, budget: Budget, work: &mut Work) {
        for at in 0..self.ready.len() {
            let (bearer, fd) = self.ready[at];
            if bearer == index {
                let narrow = self.bearers[index].bearer.prefer(fd);
                self.receive_from(index, now, budget, (!narrow, false), work);
                self.take_notices(index, now);
            }
        }
        self.bearers[index].looked_at = now;
    }

    /// What may wait is looked for when everything is, for most turns are to be short.
    #[inline(never)]
    fn receive_rare(&mut self, index: usize, now: Instant, thorough: bool, work: &mut Work) {
        let entry = &mut self.bearers[index];
        entry.looked_at = now;
        if thorough || now.since(entry.beacons_at) >= BEACON_SPAN {
            entry.beacons_at = now;
            self.receive_beacons(index, now, work);
        }
        self.take_notices(index, now);
    }

    /// Reads what one bearer has; whether that was anything.
    #[inline(never)]
    fn receive_from(
        &mut self,
        index: usize,
        now: Instant,
        budget: Budget,
        (everywhere, to_end): (bool, bool),
        work: &mut Work,
    ) -> bool {
        let (mut bytes, mut calls) = (0, 0);
        loop {
            // Whoever waits for bytes gets those first for which it has room. If they are for others, more is received at once.
            let only_first = calls == 0 && !to_end;
            let groups_max = if only_first { self.store.readers.groups_max() } else { usize::MAX };
            self.store.keep_left(&self.batch);
            self.batch.begin(groups_max);
            let got = self.bearers[index].bearer.recv(&mut self.batch, everywhere).unwrap_or(0);
            if got == 0 {
                break;
            }
            calls += 1;
            bytes += self.batch.total_bytes() as u64;
            work.done += got as u32;
            self.hand_in(index, now);
            if self.store.readers.is_served() && !to_end {
                work.drained = false;
                break;
            }
            // A batch with room to spare has most likely emptied the socket: a second call would only say so.
            if self.batch.spare() > 0 && !to_end {
                break;
            }
            if calls >= budget.receives {
                work.drained = false;
                break;
            }
        }
        if calls > 0 {
            if !self.bearers[index].loopback {
                self.hot = index;
                self.bearers[index].found_at = now;
                self.passing.note_bytes(now, bytes);
            }
            let id = self.bearers[index].id;
            self.node.handle_batch_end(now, id, bytes, calls);
        }
        calls > 0
    }

    #[inline(never)]
    fn hand_in(&mut self, index: usize, now: Instant) {
        let id = self.bearers[index].id;
        if let Some(tap) = &mut self.tap
            && !self.bearers[index].loopback
        {
            let to = self.bearers[index].bearer.local().address;
            for group in self.batch.iter() {
                tap.take(now, (group.from, to), group.stride, std::iter::once(group.bytes));
            }
        }
        for group in self.batch.iter() {
            let from = media(&group.from);
            let source = Source { bearer: id, from: &from };
            let data = Datagrams { bytes: group.bytes, stride: group.stride, ce: group.ce };
            self.node.handle_datagrams(now, &source, &data, &mut self.store);
        }
    }

    fn receive_beacons(&mut self, index: usize, now: Instant, work: &mut Work) {
        self.store.keep_left(&self.batch);
        self.batch.clear();
        let got = self.bearers[index].bearer.recv_beacons(&mut self.batch).unwrap_or(0);
        if got > 0 {
            work.done += got as u32;
            self.hand_in(index, now);
        }
    }

    fn take_notices(&mut self, index: usize, now: Instant) {
        self.bearers[index].bearer.notices(&mut self.notices);
        for notice in self.notices.drain(..) {
            let id = self.bearers[index].id;
            match notice {
                Notice::MtuHint { to, mtu_bytes } => {
                    self.node.handle_mtu_hint(now, id, &media(&to), mtu_bytes);
                }
                Notice::Gone { to } => {
                    self.node.handle_gone(now, id, &media(&to), &mut self.store);
                    // Who waits for its names is told with the next turn, whatever else that one has to do.
                    self.next_at = Instant::ZERO;
                }
                Notice::Unreachable { .. } | Notice::GsoOff => {}
            }
        }
    }

    // ----- out -----------------------------------------------------------------------------------------------

    fn transmit(&mut self, now: Instant, budget: Budget, work: &mut Work) {
        if self.any_blocked {
            self.look_for_room(now, budget);
        }
        // One train per bearer in turn, so that no link waits for another's whole queue. First by which something came last: small
        // messages most likely leave by the same, and no other need be asked.
        let (count, hot) = (self.bearers.len(), self.hot);
        for round in 0..budget.trains {
            if self.node.is_quiet(now) {
                break;
            }
            let mut any = false;
            for index in (hot..count).chain(0..hot) {
                let entry = &self.bearers[index];
                if !entry.blocked
                    && !entry.vacant
                    && self.node.poll_transmit(now, entry.id, &mut self.train, &mut self.store)
                    && self.send_train(index, now)
                {
                    work.done += 1;
                    any = true;
                }
            }
            if !any {
                break;
            }
            if round + 1 == budget.trains {
                work.drained = false;
            }
        }
        work.blocked = self.any_blocked;
        if now.since(self.sized_at) >= SIZE_SPAN {
            self.sized_at = now;
            self.size_send_buffers();
            self.passing.note_calm(self.is_calm(now));
        }
    }

    /// Asks the bearers without room whether they have some again.
    fn look_for_room(&mut self, now: Instant, budget: Budget) {
        for entry in &mut self.bearers {
            if entry.blocked && (budget.thorough || now.since(entry.checked_at) >= BLOCKED_SPAN) {
                entry.checked_at = now;
                entry.blocked = !entry.bearer.writable();
            }
        }
        self.any_blocked = self.bearers.iter().any(|b| b.blocked);
    }

    /// Sends the train that was filled for a bearer; whether it is gone.
    #[inline(never)]
    fn send_train(&mut self, index: usize, now: Instant) -> bool {
        let Attached { bearer, blocked, checked_at, loopback, looped, .. } = &mut self.bearers[index];
        *looped |= *loopback;
        let train = &self.train;
        let mut tap = self.tap.as_mut().filter(|_| !*loopback);
        let outcome = if train.to.as_bytes().is_empty() {
            bearer.broadcast(&train.head);
            if let (Some(tap), Some(to)) = (&mut tap, bearer.beacon_group()) {
                tap.take(
                    now,
                    (bearer.local().address, to),
                    train.head.len(),
                    std::iter::once(&train.head[..]),
                );
            }
            SendOutcome::Sent
        } else {
            let Some(to) = Address::from_bytes(train.to.as_bytes()) else { return true };
            let (segment_bytes, bytes, express) = (train.segment_bytes, train.bytes, train.express);
            let dscp = self.dscps.of(train.class()).number();
            let lends = bearer.capabilities().lends_pages;
            let mut send = |slices: &[IoSlice<'_>], lend: bool| {
                let lend = lend && lends;
                let sent = bearer.send(&Transmit { to, segment_bytes, bytes, slices, express, lend, dscp });
                if let (Some(tap), SendOutcome::Sent) = (&mut tap, &sent) {
                    let parts = slices.iter().map(|slice| &slice[..]);
                    tap.take(now, (bearer.local().address, to), segment_bytes, parts);
                }
                sent
            };
            match self.store.lay_heads(train) {
                Some(run) => {
                    let sent = self.store.run_slice(&run).map(|slice| send(&[slice], true));
                    if lends && !matches!(sent, Some(SendOutcome::WouldBlock)) {
                        self.store.lend(&run);
                    }
                    sent
                }
                None => self.gather.with(train, &self.store, |slices| send(slices, false)),
            }
            // A train whose message was confirmed meanwhile may refer to memory that is gone: that is a loss.
            .unwrap_or(SendOutcome::Dropped)
        };
        let outcome = match outcome {
            SendOutcome::Sent => Outcome::Sent,
            SendOutcome::WouldBlock => {
                (*blocked, *checked_at, self.any_blocked) = (true, now, true);
                Outcome::WouldBlock
            }
            SendOutcome::Dropped => Outcome::Dropped,
            SendOutcome::TooLarge => Outcome::TooLarge,
            SendOutcome::Failed(_) => Outcome::Failed,
        };
        self.node.handle_sent(now, &self.train, outcome, &mut self.store);
        if !self.bearers[index].loopback {
            self.passing.note_bytes(now, self.train.bytes as u64);
        }
        outcome == Outcome::Sent
    }

    /// The kernel's queue is the pacer: it holds as much as the bearer moves in the queue target (protocol.md §5.6).
    fn size_send_buffers(&mut self) {
        for entry in self.bearers.iter_mut().filter(|b| !b.loopback && !b.vacant) {
            let (rate, target) = self.node.bearer_rate(entry.id);
            if rate == 0 {
                continue;
            }
            let wanted = (rate / 1_000 * (target.0 / 1_000) / 1_000).clamp(SEND_BUFFER.0, SEND_BUFFER.1);
            let wanted = wanted as u32;
            if entry.send_buffer == 0 || wanted.abs_diff(entry.send_buffer) > entry.send_buffer / 4 {
                entry.send_buffer = wanted;
                entry.bearer.set_send_buffer(wanted);
            }
        }
    }

    // ----- news ----------------------------------------------------------------------------------------------

    fn deliver(&mut self, now: Instant) -> u32 {
        let mut count = 0;
        while let Some(event) = self.node.poll_event() {
            count += 1;
            match event {
                Event::Message { port, from, connection, service, tag, class, buffer, len, receipt } => {
                    self.store.keep_left_of(buffer, &self.batch);
                    let Some(body) = self.body_for(port, buffer) else { continue };
                    let notify = receipt.is_some();
                    if let Some(receipt) = receipt {
                        self.store.note_unread(port, receipt);
                    }
                    let envelope = Envelope { from, connection, service, tag, class, len, notify };
                    self.store.complete_message(port, envelope, body);
                }
                Event::Offer { port, from, len, session, transfer, connection } => {
                    let offer = (session.0, transfer);
                    self.store.complete(port, Completion::Offer { from, len, offer, connection });
                }
                // What becomes of a connection is told as a whole.
                Event::SendFailed { to, .. } if to.port.is_connection() => {}
                Event::Connect { port, id, from, service, stream, class, credit } => {
                    let request = Completion::Request { id, from, service, stream, class, credit };
                    self.store.complete(port, request);
                }
                Event::Connected { port, id, peer, credit } => {
                    self.store.complete(port, Completion::Connected { id, peer, credit });
                }
                Event::ConnectionCredit { port, id, credit } => {
                    self.store.complete(port, Completion::Credit { id, credit });
                }
                Event::ConnectionEnd { port, id } => self.ended(port, id, Ended::SentAll),
                Event::ConnectionDeaf { port, id } => self.ended(port, id, Ended::Deaf),
                Event::ConnectionOver { port, id, why } => self.ended(port, id, why.into()),
                Event::SendFailed { port, buffer, why, .. } => {
                    self.store.give_up(port, buffer, why.into());
                }
                Event::Unbound { port, range, by } => {
                    self.note_unbound(port, 1);
                    self.store.complete(port, Completion::Unbound { range, by });
                }
                Event::Names => self.push_event(NodeEvent::Names),
                other => {
                    self.remember(now, &other);
                    if let Some(news) = NodeEvent::of(&other) {
                        self.push_event(news);
                    }
                }
            }
        }
        count
    }

    fn ended(&mut self, port: PortId, id: ConnectionId, how: Ended) {
        self.store.complete(port, Completion::Ended { id, how });
    }

    fn finish_closing(&mut self, now: Instant) {
        if self.closing.is_empty() {
            return;
        }
        let mut closing = std::mem::take(&mut self.closing);
        closing.retain(|port| {
            let gone = self.node.finish_closing(now, *port);
            if gone {
                if let Some(uid) = self.store.close(*port) {
                    self.note_port_gone(uid);
                }
                self.waits.forget(*port);
            }
            !gone
        });
        self.closing = closing;
    }

    pub(super) fn fail(&mut self, port: PortId, cookie: u64, why: FailureCode) {
        self.store.complete(port, Completion::Failed { cookie: cookie & COOKIE_MASK, why });
    }
}

/// Smallest and largest send buffer: two trains at least, and not so much that a link's queue holds seconds.
const SEND_BUFFER: (u64, u64) = (65_536, 4 << 20);
