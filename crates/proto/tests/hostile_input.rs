//! A node under attack: recorded sessions damaged, truncated, replayed and made up, in every state of a session.
//!
//! Nothing that arrives may make the core panic, hold memory without bound, or spoil what it has with others. Every
//! kind of malformed packet and every reason to drop one is reached, and an honest newcomer is served afterwards.
//!
//! `FUZZ_EPISODES` sets how many attackers come, and with `FUZZ_SEED` repeats a run. `FUZZ_SECONDS` instead lets them
//! come for as long.

#[path = "hostile/craft.rs"]
mod craft;
#[path = "hostile/live.rs"]
mod live;
#[path = "hostile/mutate.rs"]
mod mutate;
#[path = "hostile/records.rs"]
mod records;
#[path = "hostile/siege.rs"]
mod siege;
#[path = "world/world.rs"]
mod world;

use cap::Cap;
use polyrail_proto::stats::Drops;
use polyrail_proto::wire::Fault;
use siege::{STAGES, Siege, VICTIM};
use std::alloc::System;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The most that the victim may hold at any time: its ports' memory, and its books of sessions, flows and links.
const HELD_BYTES_MAX: i64 = 32 << 20;
/// What it may hold when all attackers are gone.
const HELD_BYTES_QUIET: i64 = 2 << 20;
/// Packets after which everything must have been reached.
const ENOUGH_PACKETS: u64 = 100_000;
const BATCHES: usize = 40;
const EPISODES: u64 = 200;
const EPISODES_BETWEEN_SILENCES: u64 = 16;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// How long a run goes on. By episodes it is the same on every machine, and so is what it meets.
enum Length {
    Episodes(u64),
    Until(Instant),
}

impl Length {
    fn from_settings() -> Length {
        match setting("FUZZ_SECONDS") {
            Some(seconds) => Length::Until(Instant::now() + Duration::from_secs(seconds)),
            None => Length::Episodes(setting("FUZZ_EPISODES").unwrap_or(EPISODES)),
        }
    }

    fn has_room_after(&self, episodes: u64) -> bool {
        match self {
            Length::Episodes(most) => episodes < *most,
            Length::Until(end) => Instant::now() < *end,
        }
    }
}

/// Says how to repeat a run that ends in a panic.
struct Told {
    seed: u64,
    episode: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("FUZZ_SEED={} FUZZ_EPISODES={} repeats it", self.seed, self.episode);
        }
    }
}

#[test]
fn hostile_packets_are_counted_and_dropped_and_spoil_nothing() {
    let (length, seed) = (Length::from_settings(), setting("FUZZ_SEED").unwrap_or(1));
    println!("FUZZ_SEED={seed}");
    let mut told = Told { seed, episode: 0 };
    let mut siege = Siege::new(seed, || ALLOCATOR.allocated());
    let (mut most, mut quiet) = (0, 0);
    while length.has_room_after(told.episode) {
        told.episode += 1;
        let stage = siege.random.pick(&STAGES);
        siege.episode(stage, BATCHES, |siege| {
            let held = siege.world.hosts[VICTIM].held_bytes;
            most = most.max(held);
            assert!(held < HELD_BYTES_MAX, "{held} bytes held after {} packets", siege.hostile_packets);
        });
        if told.episode.is_multiple_of(EPISODES_BETWEEN_SILENCES) {
            siege.silence();
            quiet = siege.world.hosts[VICTIM].held_bytes;
            let sizes = siege.world.hosts[VICTIM].node.sessions().count();
            assert!(quiet < HELD_BYTES_QUIET, "{quiet} bytes held by {sizes} sessions when nothing goes on");
        }
    }
    siege.silence();
    siege.expect_newcomer_is_served();
    let node = &siege.world.hosts[VICTIM].node;
    println!("{} episodes, {} hostile packets", told.episode, siege.hostile_packets);
    println!("held at most {most} bytes, {quiet} when quiet");
    println!("{:?}\n{:?}", node.drops(), node.faults());
    if siege.hostile_packets >= ENOUGH_PACKETS {
        expect_everything_was_reached(node);
    }
}

fn expect_everything_was_reached(node: &polyrail_proto::Node) {
    let mut kinds = [false; Fault::KINDS];
    node.faults().keys().for_each(|fault| kinds[fault.index()] = true);
    assert!(kinds.iter().all(|reached| *reached), "a kind of fault was never reached: {:?}", node.faults());
    // It takes tens of thousands of names or links to reach these, and bearers of our own: `bounds` and `bearers` do.
    let drops =
        Drops { names_full: 1, bindings_refused: 1, bearers_refused: 1, links_refused: 1, ..*node.drops() };
    let drops = format!("{drops:?}");
    assert!(
        !drops.contains(": 0,") && !drops.contains(": 0 "),
        "a reason to drop was never reached: {drops}"
    );
}
