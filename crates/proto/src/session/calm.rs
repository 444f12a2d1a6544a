//! While nothing but large messages passes, nobody waits for a single packet: then it is enough to look at what came, and to
//! go on with what leaves, once in a while (protocol.md §5.13).
//!
//! To be woken for each train costs more than what there is to do with it. Network cards do the same under load, where it is
//! called interrupt moderation; they do not know, as we do, how much is still to come.

use super::Session;
use super::division::WORKS_MAX;
use crate::link::Link;
use crate::link::send::Item;
use crate::link::state::LinkState;
use crate::link::window::span_bytes;
use crate::time::{Duration, Instant};
use crate::wire::Frame;

/// Nothing but large messages has passed for so long.
const SPAN: Duration = Duration::ms(100);
/// Of what is known to be under way, at least so much is left at the end of a rest, and as much as passed in it.
const LEFT: Duration = Duration::ms(1);
/// Longest rest: what comes unexpectedly waits for so long.
const REST_MAX: Duration = Duration::ms(1);
/// Shortest one that is worth its while.
const REST_MIN: Duration = Duration::us(200);
/// Longer work allows no longer rest.
const WORK_MAX: Duration = Duration(LEFT.0 + 2 * REST_MAX.0);
/// No more than this arrives by a link in a rest: the sockets have room for it, and the caches too.
const REST_BYTES_MAX: u64 = 256 << 10;

/// How long nobody has to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// At most so long; not at all, if single packets may matter.
    pub span: Duration,
    /// Something is to leave: no longer than the bearers' queues last.
    pub sends: bool,
}

impl Rest {
    pub(crate) const NONE: Rest = Rest { span: Duration::ZERO, sends: false };

    /// What two of them allow together.
    pub(crate) fn and(self, other: Rest) -> Rest {
        Rest { span: self.span.min(other.span), sends: self.sends || other.sends }
    }
}

impl Session {
    /// Notes what leaves. Before a stretch of an eager message a piece of it leaves in the same train.
    #[inline]
    pub(super) fn note_items(&mut self, now: Instant, items: &[(u8, Item)]) {
        let is_large = |item: &Item| {
            use Item::{Credit, Cts, Extent, MtuProbe, Rts};
            matches!(item, Extent { .. } | Rts { .. } | Cts { .. } | Credit { .. } | MtuProbe { .. })
        };
        if !items.iter().all(|(_, item)| is_large(item)) {
            self.prompt_at = now;
        }
    }

    /// Notes what has come.
    #[inline]
    pub(super) fn note_frame(&mut self, now: Instant, frame: &Frame<'_>) {
        use Frame::{Ack, Credit, Cts, Probe, ProbeReply, Rts, TransferFragment};
        let is_large = matches!(
            frame,
            TransferFragment(..) | Ack(..) | Rts(..) | Cts(..) | Credit(..) | Probe(..) | ProbeReply(..)
        );
        if !is_large {
            self.prompt_at = now;
        }
    }

    /// Whether no single packet is waited for: nothing but large messages has passed of late, and nothing is to be found out
    /// about a link (protocol.md §5.13).
    pub fn waits_for_none(&self, now: Instant) -> bool {
        self.is_calm(now) && self.links.iter().all(is_settled)
    }

    /// Whether nothing but large messages has passed of late.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        now.since(self.prompt_at) >= SPAN
    }

    /// How long nobody has to look at this session; `None` if it does nothing.
    pub(crate) fn rest(&self, now: Instant) -> Option<Rest> {
        let sends = !self.sending.transfers.is_empty();
        match (self.is_calm(now), sends || !self.receiving.transfers.is_empty()) {
            (false, _) => Some(Rest::NONE),
            (true, false) => None,
            (true, true) if !self.links.iter().all(is_settled) => Some(Rest::NONE),
            (true, true) => {
                let span =
                    self.rest_of_receiving().min(if sends { self.rest_of_sending() } else { REST_MAX });
                Some(Rest { span, sends })
            }
        }
    }

    /// What comes is to find room, and the end of it is not to wait.
    fn rest_of_receiving(&self) -> Duration {
        let transfers = self.receiving.transfers.iter().take(WORKS_MAX).map(|(_, transfer)| transfer);
        let left =
            transfers.filter(|transfer| transfer.buffer().is_some()).map(|transfer| transfer.left_bytes());
        let left = left.sum::<u64>();
        if left == 0 {
            return REST_MAX;
        }
        let rates = self.links.iter().map(|link| link.received.rate_bytes_per_s());
        let (sum, fastest) = rates.fold((0, 0), |(sum, most), rate| (sum + rate, rate.max(most)));
        let filled_us = (REST_BYTES_MAX * 1_000_000).checked_div(fastest);
        let filled = filled_us.map_or(Duration::ZERO, Duration::us);
        worthwhile(rest_beside(left, sum).min(filled))
    }

    /// The links are to have enough to do.
    fn rest_of_sending(&self) -> Duration {
        let rate = self.links.iter().map(|link| link.window.rate_bytes_per_s()).sum::<u64>();
        rest_beside(self.waiting_bytes(span_bytes(rate, WORK_MAX)), rate)
    }
}

/// How long nobody has to look while so much is under way.
pub(super) fn rest_beside(bytes: u64, rate_bytes_per_s: u64) -> Duration {
    if rate_bytes_per_s == 0 {
        return Duration::ZERO;
    }
    let work = Duration(bytes.saturating_mul(1_000_000_000) / rate_bytes_per_s);
    worthwhile(Duration((work - LEFT).0 / 2).min(REST_MAX))
}

fn worthwhile(rest: Duration) -> Duration {
    if rest < REST_MIN { Duration::ZERO } else { rest }
}

/// Whether nothing is to be found out about a link.
fn is_settled(link: &Link) -> bool {
    link.sure() || matches!(link.state.state(), LinkState::Down | LinkState::Damped)
}
