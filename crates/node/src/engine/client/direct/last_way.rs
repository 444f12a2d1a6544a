//! The way that the last message took past the engine: most go where the one before went, and to look everything up for each would
//! cost as much as all the rest.

use super::{Directs, Out};
use polyrail_proto::flow::Class;
use polyrail_proto::id::PortAddress;
use polyrail_proto::node::Destination;

/// Where messages to a destination go, as long as names are of a generation.
#[derive(Clone, Copy)]
pub(super) struct LastWay {
    to: Destination,
    generation: u64,
    receiver: PortAddress,
    class: Class,
    /// Which of the rings it is, if that one is still where it was.
    at: usize,
}

impl Directs {
    /// The ring by which the last message went, if it leads to `to` now.
    #[inline]
    pub(super) fn last_ring(&self, to: Destination, class: Class, generation: u64) -> Option<usize> {
        let last = self.last_way.as_ref()?;
        let is_same = last.to == to && last.class == class && last.generation == generation;
        let is_there = |out: &Out| out.to == last.receiver && out.class == class;
        (is_same && self.outs.get(last.at).is_some_and(is_there)).then_some(last.at)
    }

    /// A message to `to` goes by that ring.
    pub(super) fn note_last_ring(&mut self, to: Destination, generation: u64, at: usize) {
        let Out { to: receiver, class, .. } = self.outs[at];
        self.last_way = Some(LastWay { to, generation, receiver, class, at });
    }
}
