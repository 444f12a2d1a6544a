//! What a session does because time has passed, and when it wants to be asked again.

use super::serving::Serving;
use super::{Cx, Session};
use crate::config::Config;
use crate::link::state::LinkEvent;
use crate::time::{Duration, Instant};
use crate::wire::ProbeKind;

/// How long a link that is not usable waits for the answer to a question.
pub(super) const UNANSWERED: Duration = Duration::s(1);
/// A session that confirms nothing for this long after a reset said that the peer does not know it is given up.
pub(super) const DOUBT: Duration = Duration::ms(50);

impl Session {
    /// Has the peer been silent for longer than is tolerated?
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        let isolated = self.isolated_since.is_some_and(|since| now.since(since) >= self.tolerance);
        isolated || self.doubt_ends_at() <= now
    }

    /// The earliest moment at which the session wants to be looked at; at times too early, for it is computed only when
    /// something happened.
    #[inline]
    pub(crate) fn deadline(&mut self, now: Instant, config: &Config) -> Instant {
        self.quiet.deadline().unwrap_or_else(|| {
            let at = self.compute_deadline(now, config);
            self.quiet.note_deadline(at);
            at
        })
    }

    fn compute_deadline(&self, now: Instant, config: &Config) -> Instant {
        let (busy, carried) = (self.is_busy(now), self.is_up());
        if carried && !self.announced {
            // While messages pass all the time nothing else may be due for long, and further links wait for that.
            return now;
        }
        let mut at = self.isolated_since.map_or(Instant::NEVER, |since| since + self.tolerance);
        at = at.min(self.trials.deadline());
        at = at.min(self.doubt_ends_at()).min(self.sending.deadlines.next_at());
        for link in &self.links {
            at = at.min(link.deadline(config, busy, carried));
        }
        for flow in &self.sending.refused {
            if let Some(flow) = self.sending.flows.get(*flow) {
                at = at.min(flow.retry_at());
            }
        }
        at
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.quiet.stir();
        let busy = self.is_busy(cx.now);
        for index in 0..self.links.len() {
            self.link_timeout(cx, index);
            self.links[index].check_probe(cx.now, cx.config, busy);
        }
        self.try_links(cx.now);
        self.retry_refused(cx.now);
        self.expire(cx);
    }

    fn link_timeout(&mut self, cx: &mut Cx<'_>, index: usize) {
        let now = cx.now;
        if !self.links[index].usable() {
            self.links[index].sent.forget_unanswered(now - UNANSWERED);
        }
        if self.links[index].loss_at() <= now {
            self.detect_losses(cx, index);
        }
        if self.links[index].usable() && self.links[index].pto_at() <= now {
            self.probe_timeout(cx, index);
        }
        if self.links[index].state.deadline() <= now
            && let Some(change) = self.links[index].state.handle_timeout(now)
        {
            self.on_transition(cx, index, change);
        }
    }

    /// Nothing was confirmed for a probe time-out (protocol.md §5.4): ask, and let other links carry copies; the
    /// second time in a row the link is suspect.
    fn probe_timeout(&mut self, cx: &mut Cx<'_>, index: usize) {
        let link = &mut self.links[index];
        link.pto_count += 1;
        link.restart_pto(cx.now);
        link.stats.probe_timeouts += 1;
        link.probe = Some(ProbeKind::Liveness);
        let silent = link.pto_count >= 2;
        // With another link to go by, nothing waits to see whether the youngest packets are confirmed after all.
        let sure = Serving::of(&self.links).has_sure_link();
        let before = if sure { cx.now } else { cx.now - self.links[index].rtt.srtt() };
        let mut items = std::mem::take(&mut self.scratch);
        let only = self.is_only_link(index);
        let sent = &mut self.links[index].sent;
        if !only {
            sent.copy_older(before, |item| items.push(item));
        } else if !silent {
            // There is no other way: all of it again would only come twice if the peer is just slow. This much makes up for a
            // loss that nothing sent later brings to light.
            sent.copy_oldest(before, |item| items.push(item));
        }
        self.repeat(&mut items, index);
        self.scratch = items;
        if silent {
            self.link_event(cx, index, LinkEvent::Silence);
        }
    }

    /// Whether messages have no other link to leave by.
    pub(super) fn is_only_link(&self, index: usize) -> bool {
        !self.links.iter().enumerate().any(|(other, link)| other != index && link.usable())
    }

    /// The driver is about to sleep (see [`crate::Node::handle_idle`]).
    pub(crate) fn handle_idle(&mut self) {
        for link in &mut self.links {
            if link.received.hasten() {
                self.quiet.stir();
            }
        }
    }

    /// The driver was away for `stall`: deadlines by time are that much later, for we may accuse nobody.
    pub(crate) fn handle_stall(&mut self, stall: Duration) {
        // Nothing comes any earlier by it, so that what is known of this session holds.
        for link in &mut self.links {
            link.shift(stall);
        }
        for at in [&mut self.isolated_since, &mut self.doubted_at].into_iter().flatten() {
            *at += stall;
        }
    }

    /// Somebody says that the peer does not know this session: ask, and be patient only for a while.
    pub(crate) fn doubt(&mut self, now: Instant) {
        self.ask();
        if self.doubt_ends_at() == Instant::NEVER {
            self.doubted_at = Some(now);
        }
    }

    /// Asks the peer by every link whether it is there.
    pub(crate) fn ask(&mut self) {
        for link in &mut self.links {
            link.probe = Some(ProbeKind::Liveness);
        }
        self.quiet.stir();
    }

    /// When the session is given up unless its peer answers before.
    fn doubt_ends_at(&self) -> Instant {
        let open = self.doubted_at.filter(|at| self.last_proof_at <= *at);
        open.map_or(Instant::NEVER, |at| at + DOUBT)
    }
}
