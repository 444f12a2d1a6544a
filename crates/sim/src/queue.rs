//! Virtual time and what happens when: a binary heap of events ordered by (time, order of scheduling).
//!
//! The second key makes ties repeatable: two events of one nanosecond happen in the order in which they were
//! scheduled, whatever the heap does inside.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A nanosecond count since the start of the run.
pub type TimeNs = u64;

/// One microsecond, one millisecond, one second in nanoseconds.
pub const US: TimeNs = 1_000;
/// One millisecond.
pub const MS: TimeNs = 1_000_000;
/// One second.
pub const S: TimeNs = 1_000_000_000;

/// Pending events of type `E`.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    next_order: u64,
    now_ns: TimeNs,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: TimeNs,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { heap: BinaryHeap::new(), next_order: 0, now_ns: 0 }
    }
}

impl<E> EventQueue<E> {
    /// An empty queue at time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of the event handed out last.
    pub fn now_ns(&self) -> TimeNs {
        self.now_ns
    }

    /// Lets `event` happen at `at_ns`, or now if that is past.
    pub fn schedule(&mut self, at_ns: TimeNs, event: E) {
        let entry = Entry { at_ns: at_ns.max(self.now_ns), order: self.next_order, event };
        self.next_order += 1;
        self.heap.push(Reverse(entry));
    }

    /// When the next event happens.
    pub fn next_at_ns(&self) -> Option<TimeNs> {
        self.heap.peek().map(|entry| entry.0.at_ns)
    }

    /// The next event; the clock moves to its time.
    pub fn pop(&mut self) -> Option<(TimeNs, E)> {
        let Reverse(entry) = self.heap.pop()?;
        debug_assert!(entry.at_ns >= self.now_ns, "time runs forward");
        self.now_ns = entry.at_ns;
        Some((entry.at_ns, entry.event))
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_happen_in_the_order_of_scheduling() {
        let mut queue = EventQueue::new();
        for (at_ns, name) in [(5, "b1"), (3, "a"), (5, "b2"), (9, "c"), (5, "b3")] {
            queue.schedule(at_ns, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(3, "a"), (5, "b1"), (5, "b2"), (5, "b3"), (9, "c")]);
    }

    #[test]
    fn the_past_becomes_now() {
        let mut queue = EventQueue::new();
        queue.schedule(10, 1);
        queue.pop();
        queue.schedule(4, 2);
        assert_eq!(queue.pop(), Some((10, 2)));
        assert_eq!(queue.now_ns(), 10);
    }
}
