//! `static`: each flow has its link, drawn by its ports; only the flows of a link that goes move to others.

use super::{Choose, Links, View};
use crate::flow::FlowKey;
use crate::id::LinkId;
use crate::link::Link;
use crate::mix::mix;

#[derive(Debug)]
pub(super) struct ByHash;

impl Choose for ByHash {
    fn whole(&mut self, view: &View<'_>, key: &FlowKey) -> Option<LinkId> {
        drawn(view.serving(), key)
    }

    fn parts(&mut self, view: &View<'_>, key: &FlowKey) -> Links {
        drawn(view.serving(), key).into_iter().collect()
    }
}

/// The link that draws the highest lot for a flow (rendezvous hashing).
pub(super) fn drawn<'a>(links: impl Iterator<Item = &'a Link>, key: &FlowKey) -> Option<LinkId> {
    let flow = mix(key.from.0 as u64 ^ mix(key.to.0 as u64 ^ mix(key.class as u64)));
    links.map(|link| link.spec.id).max_by_key(|id| mix(flow ^ id.0 as u64))
}
