//! `redundant`: each message by every link that serves, and the first copy counts. What one link loses or delays, another has
//! brought; the links together carry no more than the least of them alone.
//!
//! Whichever link asks first takes a small message; the others are given copies (`session::copies`). Of a large one, each
//! takes all.

use super::{Choose, Links, View};
use crate::flow::FlowKey;
use crate::id::LinkId;

#[derive(Debug)]
pub(super) struct Redundant;

impl Choose for Redundant {
    fn whole(&mut self, view: &View<'_>, _: &FlowKey) -> Option<LinkId> {
        view.serving().next().map(|link| link.spec.id)
    }

    fn parts(&mut self, view: &View<'_>, _: &FlowKey) -> Links {
        view.serving().map(|link| link.spec.id).collect()
    }

    fn copies(&self) -> bool {
        true
    }
}
