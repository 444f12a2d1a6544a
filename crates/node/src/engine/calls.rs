//! Whoever sleeps on the descriptors is called by those of whom the kernel knows nothing: guests, and nodes that share memory.

use super::Engine;

impl Engine {
    /// Whoever drives is about to sleep: has guests, and nodes that share memory, ring from now on when they have something, and
    /// looks whether one has already.
    pub(crate) fn await_calls(&mut self) -> bool {
        self.doze(true) | (self.store.guests > 0 && self.store.await_guests())
    }

    /// The same of nodes that share memory alone, for a program that sleeps on the node's descriptor, which does not say what
    /// ended its sleep.
    pub(crate) fn await_nodes(&mut self) -> bool {
        self.doze(false)
    }

    fn doze(&mut self, names: bool) -> bool {
        let near = self.bearers.iter_mut().filter(|entry| entry.near);
        near.fold(false, |came, entry| entry.bearer.doze(names) | came)
    }

    /// Has none ring any more, for it is looked at what they have.
    pub(crate) fn attend_calls(&mut self) {
        self.bearers.iter_mut().filter(|entry| entry.near).for_each(|entry| entry.bearer.rouse());
        if self.store.guests > 0 {
            self.store.attend_guests();
        }
    }
}
