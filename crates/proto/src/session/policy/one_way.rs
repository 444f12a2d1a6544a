//! `one-way`: of the links, one end sends by every other one, and the other end by the rest, so that no link carries messages
//! both ways.

use super::by_hash::drawn;
use super::{Choose, Links, View};
use crate::flow::FlowKey;
use crate::id::LinkId;

#[derive(Debug)]
pub(super) struct OneWay;

impl Choose for OneWay {
    fn whole(&mut self, view: &View<'_>, key: &FlowKey) -> Option<LinkId> {
        // Both ends number the links alike.
        let own = |id: LinkId| id.0.is_multiple_of(2) == view.is_lower;
        drawn(view.serving().filter(|link| own(link.spec.id)), key).or_else(|| drawn(view.serving(), key))
    }

    fn parts(&mut self, view: &View<'_>, key: &FlowKey) -> Links {
        self.whole(view, key).into_iter().collect()
    }
}
