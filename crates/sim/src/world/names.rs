//! I11: nodes agree about who is there and what is bound, and know nothing of lives that are over. I16: what wants to be
//! the only one of its range is, in the end.
//!
//! While faults last, a node may know too little, but nothing that is wrong: each binding that it knows of another
//! node was made by the very life of that node with which it has a session. In the end it knows all.

use super::{EXCLUSIVE_KIND, World};
use crate::check::PortKey;
use crate::queue::{S, TimeNs};
use crate::subject::{Directory, KnownBinding};
use polyrail_proto::address::ServiceRange;
use std::collections::{BTreeMap, BTreeSet};

/// After the last change nodes must agree within this time.
const AGREED_WITHIN_NS: TimeNs = 15 * S;

/// Which lives there were, and what each of them ever bound.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Seat and life of each incarnation.
    lives: BTreeMap<u64, (usize, u32)>,
    /// Port, range, whether for the cluster.
    ever: BTreeSet<(PortKey, ServiceRange, bool)>,
    changed_at_ns: TimeNs,
}

impl Names {
    /// A life begins.
    pub(super) fn on_start(&mut self, incarnation: u64, seat: usize, life: u32, now_ns: TimeNs) {
        self.lives.insert(incarnation, (seat, life));
        self.changed_at_ns = now_ns;
    }

    /// Seat and life of an incarnation.
    pub(super) fn life(&self, incarnation: u64) -> Option<(usize, u32)> {
        self.lives.get(&incarnation).copied()
    }

    /// A port binds.
    pub(super) fn on_bound(&mut self, port: PortKey, range: ServiceRange, cluster: bool, now_ns: TimeNs) {
        self.ever.insert((port, range, cluster));
        self.changed_at_ns = now_ns;
    }

    /// A binding, a port or a node is gone.
    pub(super) fn on_change(&mut self, now_ns: TimeNs) {
        self.changed_at_ns = now_ns;
    }

    /// Why a node with this directory must not know `binding` of another node; `None` if it may.
    fn objection(&self, directory: &Directory, binding: &KnownBinding) -> Option<&'static str> {
        let Some(peer) = directory.peers.iter().find(|peer| peer.node == binding.node) else {
            return Some("with which it has no session");
        };
        let Some((node, life)) = self.lives.get(&peer.incarnation).copied() else {
            return Some("in a life that never was");
        };
        let port = PortKey { node, life, port: binding.port };
        let shared = self.ever.contains(&(port, binding.range, true));
        match (binding.cluster && shared, self.ever.contains(&(port, binding.range, false))) {
            (true, _) => None,
            (false, true) => Some("which kept it to itself"),
            (false, false) => Some("whose present life never made it"),
        }
    }
}

impl World {
    /// What no node may ever know.
    pub(super) fn check_directories(&mut self) {
        for node in 0..self.plan.nodes {
            self.check_directory(node);
        }
    }

    pub(super) fn check_directory(&mut self, node: usize) {
        let Some(directory) = self.directory(node) else { return };
        if let Some(what) = &directory.misled {
            self.oracle.violation("I11", self.now_ns, format!("a subscriber of node {node}: {what}"));
        }
        let own = super::node_id(self.plan.seed, node);
        for binding in directory.bindings.iter().filter(|binding| binding.node != own) {
            let Some(why) = self.names.objection(&directory, binding) else { continue };
            let KnownBinding { node: of, port, range, .. } = binding;
            let what = format!("node {node} knows that port {port} of {of:x}, {why}, is bound to {range:?}");
            self.oracle.violation("I11", self.now_ns, what);
        }
    }

    /// Whether all nodes know each other and what is bound.
    pub(super) fn names_settled(&self) -> bool {
        self.disagreement().is_none() && self.overlap().is_none()
    }

    /// Whether they had time enough to come to know.
    pub(super) fn names_are_late(&self) -> bool {
        self.now_ns >= self.plan.heal_ns.max(self.names.changed_at_ns) + AGREED_WITHIN_NS
    }

    pub(super) fn check_names_at_the_end(&mut self) {
        if let Some(what) = self.disagreement() {
            self.oracle.violation("I11", self.now_ns, what);
        }
        if let Some(what) = self.overlap() {
            self.oracle.violation("I16", self.now_ns, what);
        }
    }

    /// Two bindings of which each wants to be the only one, as some node knows them.
    fn overlap(&self) -> Option<String> {
        (0..self.plan.nodes).find_map(|node| {
            let exclusive = |binding: &&KnownBinding| binding.range.kind == EXCLUSIVE_KIND;
            let directory = self.directory(node)?;
            let mut all: Vec<_> = directory.bindings.iter().filter(exclusive).collect();
            all.sort_unstable_by_key(|binding| binding.range);
            let pair = all.windows(2).find(|pair| pair[1].range.lower <= pair[0].range.upper)?;
            Some(format!("node {node} knows two that want to be the only ones: {pair:?}"))
        })
    }

    fn directory(&self, node: usize) -> Option<Directory> {
        self.nodes[node].subject.as_ref()?.directory()
    }

    /// The first thing that some node knows wrongly or not at all; `None` if there is none. While a clone lives,
    /// nobody can know who is who.
    fn disagreement(&self) -> Option<String> {
        if self.nodes[self.plan.nodes..].iter().any(|clone| clone.subject.is_some()) {
            return None;
        }
        let live = (0..self.plan.nodes).filter(|node| self.nodes[*node].subject.is_some());
        let live: Vec<usize> = live.collect();
        live.iter().find_map(|node| {
            let directory = self.directory(*node)?;
            self.stranger(*node, &live, &directory).or_else(|| self.misbound(*node, &live, &directory))
        })
    }

    /// A peer that `node` does not know, or knows although it is gone.
    fn stranger(&self, node: usize, live: &[usize], directory: &Directory) -> Option<String> {
        let id = |node: usize| super::node_id(self.plan.seed, node);
        let missing = live.iter().filter(|peer| **peer != node).find(|peer| {
            let life = (**peer, self.nodes[**peer].life);
            !directory.peers.iter().any(|known| {
                known.node == id(**peer)
                    && known.met
                    && self.names.lives.get(&known.incarnation) == Some(&life)
            })
        });
        if let Some(peer) = missing {
            return Some(format!("node {node} does not know the present life of node {peer}"));
        }
        let dead = directory.peers.iter().find(|known| !live.iter().any(|peer| id(*peer) == known.node));
        dead.map(|known| format!("node {node} still has a session with {:x}, which is gone", known.node))
    }

    /// A binding that `node` does not know, or knows although it is gone.
    fn misbound(&self, node: usize, live: &[usize], directory: &Directory) -> Option<String> {
        let mut expected: Vec<KnownBinding> = Vec::new();
        for of in live {
            let identity = super::node_id(self.plan.seed, *of);
            for port in &self.nodes[*of].app.ports {
                let visible = port.bound.iter().filter(|(_, cluster)| *cluster || *of == node);
                expected.extend(visible.map(|(range, cluster)| KnownBinding {
                    node: identity,
                    port: port.key.port,
                    range: *range,
                    cluster: *cluster,
                }));
            }
            // Who gets what everybody wants is between the nodes: what a node gave its own ports, all must know.
            let own = self.directory(*of).map(|directory| directory.bindings).unwrap_or_default();
            let exclusive = |binding: &KnownBinding| binding.range.kind == EXCLUSIVE_KIND;
            expected.extend(own.into_iter().filter(|binding| binding.node == identity && exclusive(binding)));
        }
        expected.sort_unstable();
        let mut known = directory.bindings.clone();
        known.sort_unstable();
        if expected == known {
            return None;
        }
        let missing = expected.iter().find(|binding| !known.contains(binding));
        let excess = known.iter().find(|binding| !expected.contains(binding));
        let (has, should) = (known.len(), expected.len());
        Some(format!(
            "node {node} knows {has} bindings of {should}: missing {missing:?}, too much {excess:?}"
        ))
    }
}
