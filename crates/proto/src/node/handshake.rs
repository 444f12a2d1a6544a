//! Opening sessions and their links (protocol.md §3.2, §6.1, §6.3).

use super::{Bearer, Node, Source};
use crate::address::MediaAddress;
use crate::id::{BearerId, Incarnation, LinkId, NodeId, SessionId};
use crate::limits;
use crate::link::LinkSpec;
use crate::session::{Cx, Session};
use crate::store::Store;
use crate::time::{Duration, Instant};
use crate::wire::{self, Close, Frame, Frames, Header, Hello, PacketType, ProbeKind, Reset};
use arrayvec::ArrayVec;

/// A session that we try to open.
#[derive(Debug)]
pub(super) struct Attempt {
    bearer: BearerId,
    to: MediaAddress,
    node: Option<NodeId>,
    number: u32,
    slot: usize,
    tries: u32,
    started_at: Instant,
    /// When the next INIT leaves; `NEVER` while a session exists.
    pub(super) next_at: Instant,
    /// Configured by hand: never given up.
    fixed: bool,
}

/// Tries after which an attempt that a beacon caused is given up (the next beacon starts another).
const TRIES_MAX: u32 = 6;
/// A newcomer with a known identity is believed to be a restart after the old life was silent for this long.
const CONTEST: Duration = Duration::ms(150);
/// A contest that nobody pressed for this long is over: the next newcomer starts another.
const CONTEST_FORGOTTEN: Duration = Duration::s(3);
/// A session this young is not replaced because of an opening that crossed ours.
const CROSSING: Duration = Duration::s(1);

impl Node {
    /// Opens a session with whoever answers at `to`, and keeps trying for as long as there is none.
    pub fn connect(&mut self, now: Instant, bearer: BearerId, to: MediaAddress) {
        let is_there = |session: &&Session| session.peer.bearers.iter().any(|b| b.address == to);
        let known = self.sessions().find(is_there).map(|session| session.peer.node);
        self.attempt(now, bearer, &to, known, true, Duration::ZERO);
        if known.is_some() {
            // A bearer that came later: there is a session already, so this is for the case that it ends.
            self.rest_attempts(|attempt| attempt.node == known);
        }
    }

    /// Attempts rest while there is a session.
    fn rest_attempts(&mut self, which: impl Fn(&Attempt) -> bool) {
        for attempt in self.attempts.iter_mut().filter(|a| which(a) && a.next_at != Instant::NEVER) {
            self.slots[attempt.slot].reserved = false;
            attempt.next_at = Instant::NEVER;
        }
    }

    /// The bearer of some attempts is gone.
    pub(super) fn drop_attempts_by(&mut self, bearer: BearerId) {
        self.forget_attempts(|attempt| attempt.bearer == bearer);
    }

    /// Forgets attempts. The slot of one that rests is another's by now.
    fn forget_attempts(&mut self, which: impl Fn(&Attempt) -> bool) {
        for attempt in self.attempts.iter().filter(|a| which(a) && a.next_at != Instant::NEVER) {
            self.slots[attempt.slot].reserved = false;
        }
        self.attempts.retain(|attempt| !which(attempt));
    }

    /// Forgets configured peers that are not in `keep` (names may resolve to other addresses over time).
    pub fn retain_connects(&mut self, keep: impl Fn(&MediaAddress) -> bool) {
        self.forget_attempts(|attempt| attempt.fixed && !keep(&attempt.to));
    }

    pub(super) fn attempt(
        &mut self,
        now: Instant,
        bearer: BearerId,
        to: &MediaAddress,
        node: Option<NodeId>,
        fixed: bool,
        wait: Duration,
    ) {
        let known = |a: &Attempt| {
            (a.bearer == bearer && a.to == *to) || (node.is_some() && a.node == node && !a.fixed)
        };
        if let Some(old) = self.attempts.iter_mut().find(|a| known(a)) {
            old.fixed |= fixed;
            return;
        }
        if self.slots.iter().filter(|s| s.session.is_some() || s.reserved).count() >= limits::SESSIONS_MAX {
            self.drops.opening += 1;
            return;
        }
        let slot = self.free_slot();
        self.slots[slot].reserved = true;
        self.next_attempt = self.next_attempt.wrapping_add(1);
        let number = self.next_attempt;
        let next_at = now + wait;
        let to = to.clone();
        self.attempts.push(Attempt {
            bearer,
            to,
            node,
            number,
            slot,
            tries: 0,
            started_at: next_at,
            next_at,
            fixed,
        });
    }

    pub(super) fn retry_attempts(&mut self, now: Instant) {
        for index in 0..self.attempts.len() {
            let attempt = &self.attempts[index];
            if attempt.next_at > now {
                continue;
            }
            let (bearer, to, number, slot) =
                (attempt.bearer, attempt.to.clone(), attempt.number, attempt.slot);
            let hello = self.hello(self.session_id(slot), number, bearer);
            let mut out = Vec::new();
            hello.emit_packet(PacketType::Init, SessionId(0), now.stamp(), &mut out);
            self.post(bearer, Some(to), out);
            let attempt = &mut self.attempts[index];
            attempt.tries += 1;
            attempt.next_at = now + Duration::ms((50u64 << attempt.tries.min(4)).min(1_000));
        }
        let done: Vec<usize> =
            self.attempts.iter().filter(|a| !a.fixed && a.tries > TRIES_MAX).map(|a| a.slot).collect();
        for slot in done {
            self.drop_attempt(slot);
        }
    }

    fn drop_attempt(&mut self, slot: usize) {
        self.slots[slot].reserved = false;
        self.attempts.retain(|a| a.slot != slot);
    }

    /// A session with `node` is over: configured peers are tried again.
    pub(super) fn revive_attempts(&mut self, now: Instant, node: NodeId) {
        for index in 0..self.attempts.len() {
            if self.attempts[index].node == Some(node) && self.attempts[index].next_at == Instant::NEVER {
                self.next_attempt = self.next_attempt.wrapping_add(1);
                let slot = self.free_slot();
                self.slots[slot].reserved = true;
                let attempt = &mut self.attempts[index];
                (attempt.number, attempt.slot, attempt.tries) = (self.next_attempt, slot, 0);
                attempt.next_at = now + Duration::ms(20);
            }
        }
    }

    /// Attempts towards a node that we have a session with now: configured ones rest, others end.
    fn settle_attempts(&mut self, node: NodeId, bearer: BearerId, from: &MediaAddress) {
        for attempt in &mut self.attempts {
            if attempt.bearer == bearer && attempt.to == *from {
                attempt.node = Some(node);
            }
        }
        let settled: Vec<usize> =
            self.attempts.iter().filter(|a| a.node == Some(node)).map(|a| a.slot).collect();
        for slot in settled {
            self.slots[slot].reserved = false;
        }
        self.attempts.retain(|a| a.node != Some(node) || a.fixed);
        for attempt in self.attempts.iter_mut().filter(|a| a.node == Some(node)) {
            attempt.next_at = Instant::NEVER;
        }
    }

    /// What we say of ourselves when opening a session.
    pub(super) fn hello(&self, session: SessionId, attempt: u32, bearer: BearerId) -> Hello {
        let mut bearers = ArrayVec::new();
        let all = (0..self.bearers.len()).filter_map(|at| self.bearer_address(BearerId(at as u8)));
        all.for_each(|address| drop(bearers.try_push(address)));
        Hello {
            cluster: self.config.cluster,
            node: self.config.node,
            incarnation: self.config.incarnation,
            session,
            attempt,
            echo: Incarnation(0),
            versions: (wire::VERSION, wire::VERSION),
            features: wire::FEATURES,
            bearer,
            eager_bytes_max: limits::UNASKED_BYTES_MAX as u32,
            initial_credit: limits::INITIAL_CREDIT,
            tolerance_ms: (self.config.tolerance.0 / 1_000_000).min(u32::MAX as u64) as u32,
            host: self.config.host,
            name: self.config.name,
            bearers,
        }
    }

    fn hello_for_us(&mut self, body: &[u8]) -> Option<Hello> {
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(malformed) => {
                self.note_malformed(malformed.what);
                return None;
            }
        };
        if hello.cluster != self.config.cluster {
            self.drops.foreign_cluster += 1;
            return None;
        }
        Some(hello)
    }

    pub(super) fn on_init(
        &mut self,
        now: Instant,
        bearer: BearerId,
        from: &MediaAddress,
        body: &[u8],
        store: &mut dyn Store,
    ) {
        let Some(hello) = self.hello_for_us(body) else { return };
        if hello.node == self.config.node {
            if hello.incarnation != self.config.incarnation {
                self.report_duplicate(now, hello.node, from);
            }
            return;
        }
        if let Some(&slot) = self.by_node.get(&hello.node) {
            match self.judge_newcomer(now, slot, &hello, from) {
                Newcomer::Repeated => return self.answer(now, slot, bearer, from),
                Newcomer::Doubted => {
                    self.drops.repeated_opening += 1;
                    return;
                }
                Newcomer::Refused => {
                    self.drops.opening += 1;
                    return;
                }
                Newcomer::Replaces => self.end_session(now, slot, store, false),
            }
        }
        // When both open at once the lower identity's attempt counts.
        let crossing = self.attempts.iter().any(|a| {
            let same = a.node == Some(hello.node) || (a.bearer == bearer && a.to == *from);
            same && a.tries > 0 && a.next_at != Instant::NEVER && now.since(a.started_at) < CROSSING
        });
        if crossing && self.config.node < hello.node {
            return;
        }
        let taken = self.slots.iter().filter(|s| s.session.is_some()).count();
        if taken >= limits::SESSIONS_MAX {
            self.drops.opening += 1;
            return;
        }
        let slot = self.free_slot();
        self.establish(now, slot, bearer, from, &hello, false);
        self.answer(now, slot, bearer, from);
    }

    /// Somebody opens a session although we have one with that identity (protocol.md §6.1).
    fn judge_newcomer(&mut self, now: Instant, slot: usize, hello: &Hello, from: &MediaAddress) -> Newcomer {
        let Some(session) = &mut self.slots[slot].session else { return Newcomer::Replaces };
        if session.peer.incarnation == hello.incarnation {
            if !session.initiator && session.attempt == hello.attempt {
                return Newcomer::Repeated;
            }
            let young = session.links.first().is_some_and(|l| now.since(l.created_at()) < CROSSING);
            let older = !session.initiator && (session.attempt.wrapping_sub(hello.attempt) as i32) > 0;
            // A peer that has lost the session opens another; so does whoever repeats an old opening of it.
            let gone = !older && !young && ask(now, session) == Known::Silent;
            return if gone { Newcomer::Replaces } else { Newcomer::Doubted };
        }
        self.judge_other_life(now, slot, hello, from)
    }

    /// The same for another life, whichever side opened: a restart, a move to another machine, or a clone.
    fn judge_other_life(
        &mut self,
        now: Instant,
        slot: usize,
        hello: &Hello,
        from: &MediaAddress,
    ) -> Newcomer {
        let Some(session) = &mut self.slots[slot].session else { return Newcomer::Replaces };
        if session.peer.host == hello.host && hello.host != 0 {
            return Newcomer::Replaces;
        }
        // Another machine with the same identity: ask the one that we know.
        match ask(now, session) {
            Known::Silent => Newcomer::Replaces,
            Known::Asked => Newcomer::Refused,
            Known::Alive => {
                self.report_duplicate(now, hello.node, from);
                Newcomer::Refused
            }
        }
    }

    /// Sends RESP for the session in `slot`.
    fn answer(&mut self, now: Instant, slot: usize, bearer: BearerId, to: &MediaAddress) {
        let Some(session) = &self.slots[slot].session else { return };
        let (peer_session, attempt, echo) = (session.peer.session, session.attempt, session.peer.incarnation);
        let hello = Hello { echo, ..self.hello(self.session_id(slot), attempt, bearer) };
        let mut out = Vec::new();
        hello.emit_packet(PacketType::Resp, peer_session, now.stamp(), &mut out);
        self.post(bearer, Some(to.clone()), out);
    }

    pub(super) fn on_resp(
        &mut self,
        now: Instant,
        bearer: BearerId,
        from: &MediaAddress,
        header: &Header,
        body: &[u8],
        store: &mut dyn Store,
    ) {
        let Some(hello) = self.hello_for_us(body) else { return };
        let slot = (header.to.0 & 0xffff) as usize;
        let ours = self
            .attempts
            .iter()
            .any(|a| a.slot == slot && a.number == hello.attempt && a.next_at != Instant::NEVER);
        if !ours || self.session_id(slot) != header.to || hello.echo != self.config.incarnation {
            return;
        }
        if hello.node == self.config.node {
            return self.drop_attempt(slot);
        }
        if let Some(&old) = self.by_node.get(&hello.node) {
            // Both openings went through: the lower identity's session stays.
            let same_life =
                self.slots[old].session.as_ref().is_some_and(|s| s.peer.incarnation == hello.incarnation);
            if same_life && self.config.node > hello.node {
                return self.settle_attempts(hello.node, bearer, from);
            }
            // A clone answers us as readily as it calls: whoever it claims to be is asked first.
            if !same_life && !matches!(self.judge_other_life(now, old, &hello, from), Newcomer::Replaces) {
                self.drops.opening += 1;
                return;
            }
            self.end_session(now, old, store, false);
        }
        // Whoever answered and from wherever, the attempt is over: a second answer must not find it, for it would put
        // another session into the place of this one, whose messages nobody would end.
        for attempt in self.attempts.iter_mut().filter(|a| a.slot == slot && a.number == hello.attempt) {
            attempt.node = Some(hello.node);
        }
        self.establish(now, slot, bearer, from, &hello, true);
    }

    fn establish(
        &mut self,
        now: Instant,
        slot: usize,
        bearer: BearerId,
        from: &MediaAddress,
        hello: &Hello,
        initiator: bool,
    ) {
        let index = self.session_id(slot);
        let mut session = Session::new(now, index, hello.into(), initiator, hello.attempt, &self.config);
        for (port, entry) in &self.ports {
            session.set_policy(*port, entry.policy);
        }
        let Some(spec) = link_spec(&self.bearers, LinkId(0), bearer, from, hello.bearer, &session) else {
            return;
        };
        session.add_link(now, spec, &self.config);
        self.slots[slot].session = Some(Box::new(session));
        self.slots[slot].reserved = false;
        self.by_node.insert(hello.node, slot);
        let asked_at =
            self.attempts.iter().filter(|a| initiator && a.number == hello.attempt).map(|a| a.started_at);
        if asked_at.min().is_some_and(|asked_at| self.bearers_at > asked_at) {
            // The peer may have been told before something changed.
            self.tell_bearers_again(slot);
        }
        self.settle_attempts(hello.node, bearer, from);
    }

    /// Adds every further link that the two nodes' bearers allow; the initiator does it.
    pub(super) fn extend_session(&mut self, now: Instant, slot: usize) {
        let Some(session) = &self.slots[slot].session else { return };
        if !session.initiator {
            return;
        }
        let mut wanted = Vec::new();
        for (i, own) in self.bearers.iter().enumerate().filter(|(_, own)| own.closed_at.is_none()) {
            let rank = self.bearers[..i].iter().filter(|b| b.info.reaches(&own.info.address)).count();
            let there: Vec<_> =
                session.peer.bearers.iter().filter(|p| own.info.reaches(&p.address)).collect();
            if !there.is_empty() && !own.info.ambiguous {
                let choice = there[rank % there.len()];
                wanted.push((BearerId(i as u8), choice.address.clone(), choice.bearer));
            }
        }
        let node = session.peer.node;
        for (bearer, to, peer_bearer) in wanted {
            self.add_candidate(now, node, bearer, &to, peer_bearer);
        }
    }

    /// A further pair of attachments over which a peer may be reached.
    pub(super) fn add_candidate(
        &mut self,
        now: Instant,
        node: NodeId,
        bearer: BearerId,
        to: &MediaAddress,
        peer: BearerId,
    ) {
        let Some(&slot) = self.by_node.get(&node) else { return };
        let Some(session) = &mut self.slots[slot].session else { return };
        let full = session.links.len() >= limits::LINKS_MAX;
        let paired = session.links.iter().any(|l| l.spec.bearer == bearer && l.spec.peer_bearer == peer);
        if full || paired || session.has_link(bearer, to) {
            return;
        }
        let Some(id) = session.allocate_link() else {
            self.drops.links_refused += 1;
            return;
        };
        if let Some(spec) = link_spec(&self.bearers, id, bearer, to, peer, session) {
            session.add_link(now, spec, &self.config);
        }
    }

    /// A packet on a link that we do not know: if it asks to join, the link is made (protocol.md §6.3), in the place of one over
    /// the same bearers that the initiator has closed.
    pub(super) fn join_unknown(
        &mut self,
        now: Instant,
        slot: usize,
        source: &Source<'_>,
        packet: &[u8],
        store: &mut dyn Store,
    ) -> Option<usize> {
        let session = self.slots[slot].session.as_mut()?;
        let header = Header::parse(packet).ok()?;
        if session.initiator || session.is_retired(header.link) {
            return None;
        }
        let join = Frames::new(&packet[wire::HEADER_BYTES..], wire::HEADER_BYTES).find_map(|f| match f {
            Ok(Frame::Probe(p)) if p.kind == ProbeKind::Join && p.about == header.link => Some(p),
            _ => None,
        })?;
        if let Some(over) = session.superseded_by(header.link, source.bearer, source.from) {
            let closed = session.close_links(cx!(self, now, store), |link| link.spec.id == over);
            let node = session.peer.node;
            self.tell_links_closed(node, &closed);
        }
        let session = self.slots[slot].session.as_mut()?;
        if session.links.len() >= limits::LINKS_MAX || session.has_link(source.bearer, source.from) {
            return None;
        }
        let peer_bearer = BearerId(join.target as u8);
        let spec = link_spec(&self.bearers, header.link, source.bearer, source.from, peer_bearer, session)?;
        session.add_link(now, spec, &self.config);
        Some(session.links.len() - 1)
    }

    /// "Your session does not exist here", at most every 5 ms.
    pub(super) fn send_reset(
        &mut self,
        now: Instant,
        bearer: BearerId,
        to: &MediaAddress,
        session: SessionId,
    ) {
        if now < self.reset_at {
            return;
        }
        self.reset_at = now + Duration::ms(5);
        let mut out = Vec::new();
        let (node, incarnation) = (self.config.node, self.config.incarnation);
        Reset { session, node, incarnation }.emit_packet(now.stamp(), &mut out);
        self.post(bearer, Some(to.clone()), out);
    }

    /// A peer does not know our session. Anyone can say so; it only makes us ask, and shortens the patience.
    pub(super) fn on_reset(&mut self, now: Instant, bearer: BearerId, from: &MediaAddress, body: &[u8]) {
        let reset = match Reset::parse(body) {
            Ok(reset) => reset,
            Err(malformed) => return self.note_malformed(malformed.what),
        };
        let Some(&slot) = self.by_node.get(&reset.node) else { return };
        let Some(session) = &mut self.slots[slot].session else { return };
        let named = session.peer.session == reset.session && session.links.iter().any(|l| l.spec.to == *from);
        if !named {
            return;
        }
        session.doubt(now);
        // Who opened this session, and was never heard in it, did not get the answer: it was lost.
        if !session.initiator && session.links.iter().all(|l| l.received.largest().is_none()) {
            self.answer(now, slot, bearer, from);
        }
    }

    pub(super) fn post_close(&mut self, now: Instant, slot: usize, reason: u16) {
        let Some(session) = &mut self.slots[slot].session else { return };
        // What has been received is said once more: the word may come before acknowledgements sent earlier, and whoever
        // hears it ends what is not confirmed.
        let heard = session.links.iter_mut().filter(|l| l.received.largest().is_some());
        let acks: Vec<wire::Ack> = heard.map(|l| l.received.build(now, l.spec.id)).collect();
        let mut packets = Vec::new();
        for link in session.links.iter_mut().filter(|l| l.usable()) {
            let mut out = Vec::new();
            let header = Header {
                kind: PacketType::Data,
                flags: wire::header::FLAG_TRAIN_LAST,
                link: link.spec.id,
                to: session.peer.session,
                number: link.sent.next(),
                stamp: now.stamp(),
                check: 0,
            };
            link.sent.skip(1);
            header.emit(&mut out);
            for ack in &acks {
                if out.len() + ack.emitted_bytes() + Close::BYTES <= link.mtu.current() as usize {
                    ack.emit(&mut out);
                }
            }
            Close { reason }.emit(&mut out);
            let check = wire::check_of(&out);
            wire::put_check(&mut out, check);
            packets.push((link.spec.bearer, link.spec.to.clone(), out));
        }
        for (bearer, to, out) in packets {
            self.post(bearer, Some(to), out);
        }
    }
}

enum Newcomer {
    Repeated,
    /// The life that we know, which may have lost the session.
    Doubted,
    Refused,
    Replaces,
}

/// What the peer of a session says to a newcomer that claims to be it.
#[derive(PartialEq, Eq)]
enum Known {
    /// Nothing yet.
    Asked,
    /// It lives.
    Alive,
    /// Nothing for long enough.
    Silent,
}

/// Asks the peer that we know, again with every call, and says what came of it.
fn ask(now: Instant, session: &mut Session) -> Known {
    session.ask();
    let since = *session.contested.get_or_insert(now);
    if now.since(since) > CONTEST_FORGOTTEN {
        session.contested = Some(now);
        return Known::Asked;
    }
    if session.last_proof_at() > since {
        session.contested = None;
        return Known::Alive;
    }
    if now.since(since) < CONTEST { Known::Asked } else { Known::Silent }
}

fn link_spec(
    bearers: &[Bearer],
    id: LinkId,
    bearer: BearerId,
    to: &MediaAddress,
    peer_bearer: BearerId,
    session: &Session,
) -> Option<LinkSpec> {
    let own = &bearers.get(bearer.0 as usize)?.info;
    let theirs = session.peer.bearers.iter().find(|b| b.bearer == peer_bearer);
    let mtu = session.mtu_between(own.mtu, peer_bearer);
    let window = theirs.map_or(own.window, |t| t.window_bytes).max(16_384);
    let (near, standby) = (own.near, own.standby);
    Some(LinkSpec { id, bearer, peer_bearer, to: to.clone(), mtu, window, lossless: false, near, standby })
}
