//! `mnc`, `mnc-rtt`: the dynamic choice of MNC (Journal of Software 14(2), 2003). A link is busy while it is moving something,
//! else free. A small message goes by the first link that is free at both ends, or, if none is, by the busy ones in turn; a
//! large one by all that are free, in equal parts.
//!
//! What the peer's ends are doing it tells with what it sends anyway (`mnc`), or is asked before each large message
//! (`mnc-rtt`, as it was published).

use super::{BUSY, Choose, Links, View, is_free};
use crate::flow::FlowKey;
use crate::id::LinkId;
use crate::limits;
use crate::link::Link;
use crate::time::{Duration, Instant};
use crate::wire::BearerState;

/// What the peer said counts for so long, and it is waited for for so long.
pub(super) const STALE: Duration = Duration::ms(10);

#[derive(Debug)]
pub(super) struct Mnc {
    asks: bool,
    turn: usize,
    /// Of each of the peer's bearers: the number of the newest report, and when it was heard if the bearer is busy.
    heard: [(u32, Option<Instant>); limits::BEARERS_MAX],
}

impl Mnc {
    pub(super) fn new(asks: bool) -> Mnc {
        Mnc { asks, turn: 0, heard: [(0, None); limits::BEARERS_MAX] }
    }

    fn is_free_there(&self, now: Instant, link: &Link) -> bool {
        let busy_at = self.heard.get(link.spec.peer_bearer.0 as usize).and_then(|heard| heard.1);
        busy_at.is_none_or(|at| now.since(at) > STALE)
    }

    fn free(&self, view: &View<'_>) -> Links {
        let free = |link: &&Link| is_free(link) && self.is_free_there(view.now, link);
        view.serving().filter(free).map(|link| link.spec.id).collect()
    }

    fn next_busy(&mut self, view: &View<'_>) -> Option<LinkId> {
        let count = view.serving().count();
        self.turn = (self.turn + 1) % count.max(1);
        view.serving().nth(self.turn).map(|link| link.spec.id)
    }
}

impl Choose for Mnc {
    fn whole(&mut self, view: &View<'_>, _: &FlowKey) -> Option<LinkId> {
        let free = self.free(view).first().copied();
        free.or_else(|| self.next_busy(view))
    }

    fn parts(&mut self, view: &View<'_>, _: &FlowKey) -> Links {
        let free = self.free(view);
        if free.is_empty() { self.next_busy(view).into_iter().collect() } else { free }
    }

    fn asks(&self) -> bool {
        self.asks
    }

    fn tells(&self) -> bool {
        true
    }

    fn on_state(&mut self, now: Instant, state: &BearerState) {
        let Some(heard) = self.heard.get_mut(state.bearer.0 as usize) else { return };
        if (state.seq.wrapping_sub(heard.0) as i32) > 0 {
            *heard = (state.seq, (state.tx_state == BUSY).then_some(now));
        }
    }
}
