//! Copies of small messages for the links that have not sent them, where each message goes by every link
//! (`redundant`, protocol.md §5.11).

use super::Session;
use super::serving::Serving;
use crate::flow::FlowKey;
use crate::flow::send::Take;
use crate::link::send::Item;

/// A link that has so many copies to send yet gets no more until it has caught up: it is that much slower than the others,
/// which have brought them long ago.
const COPIES_MAX: usize = 1_024;

impl Session {
    /// Something of a flow leaves by link `index`: the other links that serve are to send it too.
    pub(super) fn copy_to_others(&mut self, index: usize, flow: u32, take: &Take) {
        let item = match *take {
            Take::Whole { seq, .. } => Item::Messages { flow, first: seq, count: 1 },
            Take::Part { seq, offset, len, .. } => Item::Fragment { flow, seq, offset, len },
            Take::Announce { seq, .. } => Item::Rts { flow, seq },
        };
        let serving = Serving::of(&self.links);
        for (other, link) in self.links.iter_mut().enumerate() {
            if other != index && serving.includes(link) && link.copies.len() < COPIES_MAX {
                link.copies.push_back(item);
            }
        }
    }

    /// The next copy that link `index` is to send and that is wanted yet, if it fits into `room` bytes of a packet whose whole
    /// room is `packet_room`. One that no packet of this link takes is left to the others.
    pub(super) fn take_copy(
        &mut self,
        index: usize,
        room: usize,
        packet_room: usize,
    ) -> Option<(u32, FlowKey, Take)> {
        while let Some(&item) = self.links[index].copies.front() {
            let (key, seq, part) = match item {
                Item::Messages { flow, first, .. } => (flow, first, None),
                Item::Fragment { flow, seq, offset, len } => (flow, seq, Some((offset, len))),
                Item::Rts { flow, seq } => (flow, seq, None),
                _ => unreachable!("only what flows send is copied"),
            };
            let flow = self.sending.flows.get_mut(key);
            let copy = flow.and_then(|flow| Some((flow.key, flow.copy(seq, part)?)));
            if copy.is_some_and(|(_, take)| take.frame_bytes() > room && take.frame_bytes() <= packet_room) {
                return None;
            }
            self.links[index].copies.pop_front();
            match copy {
                Some((flow, take)) if take.frame_bytes() <= room => return Some((key, flow, take)),
                _ => {}
            }
        }
        None
    }
}
