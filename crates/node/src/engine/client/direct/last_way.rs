//! The way that the last message took past the engine: most go where the one before went, and to look everything up for each would
//! cost as much as all the rest.

use super::{Client, Directs, Out, TAGGED, label_of, lines, slots};
use polyrail_proto::flow::Class;
use polyrail_proto::id::PortAddress;
use polyrail_proto::node::Destination;
use polyrail_shm::{DIRECT_BYTES_MAX, DirectSender, Label};

/// Where messages to a destination go, as long as names are of a generation.
#[derive(Clone, Copy)]
pub(super) struct LastWay {
    to: Destination,
    generation: u64,
    receiver: PortAddress,
    class: Class,
    /// Which of the rings it is, if that one is still where it was.
    at: usize,
    /// What messages say of themselves that have no tag.
    label: Label,
}

impl Directs {
    /// The ring by which the last message went, if it leads to `to` now, and what messages say of themselves.
    #[inline]
    fn last_ring(&self, to: &Destination, class: Class, generation: u64) -> Option<(usize, Label)> {
        let last = self.last_way.as_ref()?;
        let is_same = last.to == *to && last.class == class && last.generation == generation;
        let is_there = |out: &Out| out.to == last.receiver && out.class == class;
        (is_same && self.outs.get(last.at).is_some_and(is_there)).then_some((last.at, last.label))
    }
}

/// Puts messages into a ring until one does not fit; how many there are.
#[inline(always)]
fn put_all<B: AsRef<[u8]>>(ring: &mut DirectSender, label: Label, tag: Option<u64>, messages: &[B]) -> usize {
    for (count, message) in messages.iter().enumerate() {
        let bytes = message.as_ref();
        if bytes.len() as u64 > DIRECT_BYTES_MAX || slots::put(ring, label, tag, bytes).is_none() {
            return count;
        }
    }
    messages.len()
}

impl Client {
    /// Sends messages by a ring as long as they go by one and there is room, and nobody has to be asked or told; how many did. Their
    /// receiver is woken once.
    #[inline(always)]
    pub(crate) fn send_at_once<B: AsRef<[u8]>>(
        &mut self,
        to: &Destination,
        class: Class,
        tag: Option<u64>,
        messages: &[B],
    ) -> usize {
        let generation = self.pair.words.names_generation.load();
        let last = self.directs.last_ring(to, class, generation);
        let Some((at, label)) = last.or_else(|| self.find_ring(to, class, generation)) else { return 0 };
        let Directs { outs, taken, sent, .. } = &mut self.directs;
        let out = &mut outs[at];
        if out.waits || out.given.ring.is_over() {
            return 0;
        }
        if std::mem::replace(&mut out.taken, *taken) != *taken {
            out.given.ring.rest();
        }
        let note = if tag.is_some() { label.note | TAGGED } else { label.note };
        let count = put_all(&mut out.given.ring, Label { note, ..label }, tag, messages);
        *sent += count as u64;
        if count > 0 && out.given.bell.ring() {
            lines::tell(&out.given.line);
        }
        count
    }

    /// The ring by which messages to `to` go, if nobody has to be asked. It is kept.
    #[inline(never)]
    fn find_ring(&mut self, to: &Destination, class: Class, generation: u64) -> Option<(usize, Label)> {
        if self.directs.outs.is_empty() || self.must_ask(*to) {
            return None;
        }
        let receiver = self.directs.receiver(*to)?;
        let at = self.directs.out_to(receiver, class)?;
        let service = if let Destination::Service(service) = to { Some(*service) } else { None };
        let label = label_of(service, None);
        self.directs.last_way = Some(LastWay { to: *to, generation, receiver, class, at, label });
        Some((at, label))
    }
}
