//! Copies of what is late on one link by another that has nothing to do (protocol.md §5.11).
//!
//! The shares of the links rest on what they delivered of late. One that has become slower keeps the end of a message
//! waiting, though the others could have carried it long ago: then they carry it too, and the first copy counts.

use super::serving::Serving;
use super::{Cx, Session};
use crate::link::Link;
use crate::link::send::Item;
use crate::time::{Duration, Instant};

/// A copy must arrive sooner than the original by so much, and that one be later by so much than twice what was expected of
/// it: a stall of the machine is no reason.
const GAIN: Duration = Duration::ms(1);
/// Of what a session sends, copies may be one part in so many, and so many bytes more.
const COPIES_SHARE: u64 = 20;
const COPIES_BYTES: u64 = 256 << 10;

impl Session {
    /// Has other links carry what is late on one, if nothing else waits to be sent.
    pub(super) fn insure(&mut self, cx: &Cx<'_>) {
        if self.links.len() < 2 || !self.schedule.is_empty() {
            return;
        }
        let late = (0..self.links.len()).find(|&index| self.is_late(cx.now, index));
        let Some(index) = late else { return };
        let bytes = self.links[index].sent.inflight_bytes();
        let sent: u64 = self.links.iter().map(|link| link.stats.bytes_sent).sum();
        if self.insured_bytes + bytes > sent / COPIES_SHARE + COPIES_BYTES {
            return;
        }
        let mut items = std::mem::take(&mut self.scratch);
        let packets = self.links[index].sent.copy_older(cx.now, |item| items.push(item));
        if packets > 0 {
            self.insured_bytes += bytes;
            self.stats.packets_insured += packets;
            items.retain(|item| self.is_pulled(item));
            self.repeat(&mut items, index);
            self.quiet.stir();
        }
        self.scratch = items;
    }

    /// Whether any link may carry an item: by which others go, was decided before.
    fn is_pulled(&self, item: &Item) -> bool {
        let flow = match *item {
            Item::Messages { flow, .. } | Item::Fragment { flow, .. } | Item::Rts { flow, .. } => Some(flow),
            Item::Extent { token, .. } => self.sending.transfers.get(token).map(|transfer| transfer.flow),
            _ => return true,
        };
        flow.and_then(|key| self.sending.flows.get(key)).is_some_and(|flow| flow.policy.is_none())
    }

    /// Whether another link could deliver all that this one has in flight well before it does.
    fn is_late(&self, now: Instant, index: usize) -> bool {
        let late = &self.links[index];
        let Some((sent_at, expected)) = late.sent.oldest_uncopied() else { return false };
        let took = now.since(sent_at);
        if took <= expected.times(2) + GAIN {
            return false;
        }
        let serving = Serving::of(&self.links);
        let hope = serving.hope(&self.links);
        let bytes = late.sent.inflight_bytes();
        let other = |link: &&Link| link.spec.id != late.spec.id && serving.includes(link) && !link.blocked;
        let best =
            self.links.iter().filter(other).filter(|link| link.room() >= bytes.min(link.window.cwnd() / 2));
        let Some(least) = best.map(|link| link.delay(bytes, hope)).min() else { return false };
        // The last in the queue will wait about as long as the first has waited.
        took > least + GAIN
    }
}
