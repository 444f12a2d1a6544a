//! When a trunk is asked for: at once by who connects and waits to be accepted, after some questions by who asks one after the other.

use polyrail_proto::flow::Class;
use polyrail_proto::node::Destination;

/// Questions after which a trunk is worth asking for.
const WORTH_AFTER: u32 = 4;
/// Connections until the next attempt, where the last one gave none: twice as many each time, up to this.
const AGAIN_AFTER_MAX: u32 = 4_096;
/// Destinations that are counted at a time.
const COUNTED_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Counted(Vec<One>);

struct One {
    to: Destination,
    class: Class,
    connections: u32,
    /// At so many the next attempt.
    next_at: u32,
    again_after: u32,
    /// There is to be none.
    refused: bool,
}

impl Counted {
    /// Counts a connection by the engine; whether a trunk is to be asked for first.
    pub(super) fn count(&mut self, to: Destination, class: Class, waits: bool) -> bool {
        let one = self.find(to, class);
        let wants = one.connections >= one.next_at || waits && one.again_after == WORTH_AFTER;
        one.connections = one.connections.saturating_add(1);
        if wants && !one.refused {
            one.next_at = one.connections.saturating_add(one.again_after);
            one.again_after = (one.again_after * 2).min(AGAIN_AFTER_MAX);
        }
        wants && !one.refused
    }

    pub(super) fn refuse(&mut self, to: Destination, class: Class) {
        self.find(to, class).refused = true;
    }

    fn find(&mut self, to: Destination, class: Class) -> &mut One {
        let at = self.0.iter().position(|one| one.to == to && one.class == class).unwrap_or_else(|| {
            if self.0.len() == COUNTED_MAX {
                self.0.remove(0);
            }
            let (connections, next_at, again_after) = (0, WORTH_AFTER, WORTH_AFTER);
            self.0.push(One { to, class, connections, next_at, again_after, refused: false });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_proto::address::ServiceAddress;

    fn service(instance: u32) -> Destination {
        Destination::Service(ServiceAddress::new(1_000, instance))
    }

    #[test]
    fn who_waits_asks_at_once_others_after_some_and_both_less_and_less_in_vain() {
        for (waits, first) in [(true, 0), (false, 4)] {
            let mut counted = Counted::default();
            let asked: Vec<u32> =
                (0..2_000).filter(|_| counted.count(service(1), Class::Normal, waits)).collect();
            assert_eq!(asked[0], first);
            assert!(asked.len() < 12 && asked.windows(2).all(|two| two[1] - two[0] > 4), "{asked:?}");
        }
    }

    #[test]
    fn who_was_refused_asks_no_more() {
        let mut counted = Counted::default();
        assert!(counted.count(service(1), Class::Normal, true));
        counted.refuse(service(1), Class::Normal);
        assert!((0..10_000).all(|_| !counted.count(service(1), Class::Normal, true)));
        assert!(counted.count(service(1), Class::Urgent, true), "that is another");
        for instance in 2..100 {
            counted.count(service(instance), Class::Normal, false);
        }
        assert_eq!(counted.0.len(), COUNTED_MAX);
    }
}
