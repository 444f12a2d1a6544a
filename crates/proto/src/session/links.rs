//! What happens to the links of a session, and what follows from it for what they carry (protocol.md §6.4, §6.5).

use super::receive::Taken;
use super::{Cx, Notice, Session};
use crate::address::MediaAddress;
use crate::event::Event;
use crate::id::{BearerId, LinkId};
use crate::link::losses::Losses;
use crate::link::pace::Pace;
use crate::link::state::{LinkEvent, LinkState, Transition};
use crate::time::Instant;
use crate::wire::{self, LinkStatus, ProbeKind, ProbeReply};

impl Session {
    /// A bearer's carrier came or went.
    pub(crate) fn handle_carrier(&mut self, cx: &mut Cx<'_>, bearer: BearerId, carrier: bool) {
        #[cfg(feature = "planted")]
        if cx.config.planted(crate::planted::Planted::CarrierIgnored) {
            return;
        }
        self.quiet.stir();
        for index in 0..self.links.len() {
            if self.links[index].spec.bearer == bearer && self.links[index].carrier != carrier {
                self.links[index].carrier = carrier;
                let event = if carrier { LinkEvent::CarrierBack } else { LinkEvent::CarrierLost };
                self.link_event(cx, index, event);
                if carrier {
                    self.links[index].on_carrier_back(cx.now);
                }
            }
        }
        self.note_isolation(cx.now);
    }

    /// Somebody said how large packets to `to` may be.
    pub(crate) fn handle_mtu_hint(&mut self, now: Instant, bearer: BearerId, to: &MediaAddress, mtu: u16) {
        for link in &mut self.links {
            if link.spec.bearer == bearer && link.spec.to == *to {
                link.mtu.on_hint(now, mtu & !7);
                self.quiet.stir();
            }
        }
    }

    /// Feeds an event to a link's state machine and draws the consequences.
    pub(crate) fn link_event(&mut self, cx: &mut Cx<'_>, index: usize, event: LinkEvent) {
        if let Some(change) = self.links[index].state.handle(cx.now, event) {
            self.on_transition(cx, index, change);
        }
    }

    pub(super) fn on_transition(&mut self, cx: &mut Cx<'_>, index: usize, change: Transition) {
        use LinkState::{Damped, Down, Probation, Suspect, Up};
        let only = self.is_only_link(index);
        let link = &mut self.links[index];
        let (id, bearer) = (link.spec.id, link.spec.bearer);
        let mut items = std::mem::take(&mut self.scratch);
        match change.to {
            Suspect => {
                link.stats.failures += 1;
                link.probe = Some(ProbeKind::Liveness);
                if !only {
                    link.sent.copy_older(cx.now, |item| items.push(item));
                }
                self.repeat(&mut items, index);
            }
            Down | Damped if change.from != Down => {
                if matches!(change.from, Up | Probation) {
                    link.stats.failures += 1;
                }
                link.stats.packets_lost += link.sent.abandon(|item| items.push(item));
                link.copies.clear();
                link.pto_count = 0;
                #[cfg(feature = "planted")]
                if cx.config.planted(crate::planted::Planted::ForgottenRetransmission) {
                    items.clear();
                }
                self.repeat(&mut items, index);
                let next = self.links[index].sent.next() as u32;
                // The peer finds out by itself too; what it does not confirm must not pile up.
                if self.control.has_room() && !self.is_told_of(change.why) {
                    self.control.push(Notice::LinkSet(id, LinkStatus::Down, next));
                }
            }
            Probation => {
                link.pto_count = 0;
                link.window.probation(cx.now);
                link.pace = Pace::default();
                link.losses = Losses::new(cx.now);
            }
            Up => {
                link.pto_count = 0;
                self.repeat_wish(index, change.from);
            }
            _ => {}
        }
        items.clear();
        self.scratch = items;
        self.forget_choices();
        self.note_isolation(cx.now);
        let node = self.peer.node;
        let Transition { from, to, why } = change;
        cx.events.push_back(Event::Link { node, link: id, bearer, from, to, why });
    }

    pub(super) fn note_isolation(&mut self, now: Instant) {
        let sound = self.links.iter().any(|l| l.carrier && l.state.usable());
        for link in &mut self.links {
            link.pressed = !sound && link.state.state() == LinkState::Damped;
        }
        if self.is_up() {
            self.isolated_since = None;
        } else if self.isolated_since.is_none() {
            self.isolated_since = Some(self.silent_since().unwrap_or(now));
        }
    }

    /// Since when no link has answered: a link is suspect some probe time-outs after what it has not answered was sent.
    fn silent_since(&self) -> Option<Instant> {
        let suspects = self.links.iter().filter(|link| link.state.state() == LinkState::Suspect);
        let asked_at = suspects.filter_map(|link| link.sent.oldest_sent_at()).max()?;
        self.links.iter().map(|link| link.received.heard_at()).chain([asked_at]).max()
    }

    pub(super) fn on_probe(&mut self, cx: &mut Cx<'_>, index: usize, probe: &wire::Probe) -> Taken {
        let Some(about) = self.link_index(probe.about) else { return Taken::Yes };
        let link = &self.links[about];
        let reply = ProbeReply {
            id: probe.id,
            about: probe.about,
            kind: probe.kind,
            last_rx: link.received.largest().unwrap_or(0),
            last_rx_age: (link.received.silent_since(cx.now).0 >> 8).min(u32::MAX as u64) as u32,
            next_tx: link.sent.next(),
            carrier: link.carrier,
            stall_us: 0,
            size: probe.size,
        };
        if probe.kind == ProbeKind::Join && about == index {
            self.learn_peer_bearer(index, probe.target);
        }
        let carrying = &mut self.links[index];
        if probe.kind == ProbeKind::Join || probe.kind == ProbeKind::State {
            if carrying.replies.is_full() {
                carrying.replies.remove(0);
            }
            carrying.replies.push(reply);
            if probe.kind == ProbeKind::Join {
                carrying.join_back(cx.now);
            }
        }
        Taken::Yes
    }

    pub(super) fn on_probe_reply(&mut self, cx: &mut Cx<'_>, index: usize, reply: &ProbeReply) -> Taken {
        if reply.kind == ProbeKind::State {
            self.assigners.on_answer();
        }
        if reply.kind == ProbeKind::Join && self.links[index].spec.id == reply.about {
            self.link_event(cx, index, LinkEvent::Joined);
            self.last_proof_at = cx.now;
        }
        Taken::Yes
    }

    /// The news travels by other links and may be late: what the peer has sent on this link since speaks against it.
    pub(super) fn peer_says_down(&mut self, cx: &mut Cx<'_>, id: LinkId, next: u32) {
        let Some(index) = self.link_index(id) else { return };
        let heard = self.links[index].received.largest();
        let outdated = heard.is_some_and(|largest| (largest as u32).wrapping_sub(next) < u32::MAX / 2);
        if !outdated {
            self.link_event(cx, index, LinkEvent::PeerSaysDown);
        }
    }
}
