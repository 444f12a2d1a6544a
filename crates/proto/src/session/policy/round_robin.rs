//! `round-robin`: each message goes by the next link, and a large one by all in equal parts, whatever the links are like.

use super::{Choose, Links, View};
use crate::flow::FlowKey;
use crate::id::LinkId;

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    turn: usize,
}

impl RoundRobin {
    /// The links that serve, from the one whose turn it is.
    fn next(&mut self, view: &View<'_>) -> Links {
        let mut links: Links = view.serving().map(|link| link.spec.id).collect();
        if !links.is_empty() {
            let first = self.turn % links.len();
            links.rotate_left(first);
            self.turn = first + 1;
        }
        links
    }
}

impl Choose for RoundRobin {
    fn whole(&mut self, view: &View<'_>, _: &FlowKey) -> Option<LinkId> {
        self.next(view).first().copied()
    }

    fn parts(&mut self, view: &View<'_>, _: &FlowKey) -> Links {
        self.next(view)
    }
}
