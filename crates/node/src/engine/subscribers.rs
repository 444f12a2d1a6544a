//! Subscribers of a node: the core tells them, here they are woken.

use super::admission::users::{Cost, Paid, Whose};
use super::{Engine, Work};
use polyrail_proto::limits::SUBSCRIPTION_UPDATES_MAX;
use polyrail_proto::service::{Over, SubscribeError, SubscriptionId, Topic, Update};
use polyrail_proto::time::{Duration, Instant};
use polyrail_sys::eventfd::EventFd;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is signalled when a subscriber that had seen all has something new to see.
#[derive(Default)]
pub(super) struct Bells(BTreeMap<SubscriptionId, Arc<EventFd>>);

/// What is kept for those who do not read counts to them.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) updates: BTreeMap<SubscriptionId, Paid>,
    pub(super) events: BTreeMap<u64, Paid>,
}

/// What a subscription may come to: the updates that are kept for it, its socket, and what tells that there are some.
const COST: Cost = Cost { bytes: SUBSCRIPTION_UPDATES_MAX * size_of::<Update>(), descriptors: 2 };

impl Engine {
    /// The same for a program that is attached.
    ///
    /// # Errors
    /// The same, or its user has as many as it may.
    pub(crate) fn subscribe_for(
        &mut self,
        whose: Option<Whose>,
        now_ns: u64,
        topic: Topic,
        timeout_ns: Option<u64>,
    ) -> Result<SubscriptionId, SubscribeError> {
        let paid = self.admit_subscription(whose, COST).map_err(|_| SubscribeError::TooMany)?;
        if timeout_ns.is_some() {
            self.next_at = Instant::ZERO;
        }
        match self.node.subscribe(Instant(now_ns), topic, timeout_ns.map(Duration::ns)) {
            Ok(id) => {
                self.kept.updates.insert(id, paid);
                Ok(id)
            }
            Err(error) => {
                self.note_subscription_gone(paid.whose.as_ref());
                Err(error)
            }
        }
    }

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
        self.subscribe_for(None, now_ns, topic, timeout_ns)
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, id: SubscriptionId) {
        self.bells.0.remove(&id);
        self.node.unsubscribe(id);
        if let Some(paid) = self.kept.updates.remove(&id) {
            self.note_subscription_gone(paid.whose.as_ref());
        }
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
