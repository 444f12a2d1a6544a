//! News of the node as a whole, for those who want to know: the program that embeds it, and others that listen.

use super::Engine;
use super::admission::denied::Denied;
use super::admission::users::{Cost, Paid, Whose};
use crate::node::events::NodeEvent;
use polyrail_sys::eventfd::EventFd;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Events that are kept for whoever does not read them: the oldest go first.
const KEPT_MAX: usize = 1_024;
/// What they may come to, with a socket to tell them by and what tells that there are some.
const COST: Cost = Cost { bytes: KEPT_MAX * size_of::<NodeEvent>(), descriptors: 2 };

/// What has happened and was not read.
#[derive(Default)]
pub(super) struct News {
    own: Queue,
    others: BTreeMap<u64, Queue>,
    listeners: u64,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<NodeEvent>,
    /// Signalled when there are events.
    bell: Option<Arc<EventFd>>,
}

impl Queue {
    fn push(&mut self, event: NodeEvent) {
        // Names are told once.
        if event == NodeEvent::Names && self.events.back() == Some(&NodeEvent::Names) {
            return;
        }
        if self.events.len() >= KEPT_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.bell.iter().for_each(|bell| bell.signal());
    }
}

impl News {
    /// How many listen beside the program that embeds the node: each attached process does, once.
    pub(super) fn listeners(&self) -> usize {
        self.others.len()
    }
}

impl Engine {
    /// News of the node as a whole: peers, links, names.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        self.news.own.events.pop_front()
    }

    /// Signals `bell` whenever there is an event from now on, and now if there is one.
    pub(crate) fn watch_events(&mut self, bell: Arc<EventFd>) {
        if !self.news.own.events.is_empty() {
            bell.signal();
        }
        self.news.own.bell = Some(bell);
    }

    /// Keeps events from now on for a program that is attached; its number.
    ///
    /// # Errors
    /// Its user has as much memory as it may.
    pub(crate) fn keep_events(&mut self, whose: Whose) -> Result<u64, Denied> {
        let charge = self.pay(Some(&whose), COST)?;
        self.news.listeners += 1;
        self.kept.events.insert(self.news.listeners, Paid { whose: Some(whose), charge });
        self.news.others.insert(self.news.listeners, Queue::default());
        Ok(self.news.listeners)
    }

    /// Signals `bell` whenever there is an event for a listener from now on, and now.
    pub(crate) fn watch_events_for(&mut self, listener: u64, bell: Arc<EventFd>) {
        if let Some(queue) = self.news.others.get_mut(&listener) {
            bell.signal();
            queue.bell = Some(bell);
        }
    }

    /// The next event for a listener.
    pub(crate) fn poll_event_for(&mut self, listener: u64) -> Option<NodeEvent> {
        self.news.others.get_mut(&listener)?.events.pop_front()
    }

    /// He listens no more.
    pub(crate) fn forget_listener(&mut self, listener: u64) {
        self.news.others.remove(&listener);
        self.kept.events.remove(&listener);
    }

    pub(super) fn push_event(&mut self, event: NodeEvent) {
        self.news.others.values_mut().for_each(|queue| queue.push(event.clone()));
        self.news.own.push(event);
    }
}
