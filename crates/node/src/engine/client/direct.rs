//! Messages that go past the engine: by a ring that this port's client shares with that of another port of the same machine
//! (ARCHITECTURE.md, "Direct rings").
//!
//! A flow goes by a ring or by the engine, never by both at a time: a ring is begun when nothing that was sent is under way, and
//! left for good when it is empty, before a message goes that it can't take.

mod last_way;
pub(super) mod passing;

use super::lines;
use super::slots::{self, DirectBody, Held, Place, Short};
use super::trunks::is_past;
use super::{Blocked, Client, Envelope};
use crate::attach::{GivenRing, RingToSend};
use crate::engine::command::Command;
use crate::engine::directs::RINGS_OF_PORT_MAX;
use last_way::LastWay;
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::flow::Class;
use polyrail_proto::id::PortAddress;
use polyrail_proto::node::{Destination, Manner};
use polyrail_shm::{DIRECT_BYTES_MAX, DirectSender, Label};
use polyrail_sys::unix::UnixSocket;
use std::collections::VecDeque;

/// Messages of one flow by the engine after which a ring is asked for, if nothing is under way.
const WANTED_AFTER: u32 = 4;
/// And those after which it pays to wait until nothing is.
const WAIT_AFTER: u32 = 64;
/// Both are twice as many each time, up to these: who is refused, or leaves a ring again and again, is to ask less and less.
const WANTED_AFTER_MAX: u32 = 256;
const WAIT_AFTER_MAX: u32 = 4_096;
/// Flows that are counted at a time: as many as may get rings, for who answers more in turn would count none of them to its end.
const COUNTED_MAX: usize = RINGS_OF_PORT_MAX;
/// Services that are known.
const KNOWN_MAX: usize = 256;
/// Of so many looks that find nothing, one asks whether senders are gone.
const LOOKS_FOR_ENDS: u32 = 16;
/// Messages taken from one ring, after which its sender is looked for that waits for room.
const TELL_MESSAGES: u32 = 1_024;

/// In a note, beside what `slots` has there: a tag stands before the bytes; a service was addressed.
const TAGGED: u32 = 1 << 8;
const SERVICE: u32 = 1 << 9;

/// A ring to another port.
struct Out {
    to: PortAddress,
    class: Class,
    given: RingToSend,
    /// Number of the first message by it.
    first: u64,
    /// It was full, and this end is woken when it is not.
    waits: bool,
    /// How many messages had been taken when one was last sent by it.
    taken: u64,
}

/// A ring from another port.
struct In {
    given: GivenRing,
    /// Messages of which the program has the memory.
    held: u32,
    untold: u32,
    /// The file that comes with the next message was fetched, if there is one.
    has_file: bool,
}

impl In {
    fn new(given: GivenRing) -> In {
        In { given, held: 0, untold: 0, has_file: false }
    }

    /// What the next message says of itself, if there is one that can be read now.
    #[inline(always)]
    fn peek(&mut self) -> Option<Label> {
        let label = self.given.ring.peek()?;
        (!slots::is_passed(label.note) || self.fetch_file(label.note)).then_some(label)
    }

    /// Tells the sender how far this end is.
    fn tell(&mut self) {
        if self.given.ring.tell() && self.given.bell.ring() {
            lines::tell(&self.given.line);
        }
    }
}

/// Which port serves a service alone, wherever it is, as long as names are of that generation.
struct Known {
    service: ServiceAddress,
    to: Option<PortAddress>,
    generation: u64,
}

/// A flow by the engine that a ring may be worth for.
struct Counted {
    to: Destination,
    class: Class,
    messages: u32,
    /// So many are worth a ring, if nothing is under way; and so many a wait for that.
    wanted_after: u32,
    wait_after: u32,
    /// There was none for it.
    refused: bool,
}

/// The rings of one client.
#[derive(Default)]
pub(super) struct Directs {
    outs: Vec<Out>,
    ins: Vec<In>,
    known: Vec<Known>,
    last_way: Option<LastWay>,
    counted: Vec<Counted>,
    /// Messages sent by rings, and taken from them.
    sent: u64,
    taken: u64,
    /// Messages by the engine and by rings before each change from the latter to the former.
    turns: VecDeque<(u64, u64)>,
    /// The ring that was read last.
    turn: usize,
    /// Looks that found nothing.
    looks: u32,
}

/// Changes that are remembered: a failure of a message that went by the engine is told long before so many more.
const TURNS_MAX: usize = 4_096;

/// What a flow by the engine would like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    None,
    /// A ring, now that nothing is under way.
    Ring,
    /// To wait for that moment.
    Calm,
}

/// How a message goes.
enum Way {
    Engine,
    Ring(usize),
}

impl Directs {
    fn known(&self, service: ServiceAddress) -> Option<&Known> {
        self.known.iter().rev().find(|known| known.service == service)
    }

    /// How many messages went by rings before the one that was handed in as number `seq` of the engine's.
    pub(super) fn before(&self, seq: u64) -> u64 {
        self.turns.iter().rev().find(|(engine, _)| *engine <= seq).map_or(0, |(_, rings)| *rings)
    }

    /// Notes that number `seq` of the engine's is handed in now.
    pub(super) fn note_engine(&mut self, seq: u64) {
        if self.turns.back().map_or(0, |(_, rings)| *rings) != self.sent {
            if self.turns.len() == TURNS_MAX {
                self.turns.pop_front();
            }
            self.turns.push_back((seq, self.sent));
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The lines of rings to other ports, and of those from others.
    pub(super) fn outs(&self) -> impl Iterator<Item = &UnixSocket> {
        self.outs.iter().map(|out| &out.given.line)
    }

    pub(super) fn ins(&self) -> impl Iterator<Item = &UnixSocket> {
        self.ins.iter().map(|one| &one.given.line)
    }

    /// A message went past the engine.
    pub(super) fn count_sent(&mut self) {
        self.sent += 1;
    }

    /// The only port that gets what is sent to `to`.
    #[inline]
    fn receiver(&self, to: Destination) -> Option<PortAddress> {
        match to {
            Destination::Port(to) => Some(to),
            Destination::Service(service) => self.known(service)?.to,
            Destination::Connection(_) | Destination::Multicast(_) => None,
        }
    }

    #[inline]
    fn out_to(&self, to: PortAddress, class: Class) -> Option<usize> {
        self.outs.iter().position(|out| out.to == to && out.class == class)
    }
}

/// Whether the engine is not needed for such a message.
fn is_plain(how: &Manner) -> bool {
    !how.returns && how.expires_at.is_none()
}

/// Whether the bytes of such a message may go by a ring.
fn fits(how: &Manner, len: u64) -> bool {
    is_plain(how) && len <= DIRECT_BYTES_MAX
}

impl Client {
    /// Whether it is known who gets messages to `to`.
    #[inline]
    pub(crate) fn knows(&self, to: Destination) -> bool {
        let Destination::Service(service) = to else { return true };
        self.known_now(service).is_some()
    }

    /// Whether the engine has to be asked before a message goes to `to`: where there are rings it must be known who serves a service,
    /// for what goes by the engine could come to a port to which a ring leads.
    #[inline]
    pub(crate) fn must_ask(&self, to: Destination) -> bool {
        !self.directs.outs.is_empty() && !self.knows(to)
    }

    /// What is known of a service, if names have not changed since.
    fn known_now(&self, service: ServiceAddress) -> Option<&Known> {
        let generation = self.pair.words.names_generation.load();
        self.directs.known(service).filter(|known| known.generation == generation)
    }

    /// The only port that gets what is sent to `to`, as far as is known.
    pub(super) fn sole_receiver(&self, to: Destination) -> Option<PortAddress> {
        match to {
            Destination::Port(to) => Some(to),
            Destination::Service(service) => self.known_now(service)?.to,
            Destination::Connection(_) | Destination::Multicast(_) => None,
        }
    }

    /// Whether a message that is longer than most may go by a ring.
    pub(crate) fn goes_direct(&self, to: Destination, how: &Manner, len: u64) -> bool {
        if let Destination::Connection(id) = to {
            return is_past(id);
        }
        let ring = self.directs.receiver(to).and_then(|to| self.directs.out_to(to, how.class));
        fits(how, len) && ring.is_some_and(|at| !self.directs.outs[at].given.ring.is_over())
    }

    /// Ports to which there are rings of `class`.
    pub(crate) fn rings_of(&self, class: Class) -> Vec<PortAddress> {
        self.directs.outs.iter().filter(|out| out.class == class).map(|out| out.to).collect()
    }

    /// The engine says who serves a service.
    pub(crate) fn note_known(&mut self, service: ServiceAddress, to: Option<PortAddress>, generation: u64) {
        self.directs.known.retain(|known| known.service != service);
        if self.directs.known.len() == KNOWN_MAX {
            self.directs.known.remove(0);
        }
        self.directs.known.push(Known { service, to, generation });
    }

    /// There is a ring to another port from now on.
    pub(crate) fn add_out(&mut self, (to, class): (PortAddress, Class), given: RingToSend) {
        let first = self.sent + self.directs.sent;
        self.directs.outs.push(Out { to, class, given, first, waits: false, taken: 0 });
    }

    /// There is a ring from another port from now on.
    pub(crate) fn add_in(&mut self, given: GivenRing) {
        self.directs.ins.push(In::new(given));
    }

    /// Counts a message that goes by the engine; what its flow would like. To wait pays sooner where messages are long: each takes
    /// many times as long by the engine.
    pub(crate) fn wish_of(&mut self, to: Destination, class: Class, is_long: bool) -> Wish {
        if !self.may_have_ring(to) {
            return Wish::None;
        }
        let calm = self.unconfirmed() == 0;
        let counted = &mut self.directs.counted;
        let at = counted.iter().position(|flow| flow.to == to && flow.class == class).unwrap_or_else(|| {
            if counted.len() == COUNTED_MAX {
                counted.remove(0);
            }
            counted.push(Counted {
                to,
                class,
                messages: 0,
                wanted_after: WANTED_AFTER,
                wait_after: WAIT_AFTER,
                refused: false,
            });
            counted.len() - 1
        });
        let flow = &mut counted[at];
        flow.messages += 1;
        let is_soon = calm || is_long;
        if flow.refused || flow.messages < if is_soon { flow.wanted_after } else { flow.wait_after } {
            return Wish::None;
        }
        flow.messages = 0;
        if is_soon {
            flow.wanted_after = (flow.wanted_after * 2).min(WANTED_AFTER_MAX);
        } else {
            flow.wait_after = (flow.wait_after * 2).min(WAIT_AFTER_MAX);
        }
        if calm { Wish::Ring } else { Wish::Calm }
    }

    /// Whether messages to `to` stay on this machine, as far as is known: those that leave it are never held up for a ring.
    pub(super) fn may_have_ring(&self, to: Destination) -> bool {
        let own = self.address.node;
        match to {
            Destination::Port(to) => to.node == own && to != self.address,
            Destination::Service(service) => {
                self.known_now(service).is_none_or(|known| known.to.is_some_and(|to| to.node == own))
            }
            Destination::Connection(_) | Destination::Multicast(_) => false,
        }
    }

    /// The engine has no ring for a flow, and is not asked again.
    pub(crate) fn note_refused(&mut self, to: Destination, class: Class) {
        let mut flows = self.directs.counted.iter_mut();
        if let Some(flow) = flows.find(|flow| flow.to == to && flow.class == class) {
            flow.refused = true;
        }
    }

    /// By which way a message goes, which a ring takes or not.
    fn way(&mut self, to: Destination, class: Class, ring_takes: bool) -> Result<Way, Blocked> {
        if self.directs.outs.is_empty() {
            return Ok(Way::Engine);
        }
        match (self.directs.receiver(to), to) {
            (Some(to), _) => {
                let Some(at) = self.directs.out_to(to, class) else { return Ok(Way::Engine) };
                if self.directs.outs[at].given.ring.is_over() {
                    self.directs.outs.swap_remove(at);
                    return Ok(Way::Engine);
                }
                if ring_takes {
                    return Ok(Way::Ring(at));
                }
                self.leave(at)?;
            }
            (None, Destination::Service(_)) => {
                // It comes to one of several, and who knows to which.
                while let Some(at) = self.directs.outs.iter().position(|out| out.class == class) {
                    self.leave(at)?;
                }
            }
            (None, _) => {}
        }
        Ok(Way::Engine)
    }

    /// Leaves a ring for good once it is empty: what goes by the engine could overtake what is there.
    fn leave(&mut self, at: usize) -> Result<(), Blocked> {
        let out = &mut self.directs.outs[at];
        if !out.given.ring.is_over() && !out.given.ring.is_drained() {
            out.given.ring.await_room();
            out.waits = true;
            if !out.given.ring.is_drained() {
                return Err(Blocked);
            }
        }
        self.pair.sq.push(&Command::EndDirect(out.given.number).encode()).map_err(|_| Blocked)?;
        self.directs.outs.swap_remove(at);
        Ok(())
    }

    /// Makes room for a message that goes by the engine.
    pub(super) fn leave_rings_for(&mut self, to: Destination, how: &Manner) -> Result<(), Blocked> {
        self.way(to, how.class, false).map(drop)
    }

    /// Puts a message into a ring, if there is room, and wakes its receiver.
    fn put_at(&mut self, at: usize, to: Destination, how: &Manner, bytes: &[u8]) -> Option<()> {
        let taken = self.directs.taken;
        let out = &mut self.directs.outs[at];
        if std::mem::replace(&mut out.taken, taken) != taken {
            out.given.ring.rest();
        }
        let service = if let Destination::Service(service) = to { Some(service) } else { None };
        put(&mut out.given.ring, service, how.tag, bytes)?;
        if out.given.bell.ring() {
            lines::tell(&out.given.line);
        }
        Some(())
    }

    /// Sends a message by a ring, if it goes by one; its number. `None`: it goes by the engine.
    pub(super) fn send_direct(
        &mut self,
        to: Destination,
        how: &Manner,
        bytes: &[u8],
    ) -> Option<Result<u64, Blocked>> {
        let at = match self.way(to, how.class, fits(how, bytes.len() as u64)) {
            Ok(Way::Engine) => return None,
            Ok(Way::Ring(at)) => at,
            Err(Blocked) => return Some(Err(Blocked)),
        };
        if self.put_at(at, to, how, bytes).is_none() {
            let out = &mut self.directs.outs[at];
            out.given.ring.await_room();
            out.waits = true;
            if self.put_at(at, to, how, bytes).is_none() {
                return Some(Err(Blocked));
            }
        }
        let out = &mut self.directs.outs[at];
        if std::mem::take(&mut out.waits) {
            out.given.ring.forget_room();
        }
        let number = self.sent + self.directs.sent;
        self.directs.sent += 1;
        Some(Ok(number))
    }

    /// Looks which ports at the other ends are gone: for a client whose engine is gone, which would have said so. The first of the
    /// messages by each ring that its receiver had not taken over from the engine: they are lost with that.
    pub(crate) fn look_for_ends(&mut self) -> Vec<u64> {
        let mut lost = Vec::new();
        self.directs.outs.retain_mut(|out| {
            if out.given.line.has_ended() {
                out.given.ring.lose_receiver();
            }
            lost.extend(out.given.ring.is_in_vain().then_some(out.first));
            !out.given.ring.is_over()
        });
        for one in &mut self.directs.ins {
            if one.given.line.has_ended() {
                one.given.ring.lose_sender();
            }
        }
        self.look_for_ended_trunks();
        lost
    }

    /// Whether something may still come past the engine, or go there.
    pub(crate) fn has_ways(&self) -> bool {
        let Directs { outs, ins, .. } = &self.directs;
        outs.iter().any(|out| !out.given.ring.is_over())
            || ins.iter().any(|one| !one.given.ring.is_over())
            || self.has_trunks()
    }

    /// Messages that came by rings.
    pub(crate) fn taken_direct(&self) -> u64 {
        self.directs.taken
    }

    /// Messages that went by rings.
    pub(crate) fn sent_direct(&self) -> u64 {
        self.directs.sent
    }

    /// Whether messages may come by rings.
    #[inline]
    pub(crate) fn hears_directly(&self) -> bool {
        !self.directs.ins.is_empty()
    }

    /// Whether a message has come by a ring. If none has, senders are told how far this end is.
    #[inline]
    pub(crate) fn has_direct(&mut self) -> bool {
        !self.directs.ins.is_empty() && self.ready_ring().is_some()
    }

    /// The ring to read next, and what its next message says of itself: the most urgent that has something, in turn.
    #[inline(always)]
    fn ready_ring(&mut self) -> Option<(usize, Label)> {
        if let [only] = &mut self.directs.ins[..]
            && let Some(label) = only.peek()
        {
            return Some((0, label));
        }
        self.ready_of_all()
    }

    fn ready_of_all(&mut self) -> Option<(usize, Label)> {
        let count = self.directs.ins.len();
        let start = self.directs.turn % count.max(1);
        let mut ready: Option<(usize, Label)> = None;
        for at in (start..count).chain(0..start) {
            let ins = &mut self.directs.ins;
            let more_urgent = ready.is_none_or(|(ready, _)| ins[at].given.class < ins[ready].given.class);
            if more_urgent && let Some(label) = ins[at].peek() {
                ready = Some((at, label));
            }
        }
        if ready.is_none() {
            self.tell_senders();
        }
        ready
    }

    /// Tells senders how far this end is, wakes those that wait for room, and forgets rings whose senders are gone.
    fn tell_senders(&mut self) {
        let Directs { ins, looks, .. } = &mut self.directs;
        ins.iter_mut().for_each(In::tell);
        *looks = looks.wrapping_add(1);
        if *looks % LOOKS_FOR_ENDS == 0 {
            // In this order: what was put in before the end was told is seen now.
            ins.retain_mut(|one| {
                one.held > 0 || !one.given.ring.is_over() || one.given.ring.peek().is_some()
            });
        }
    }

    /// The next message that came by a ring, if there is one: what is known of it, and its body; that of a short one is copied to the
    /// place given.
    #[inline(always)]
    pub(crate) fn take_direct(
        &mut self,
        envelope: &mut Envelope,
        short: &mut Short,
    ) -> Option<Option<DirectBody>> {
        if self.directs.ins.is_empty() {
            return None;
        }
        let (at, label) = self.ready_ring()?;
        self.directs.turn = at + 1;
        self.directs.taken += 1;
        let ring = &mut self.directs.ins[at];
        ring.untold += 1;
        let body = take(ring, (envelope, short), label);
        if ring.untold >= TELL_MESSAGES {
            self.tell_one(at);
        }
        Some(body)
    }

    #[cold]
    fn tell_one(&mut self, at: usize) {
        let ring = &mut self.directs.ins[at];
        ring.untold = 0;
        ring.tell();
    }

    /// The memory of a message is the ring's, or its sender's, again.
    pub(crate) fn release_direct(&mut self, ring: u64, held: Held) {
        let Some(ring) = self.directs.ins.iter_mut().find(|one| one.given.number == ring) else { return };
        match held {
            Held::Arena(offset) => ring.given.ring.release(offset),
            Held::Passed(number) => ring.given.ring.return_passed(number),
        }
        ring.held = ring.held.saturating_sub(1);
        ring.tell();
    }
}

/// Puts a message into a ring, if there is room.
fn put(
    ring: &mut DirectSender,
    service: Option<ServiceAddress>,
    tag: Option<u64>,
    bytes: &[u8],
) -> Option<()> {
    slots::put(ring, label_of(service, tag), tag, bytes)
}

#[inline]
fn label_of(service: Option<ServiceAddress>, tag: Option<u64>) -> Label {
    let meta = service.map_or(0, |service| u64::from(service.kind) << 32 | u64::from(service.instance));
    let note = if service.is_some() { SERVICE } else { 0 } | if tag.is_some() { TAGGED } else { 0 };
    Label { note, meta }
}

/// Takes a message of this label from a ring. What makes no sense is empty: its sender spoils its own messages only.
#[inline]
fn take(
    ring: &mut In,
    (envelope, short): (&mut Envelope, &mut Short),
    Label { note, meta }: Label,
) -> Option<DirectBody> {
    let In { given, held, has_file, .. } = ring;
    let is_tagged = note & TAGGED != 0;
    let (front, place) = slots::take_into(&mut given.ring, note, is_tagged, short);
    let service =
        (note & SERVICE != 0).then_some(ServiceAddress { kind: (meta >> 32) as u32, instance: meta as u32 });
    let (len, body) = match place {
        Place::Short(len) => (len, None),
        Place::Long(offset, len) => (len, Some(long_body(given, held, offset, len))),
        Place::Passed(number, len) => {
            *has_file = false;
            passing::body(given, held, number, len)
        }
    };
    *envelope = Envelope {
        from: given.from,
        connection: None,
        service,
        tag: is_tagged.then_some(front),
        class: given.class,
        len: len as u64,
        notify: false,
    };
    body
}

/// A message in the arena. One of another user's program is copied: that one could change it while it is looked at.
#[inline(never)]
fn long_body(given: &mut GivenRing, held: &mut u32, offset: u64, len: usize) -> DirectBody {
    if !given.same_user {
        return DirectBody::Copied(slots::copy_out(&mut given.ring, offset, len));
    }
    *held += 1;
    DirectBody::Long { memory: given.ring.memory().clone(), offset, ring: given.number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_proto::id::{NodeId, PortId};
    use polyrail_shm::slot_ring::BODY_BYTES;
    use polyrail_shm::{Direct, DirectReceiver, PortBell};

    fn ends(same_user: bool) -> (Direct, DirectSender, In) {
        let direct = Direct::create().unwrap();
        let file = || direct.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let (sender, ring) = (DirectSender::attach(file()).unwrap(), DirectReceiver::attach(file()).unwrap());
        let from = PortAddress { node: NodeId(1), port: PortId(2) };
        let bell = PortBell::create().unwrap();
        let given = GivenRing {
            number: 7,
            from,
            class: Class::Urgent,
            same_user,
            ring,
            bell,
            line: UnixSocket::pair().unwrap().0,
        };
        (direct, sender, In::new(given))
    }

    struct DirectMessage {
        envelope: Envelope,
        body: DirectBody,
    }

    fn take(ring: &mut In) -> Option<DirectMessage> {
        let label = ring.given.ring.peek()?;
        let (mut short, mut envelope) = ([0; BODY_BYTES], Envelope::EMPTY);
        let body = super::take(ring, (&mut envelope, &mut short), label);
        Some(DirectMessage { envelope, body: body.unwrap_or(DirectBody::Short(Box::new(short))) })
    }

    fn bytes_of(message: &DirectMessage) -> &[u8] {
        message.body.bytes(message.envelope.len as usize)
    }

    #[test]
    fn all_lengths_tags_and_services_come_as_they_were_sent() {
        let service = ServiceAddress::new(1000, 7);
        for same_user in [true, false] {
            let (_keeper, mut sender, mut receiver) = ends(same_user);
            for len in (0..260).chain([65_536, DIRECT_BYTES_MAX as usize]) {
                for (service, tag) in
                    [(None, None), (Some(service), None), (None, Some(u64::MAX)), (Some(service), Some(0))]
                {
                    let sent: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                    put(&mut sender, service, tag, &sent).unwrap();
                    let message = take(&mut receiver).unwrap();
                    assert_eq!((message.envelope.service, message.envelope.tag), (service, tag));
                    assert_eq!((message.envelope.class, message.envelope.len), (Class::Urgent, len as u64));
                    assert_eq!(bytes_of(&message), sent);
                    if let DirectBody::Long { offset, .. } = message.body {
                        receiver.given.ring.release(offset);
                    }
                    assert!(take(&mut receiver).is_none());
                }
            }
        }
    }

    #[test]
    fn a_sender_that_scribbles_spoils_its_own_messages_only() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let (keeper, mut sender, mut receiver) = ends(true);
        let mut taken = 0;
        for round in 0..100_000u64 {
            receiver.given.same_user = round % 3 != 0;
            let front = (128 + 4_096 + 32_768 * 128 + 8_192) / 8;
            let value = if next() % 2 == 0 { next() } else { ((round % 1_100) << 32) | (next() % 1_024) };
            keeper.segment().write_at(next() % front * 8, &value.to_ne_bytes());
            if next() % 4 == 0 {
                let _ = put(&mut sender, None, Some(value), &[1; 300]);
            }
            if let Some(message) = take(&mut receiver) {
                taken += 1;
                let sum: u64 = bytes_of(&message).iter().map(|&byte| u64::from(byte)).sum();
                assert!(sum < u64::MAX);
                if let DirectBody::Long { offset, .. } = message.body {
                    receiver.given.ring.release(offset);
                }
            }
        }
        assert!(taken > 0);
    }

    #[test]
    fn failures_name_the_message_whatever_went_past_the_engine_meanwhile() {
        let mut directs = Directs::default();
        let mut seqs = Vec::new();
        let mut seq = 0;
        for number in 0..10_000u64 {
            if number % 7 < 3 {
                directs.note_engine(seq);
                seqs.push((seq, number));
                seq += 1;
            } else {
                directs.sent += 1;
            }
        }
        for (seq, number) in &seqs[seqs.len() - 3_000..] {
            assert_eq!(seq + directs.before(*seq), *number);
        }
    }
}
