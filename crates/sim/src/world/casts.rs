//! Applications send to all who have bound something of a range, and get what others sent so.

use super::World;
use super::app::draw_range;
use crate::check::PortKey;
use crate::content;
use crate::subject::{FailReason, SendAnswer, To, Wish};
use crate::workload::EAGER_BYTES;
use polyrail_proto::address::ServiceRange;
use std::collections::BTreeSet;

impl World {
    pub(super) fn cast_burst(&mut self, node: usize, count: u64) {
        let from = self.draw_port(node);
        let range = draw_range(self.nodes[node].app.draws());
        for _ in 0..count {
            if !self.cast(node, from, range) {
                break;
            }
        }
    }

    /// Sends one; false if the node did not take it.
    fn cast(&mut self, node: usize, from: usize, range: ServiceRange) -> bool {
        let id = self.oracle.casts.next_id();
        let owed = self.owed(node, range);
        let workload = self.plan.workload;
        let state = &mut self.nodes[node];
        let bytes = workload.bytes(&mut state.app.sizes).min(EAGER_BYTES as usize);
        let class = workload.class(&mut state.app.sizes);
        // A short one has no room for its number.
        let tagged = state.app.sizes.chance_ppm(workload.tagged_ppm) || bytes < 8;
        let mut content = Vec::new();
        content::fill(id, bytes, &mut content);
        let key = state.app.ports[from].key;
        let local_ns = state.host.local_ns(self.now_ns);
        let Some(subject) = state.subject.as_mut() else { return false };
        let tag = tagged.then_some(content::tag_of(id));
        let wish = Wish { class, tag, returns: false, expires_at_ns: None };
        let answer = subject.send(local_ns, key.port, To::All(range), wish, id, &content);
        if answer == SendAnswer::Accepted {
            let count = owed.len();
            self.oracle.casts.on_sent(self.now_ns, key, range, (class, bytes), owed);
            self.coverage.add("multicast", "sent", 1);
            self.note(|| format!("{key} sends {bytes} bytes to {range}, {count} ports there, as {id:x}"));
        }
        answer == SendAnswer::Accepted
    }

    /// The ports that have bound something of a range, as a node knows. What others keep to themselves it does not know.
    fn owed(&self, node: usize, range: ServiceRange) -> BTreeSet<PortKey> {
        let Some(directory) = self.nodes[node].subject.as_ref().and_then(|subject| subject.directory())
        else {
            return BTreeSet::new();
        };
        let own = super::node_id(self.plan.seed, node);
        let overlapping = directory.bindings.iter().filter(|binding| {
            let bound = binding.range;
            bound.kind == range.kind && bound.lower <= range.upper && range.lower <= bound.upper
        });
        let key = |binding: &crate::subject::KnownBinding| {
            let (node, life) = if binding.node == own {
                (node, self.nodes[node].life)
            } else {
                let peer = directory.peers.iter().find(|peer| peer.node == binding.node)?;
                self.names.life(peer.incarnation)?
            };
            let key = PortKey { node, life, port: binding.port };
            // One that has taken it back, which the node does not know yet, is owed nothing.
            let port = self.nodes[node].app.ports.iter().find(|port| port.key == key)?;
            port.bound.contains(&(binding.range, binding.cluster)).then_some(key)
        };
        overlapping.filter_map(key).collect()
    }

    /// A message to several arrived.
    pub(super) fn on_cast_received(&mut self, index: usize, to: PortKey, from: (usize, u32), bytes: &[u8]) {
        self.coverage.add("multicast", "copies received", 1);
        if let Err(what) = self.oracle.casts.on_received(index, to, from, bytes) {
            self.oracle.violation("I12", self.now_ns, what);
        }
    }

    /// A copy of one failed, as its sender was told.
    pub(super) fn on_cast_failed(&mut self, index: usize, from: PortKey, reason: FailReason) {
        self.coverage.add("multicast", format!("failed: {reason:?}"), 1);
        let excused = (0..self.plan.nodes).any(|peer| peer != from.node && self.excused(from.node, peer));
        if let Err(what) = self.oracle.casts.on_failed(index, reason, excused) {
            self.oracle.violation("I12", self.now_ns, what);
        }
    }

    /// A port that must still get what was sent to several.
    pub(super) fn cast_missing(&self) -> Option<String> {
        self.oracle.casts.missing(|a, b| self.excused(a, b))
    }
}
