//! I20: what nodes tell of their links, and what they send by them.

use super::World;
use crate::bearer::lock;
use crate::check::links::End;

impl World {
    /// A node tells that a link of it has changed.
    pub(super) fn on_link_change(
        &mut self,
        node: usize,
        (peer, link): (u64, u16),
        from: &'static str,
        to: &'static str,
    ) {
        self.coverage.add("link", format!("{from} -> {to}"), 1);
        self.note(|| format!("node {node}: link {link} to {peer:x} goes {from} -> {to}"));
        let end: End = (node, self.nodes[node].life, peer, link);
        self.links_changed.push(end);
        if let Some(what) = self.oracle.links.on_change(self.now_ns, end, from, to) {
            self.oracle.violation("I20", self.now_ns, what);
        }
    }

    /// A node's turn is over: messages left by no link that was not in use before it, nor became so in it.
    pub(super) fn check_carriers_of_messages(&mut self, node: usize) {
        let carried = std::mem::take(&mut lock(&self.network).record.carried);
        let changed = std::mem::take(&mut self.links_changed);
        let life = self.nodes[node].life;
        for (from, to, link) in carried {
            let (from, to) = (from % self.plan.seats(), to % self.plan.seats());
            if from != node {
                continue;
            }
            let original = if to < self.plan.nodes { to } else { self.plan.cloned().unwrap_or(to) };
            let end: End = (node, life, super::node_id(self.plan.seed, original), link);
            if changed.contains(&end) {
                continue;
            }
            if let Some(state) = self.oracle.links.bars(end) {
                let what =
                    format!("node {node} sends messages to node {to} by link {link}, which is {state}");
                self.oracle.violation("I20", self.now_ns, what);
            }
        }
    }

    /// No link is damped for ever.
    pub(super) fn check_damped(&mut self) {
        let is_alive = |end: &End| {
            let node = &self.nodes[end.0];
            node.subject.is_some() && node.life == end.1
        };
        if let Some(what) = self.oracle.links.unforgiven(self.now_ns, is_alive) {
            self.oracle.violation("I20", self.now_ns, what);
        }
    }
}
