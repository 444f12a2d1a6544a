//! Subscribers of a node: the core tells them, here they are woken.

use super::{Engine, Work};
use polyrail_proto::service::{Over, SubscribeError, SubscriptionId, Topic, Update};
use polyrail_proto::time::{Duration, Instant};
use polyrail_sys::eventfd::EventFd;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is signalled when a subscriber that had seen all has something new to see.
#[derive(Default)]
pub(super) struct Bells(BTreeMap<SubscriptionId, Arc<EventFd>>);

impl Engine {
    /// Asks about `topic`, for so many nanoseconds (`None`: for ever; 0: only what there is). A turn should follow if there
    /// is an end, so that it is planned.
    ///
    /// # Errors
    /// An inverted range, or too many subscriptions.
    pub fn subscribe(
        &mut self,
        now_ns: u64,
        topic: Topic,
        timeout_ns: Option<u64>,
    ) -> Result<SubscriptionId, SubscribeError> {
        if timeout_ns.is_some() {
            self.next_at = Instant::ZERO;
        }
        self.node.subscribe(Instant(now_ns), topic, timeout_ns.map(Duration::ns))
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: SubscriptionId) {
        self.bells.0.remove(&id);
        self.node.unsubscribe(id);
    }

    /// The next update of a subscription; `None` if its subscriber has seen all.
    ///
    /// # Errors
    /// It is over.
    pub fn poll_subscription(&mut self, id: SubscriptionId) -> Result<Option<Update>, Over> {
        let update = self.node.poll_subscription(id);
        if matches!(update, Ok(Some(Update::TimedOut))) {
            self.bells.0.remove(&id);
        }
        update
    }

    /// Signals `bell` whenever the subscriber has seen all and there is something new to see.
    pub(crate) fn watch_subscription(&mut self, id: SubscriptionId, bell: Arc<EventFd>) {
        self.bells.0.insert(id, bell);
    }

    /// Whether the subscriber has seen all there is, as far as he was told.
    pub(crate) fn is_waited_for(&self, id: SubscriptionId) -> bool {
        self.node.subscriptions().waits(id)
    }

    /// Wakes all subscribers: the node goes down.
    pub(crate) fn wake_subscribers(&self) {
        self.bells.0.values().for_each(|bell| bell.signal());
    }

    /// Wakes those who have something new to see.
    #[inline]
    pub(super) fn tell_subscribers(&mut self, work: &mut Work) {
        while let Some(id) = self.node.poll_told() {
            work.done += 1;
            if let Some(bell) = self.bells.0.get(&id) {
                bell.signal();
                // It may sleep on the engine's descriptors.
                work.rang = true;
            }
        }
    }
}
