//! Whether links pass the same narrow place, so that a second one adds nothing (protocol.md §5.12).
//!
//! From what each link delivers nobody can tell: two links of 500 Mbit/s look like halves of one of 1 Gbit/s. So it is
//! tried, seldom and shortly: while more waits than all links carry, one of them takes nothing of large messages. If
//! the others deliver then what it no longer does, they were held up by it before.

use super::Session;
use super::serving::Serving;
use crate::id::LinkId;
use crate::time::{Duration, Instant};

/// More waits than the links carry while so much does.
pub(super) const PLENTY_BYTES: u64 = 256 << 10;
/// How often it is looked whether that is so, and how much oftener it must have been so than not before anything is tried:
/// windows run empty for a moment now and then.
const LOOK: Duration = Duration::ms(10);
const LOOKS_MIN: u32 = 500;
/// So many looks that find it so are forgotten where one does not.
const LOOKS_FORGOTTEN: u32 = 4;
/// Between trials: until each link was tried `VOTES` times, and afterwards.
const PAUSE: Duration = Duration::s(3);
const PAUSE_LONG: Duration = Duration::s(60);
/// What the links deliver is counted for so long, before and while one is left out; and it is given as long to settle.
const SPAN: Duration = Duration::ms(20);
/// In which a link must deliver so many packets to be worth a trial.
const PACKETS_MIN: u64 = 20;
/// So many trials in a row must say the same.
pub(super) const VOTES: u8 = 3;
/// The others share the place if they gain so many percent of what the link delivered, and do not with half of it.
const GAIN_PERCENT: u64 = 60;

/// What trials have said of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shared {
    /// Trials in a row that said that it shares its bottleneck.
    votes: u8,
    /// Trials in all.
    pub trials: u32,
    with: Option<LinkId>,
}

impl Shared {
    /// The link that delivers more once this one is left out, if that is sure: both pass the same narrow place.
    pub fn with(&self) -> Option<LinkId> {
        self.with.filter(|_| self.votes >= VOTES)
    }

    fn vote(&mut self, with: Option<LinkId>) {
        self.trials += 1;
        self.votes = if with.is_some() { (self.votes + 1).min(VOTES) } else { 0 };
        self.with = with;
    }
}

/// What a link had delivered at some moment.
pub(super) type Delivered = Vec<(LinkId, u64)>;

#[derive(Clone, Debug)]
enum Phase {
    /// What all deliver is counted, from what they had delivered.
    Before(Delivered),
    /// What they delivered in `SPAN`; the link left out finishes what it has under way.
    Settling(Delivered),
    /// The same, and what they had delivered when all was settled.
    Without(Delivered, Delivered),
}

/// The trials of a session.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// Looks that found more waiting than the links carry, less those that did not.
    looks: u32,
    next_at: Instant,
    /// The link whose turn it is, and what is being done.
    trial: Option<(LinkId, Phase)>,
    tried: Option<LinkId>,
}

impl Trials {
    /// Whether a link takes nothing of large messages now.
    #[inline]
    pub(super) fn pauses(&self, id: LinkId) -> bool {
        matches!(&self.trial, Some((link, Phase::Settling(_) | Phase::Without(..))) if *link == id)
    }

    /// Whether what links deliver is being counted.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// When a trial goes on, though nothing may be acknowledged by then.
    pub(super) fn deadline(&self) -> Instant {
        if self.trial.is_some() { self.next_at } else { Instant::NEVER }
    }
}

impl Session {
    /// Goes on with the trial, or sees whether there should be one.
    #[inline]
    pub(super) fn try_bottleneck(&mut self, now: Instant) {
        if now >= self.trials.next_at && self.links.len() > 1 {
            self.go_on_trying(now);
        }
    }

    #[inline(never)]
    fn go_on_trying(&mut self, now: Instant) {
        let saturated = self.is_saturated();
        let late = now.since(self.trials.next_at) > SPAN;
        self.trials.next_at = now + SPAN;
        match self.trials.trial.take() {
            None => self.look(now, saturated),
            // What was counted for longer than was meant is no measure: the machine stood still.
            Some(_) if late || !saturated => self.end_trial(now),
            Some((link, Phase::Before(then))) => {
                let rates = self.delivered_since(&then);
                self.trials.trial = Some((link, Phase::Settling(rates)));
            }
            Some((link, Phase::Settling(rates))) => {
                self.trials.trial = Some((link, Phase::Without(rates, self.delivered())));
            }
            Some((link, Phase::Without(rates, then))) => {
                let without = self.delivered_since(&then);
                self.judge(link, &rates, &without);
                self.end_trial(now);
            }
        }
    }

    fn look(&mut self, now: Instant, saturated: bool) {
        let looks = &mut self.trials.looks;
        *looks = if saturated { *looks + 1 } else { looks.saturating_sub(LOOKS_FORGOTTEN) }.min(LOOKS_MIN);
        if saturated && *looks == LOOKS_MIN {
            self.begin_trial();
        } else {
            self.trials.next_at = now + LOOK;
        }
    }

    fn begin_trial(&mut self) {
        // The one after the last, in order.
        let ids = || self.links.iter().map(|link| link.spec.id);
        let after = ids().filter(|id| self.trials.tried.is_none_or(|tried| *id > tried)).min();
        let Some(link) = after.or_else(|| ids().min()) else { return };
        self.trials.tried = Some(link);
        self.trials.trial = Some((link, Phase::Before(self.delivered())));
        self.quiet.stir();
    }

    fn end_trial(&mut self, now: Instant) {
        let known = self.links.iter().all(|link| link.shared.trials >= VOTES as u32);
        self.trials.next_at = now + if known { PAUSE_LONG } else { PAUSE };
        self.quiet.stir();
    }

    /// Whether more waits than the links carry, by no policy but the one that takes whatever there is room for.
    fn is_saturated(&self) -> bool {
        let serving = Serving::of(&self.links);
        let serves = self.links.iter().all(|link| serving.includes(link));
        serves
            && !self.sparing.is_trying()
            && self.assigners.is_empty()
            && self.waiting_bytes(PLENTY_BYTES) >= PLENTY_BYTES
    }

    pub(super) fn delivered(&self) -> Delivered {
        self.links.iter().map(|link| (link.spec.id, link.delivered_bytes)).collect()
    }

    pub(super) fn delivered_since(&self, then: &Delivered) -> Delivered {
        let mut now = self.delivered();
        for (id, bytes) in &mut now {
            let before = then.iter().find(|(link, _)| link == id);
            *bytes = before.map_or(0, |(_, before)| bytes.saturating_sub(*before));
        }
        now
    }

    /// What link `id` has delivered before, against what the others have gained without it.
    fn judge(&mut self, id: LinkId, before: &Delivered, without: &Delivered) {
        let of =
            |list: &Delivered, id| list.iter().find(|(link, _)| *link == id).map_or(0, |(_, bytes)| *bytes);
        let own = of(before, id);
        let gains = without.iter().filter(|(link, _)| *link != id);
        let gains = gains.map(|(link, bytes)| (*link, bytes.saturating_sub(of(before, *link))));
        let gain: u64 = gains.clone().map(|(_, bytes)| bytes).sum();
        let most = gains.max_by_key(|(_, bytes)| *bytes).map(|(link, _)| link);
        let Some(link) = self.links.iter_mut().find(|link| link.spec.id == id) else { return };
        if own < PACKETS_MIN * link.mtu.current() as u64 {
            return;
        }
        match gain * 100 / own {
            percent if percent >= GAIN_PERCENT => link.shared.vote(most),
            percent if percent < GAIN_PERCENT / 2 => link.shared.vote(None),
            _ => {}
        }
    }
}
