//! How often whoever spins looks at which bearers: each empty look is a system call, and one bearer has several sockets.

use super::{Attached, Engine};
use polyrail_proto::time::{Duration, Instant};

/// Quiet sockets are looked at so often,
const QUIET_SPAN: Duration = Duration::us(10);
/// and so often those of a silent bearer beside a busy one: who waits for an answer waits by the other.
const SILENT_SPAN: Duration = Duration::us(40);
/// One has something still, most likely, that had something so lately: longer than a short round trip takes.
const HEARD: Duration = Duration::us(20);
/// What has found something so lately is looked at in each turn, for pieces of one message come by several.
const BUSY: Duration = Duration::us(500);
/// Nothing has come by a bearer that is silent for so long.
const SILENCE: Duration = Duration::ms(1);

impl Engine {
    /// Whether a bearer is looked at in each turn: where something came last.
    pub(super) fn is_busy_bearer(&self, index: usize, now: Instant) -> bool {
        index == self.hot || now.since(self.bearers[index].found_at) < BUSY
    }

    /// Whether all sockets of a bearer are to be looked at again.
    pub(super) fn is_look_due(&self, index: usize, now: Instant) -> bool {
        let Attached { looked_at, found_at, .. } = self.bearers[index];
        let busy_found_at = self.bearers[self.hot].found_at;
        now.since(looked_at) >= look_span(now.since(found_at), now.since(busy_found_at))
    }
}

/// How long a bearer is left alone by which nothing has come for `silent`; by the one that was busy last, nothing has for
/// `busy_silent`.
fn look_span(silent: Duration, busy_silent: Duration) -> Duration {
    if silent >= SILENCE && busy_silent < HEARD { SILENT_SPAN } else { QUIET_SPAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::client::Exchange;
    use crate::engine::{Budget, Sizes};
    use polyrail_bearer::{Address, Bearer, MemoryHub, ShmBearer, Transmit};
    use polyrail_proto::Config;
    use polyrail_proto::flow::Class;
    use polyrail_proto::id::{Incarnation, NodeId};
    use polyrail_proto::node::Destination;

    #[test]
    fn only_what_is_silent_beside_something_busy_is_looked_at_seldom() {
        for (silent_us, busy_silent_us, span_us) in [
            (1_000, 19, 40),
            (999, 19, 10),      // It is in use, too.
            (1_000, 20, 10),    // The other has fallen silent: what is waited for may come by any.
            (5_000, 5_000, 10), // Nothing is busy.
            (0, 0, 10),         // The busy one itself.
        ] {
            let span = look_span(Duration::us(silent_us), Duration::us(busy_silent_us));
            assert_eq!(span, Duration::us(span_us), "{silent_us} {busy_silent_us}");
        }
    }

    #[test]
    fn who_is_about_to_sleep_leaves_what_comes_by_a_silent_bearer_to_the_kernel() {
        let (mut config, hubs) =
            (Config::new(NodeId(1), Incarnation(1)), [MemoryHub::new(), MemoryHub::new()]);
        config.discovery = false;
        let mut engine = Engine::new(0, config);
        for hub in &hubs {
            engine.add_bearer(0, Box::new(hub.bearer(0)));
        }
        let arrive = |engine: &mut Engine, bearer: usize, now_ns: u64, budget: Budget| {
            // Nothing is due, and everything was looked at long ago.
            for _ in 0..3 {
                engine.turn(now_ns - 10_000_000, Budget::THOROUGH);
            }
            let (to, slices) = (Address::Memory(0), [std::io::IoSlice::new(b"hello")]);
            let (segment_bytes, bytes) = (5, 5);
            let transmit =
                Transmit { to, segment_bytes, bytes, slices: &slices, express: false, lend: false, dscp: 0 };
            hubs[bearer].bearer(1).send(&transmit);
            engine.turn(now_ns, budget).done > 0
        };
        let brief = [0, 1].map(|bearer| arrive(&mut engine, bearer, 1_000_000_000, Budget::BRIEF));
        assert_eq!(brief, [true, false]);
        assert!(arrive(&mut engine, 1, 2_000_000_000, Budget::USUAL));
    }

    #[test]
    fn who_is_about_to_sleep_acknowledges_what_would_wait_for_an_answer() {
        let (hub, mut now_ns) = (MemoryHub::new(), 1_000_000);
        let mut engines = [1, 2].map(|id| {
            let mut engine = Engine::new(now_ns, Config::new(NodeId(id), Incarnation(1)));
            engine.add_bearer(now_ns, Box::new(hub.bearer(id as u32)));
            engine
        });
        let sizes = Sizes { sq_entries: 16, cq_entries: 64, tx_bytes: 1 << 20, rx_bytes: 1 << 20 };
        let mut clients = engines.each_mut().map(|e| e.open_client(sizes, Exchange::default()).unwrap());
        let to = Destination::Port(clients[1].address());
        let mut turn = |which: usize, span_ns: u64, budget: Budget| {
            now_ns += span_ns;
            engines[which].turn(now_ns, budget);
        };
        // They find each other, and the first packets of a link are over.
        (0..4_000).for_each(|n| turn(n % 2, 1_000_000, Budget::THOROUGH));
        for _ in 0..32 {
            clients[0].send(to, Class::Normal, None, &[1; 100]).unwrap();
            (0..8).for_each(|n| turn(n % 2, 1_000_000, Budget::THOROUGH));
        }
        let mut is_confirmed_by = |budget: Budget| {
            clients[0].send(to, Class::Normal, None, &[1; 24_000]).unwrap();
            turn(0, 1_000, Budget::THOROUGH);
            turn(1, 1_000, Budget::THOROUGH);
            turn(1, 1_000, budget);
            turn(0, 1_000, Budget::THOROUGH);
            let is_confirmed = clients[0].unconfirmed() == 0;
            (0..8).for_each(|n| turn(n % 2, 1_000_000, Budget::THOROUGH));
            assert_eq!(clients[0].unconfirmed(), 0);
            is_confirmed
        };
        assert_eq!([Budget::THOROUGH, Budget::SLEEPY].map(&mut is_confirmed_by), [false, true]);
    }

    #[test]
    fn what_comes_by_shared_memory_is_found_by_who_leaves_the_sockets_to_the_kernel() {
        let mut config = Config::new(NodeId(1), Incarnation(1));
        config.discovery = false;
        let (mut engine, machine) = (Engine::new(0, config), u64::from(std::process::id()) << 8 | 1);
        engine.add_bearer(0, Box::new(ShmBearer::open(machine).unwrap()));
        let mut other = ShmBearer::open(machine).unwrap();
        let (to, slices) = (engine.seat().unwrap(), [std::io::IoSlice::new(b"hello")]);
        let (segment_bytes, bytes) = (5, 5);
        let transmit =
            Transmit { to, segment_bytes, bytes, slices: &slices, express: false, lend: false, dscp: 0 };
        other.send(&transmit);
        // It lets in who has come, and reads what that one had to say.
        engine.turn(1_000_000_000, Budget::THOROUGH);
        engine.turn(2_000_000_000, Budget::THOROUGH);
        for budget in [Budget::SLEEPY, Budget::BRIEF, Budget::USUAL] {
            engine.turn(2_000_000_000, budget);
            assert!(!engine.await_calls());
            other.send(&transmit);
            assert!(engine.await_calls(), "nobody may sleep now");
            assert!(engine.turn(2_000_000_000, budget).done > 0, "or it lies down again and again, deaf");
        }
        let fd = engine.fds().find_map(|(_, fds)| fds.data.first().copied()).unwrap();
        let is_told = || {
            let mut set = polyrail_sys::poll::PollSet::default();
            set.add(fd, false);
            set.wait(Some(0)).unwrap() > 0
        };
        for wakes in [true, false] {
            engine.await_calls();
            if wakes {
                engine.attend_calls();
            }
            // What called before is heard, a call in each turn.
            for _ in 0..4 {
                engine.turn(3_000_000_000, Budget::THOROUGH);
            }
            assert!(!is_told());
            other.send(&transmit);
            assert_eq!(is_told(), !wakes, "who sleeps no more is not called");
        }
    }
}
