//! Rings past the engine: when a port asks for one, and how it takes one that leads to it.

use super::Port;
use crate::clock::now_ns;
use crate::engine::client::direct::Wish;
use crate::engine::directs::Wanted;
use polyrail_proto::flow::Class;
use polyrail_proto::node::Destination;
use polyrail_shm::DIRECT_BYTES_MAX;

/// A flow that is worth a ring waits so long at most for what was sent before to arrive; one of long messages, longer.
const CALM_PATIENCE_NS: u64 = 10_000_000;
const CALM_PATIENCE_LONG_NS: u64 = 200_000_000;

impl Port {
    /// Sees to it that it is known who gets a message to `to`, where that matters.
    #[inline]
    pub(super) fn prepare_way(&self, to: Destination, class: Class) {
        if self.tie.is_some() && self.client.borrow().must_ask(to) {
            self.ask_way(to, (class, Wanted::Ring));
        }
    }

    /// A message of `len` bytes went by the engine, or a long one is to go: asks for a ring if its flow is worth one. Waits no longer
    /// than its sender would have.
    pub(super) fn seek_ring(&self, to: Destination, class: Class, len: u64, until_ns: Option<u64>) {
        if self.tie.is_none() {
            return;
        }
        let is_long = len > DIRECT_BYTES_MAX;
        let wish = self.client.borrow_mut().wish_of(to, class, is_long);
        let is_calm = |port: &Port| port.client.borrow().unconfirmed() == 0;
        match wish {
            Wish::None => {}
            Wish::Ring => self.ask_way(to, (class, Wanted::Ring)),
            Wish::Calm if !self.client.borrow().knows(to) => self.ask_way(to, (class, Wanted::Ring)),
            Wish::Calm => {
                let patient_ns = now_ns() + if is_long { CALM_PATIENCE_LONG_NS } else { CALM_PATIENCE_NS };
                let until_ns = until_ns.map_or(patient_ns, |until_ns| until_ns.min(patient_ns));
                if self.wait_until(Some(until_ns), is_calm) {
                    self.ask_way(to, (class, Wanted::Ring));
                }
            }
        }
    }

    /// Asks the engine for the way to `to`. Without an answer everything goes by the engine.
    pub(super) fn ask_way(&self, to: Destination, (class, wanted): (Class, Wanted)) {
        let Some(tie) = &self.tie else { return };
        let there = match wanted {
            Wanted::Ring => self.client.borrow().rings_of(class),
            Wanted::Trunk => self.client.borrow().trunks_of(class),
        };
        let found = tie.find_way(to, (class, wanted), there);
        let mut client = self.client.borrow_mut();
        if let Destination::Service(service) = to {
            let generation = client.pair.words.names_generation.load();
            let (to, generation) =
                found.as_ref().map_or((None, generation), |found| (found.to, found.generation));
            client.note_known(service, to, generation);
        }
        let Ok(found) = found else { return };
        match (found.refused, wanted) {
            (false, _) => {}
            (true, Wanted::Ring) => client.note_refused(to, class),
            (true, Wanted::Trunk) => client.note_refused_trunk(to, class),
        }
        if let Some(trunk) = found.trunk {
            self.begin_way(&trunk.line);
            client.add_trunk(trunk, u64::from(found.backlog));
        }
        if let Some((to, ring)) = found.to.zip(found.ring) {
            self.begin_way(&ring.line);
            client.add_out((to, class), ring);
        }
    }

    /// Takes a ring that another port sends by from now on.
    pub(super) fn take_ring(&self, number: u64) {
        let Some(tie) = &self.tie else { return };
        // Where that fails the node is gone, or the sender before it has sent anything.
        if let Ok(given) = tie.take_ring(number) {
            self.begin_way(&given.line);
            self.client.borrow_mut().add_in(given);
        }
    }
}
