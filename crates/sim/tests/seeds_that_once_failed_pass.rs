//! Seeds that found a mistake, of the protocol or of the checks. They stay, for a mistake that was made once is made
//! again.

#![forbid(unsafe_code)]

use polyrail_sim::engine_node::{self, Options};
use polyrail_sim::runner;

/// The seed, and what it had met when it failed.
const SEEDS: &[(u64, &str)] = &[
    (23, "messages behind a gap when the session ends"),
    (45, "a port that closes before its acknowledgements are back"),
    (76, "a repetition that meets a port that has closed"),
    (87, "credit that is too little for the next message"),
    (651, "late fragments of a flow whose port has closed"),
    (2_117, "a link first used long after the handshake"),
    (2_158, "equal messages to a node that began a new life"),
    (137, "copies of lost messages that bred copies"),
    (583, "a refused flow of a node to itself, which nothing woke"),
    (641, "the same, with fragments"),
    (1_899, "a large message that leaves no room for the one it waits for"),
    (3_661, "the same, with three nodes"),
    (137, "flows that are refused and leave no window for the transfer whose end they wait for"),
    (2_549, "packets to an earlier life, whose sessions had the same numbers"),
    (13_125, "an empty message that takes the last block"),
    (17_092, "equal messages, of which the last was never sent"),
    (6_413, "a verdict that falls after everything was settled"),
    (1_024, "two ends of a damped link that ask each other to join without end"),
    (738, "a node that is stopped before its first turn and then loses itself"),
    (40_715, "senders that wait for the credit of a port that closes"),
    (40_729, "many connections whose applications try again and again"),
    (1_695, "copies of lost control frames that bred copies"),
    (20_542, "a piece kept back by what is refused until it is there"),
    (33_557, "the same, on many connections"),
    (101, "a question to the peer whose answer was lost, and a transfer after it"),
    (2_077, "the same, of a transfer that was given up"),
    (325, "a dropped train that cost its session no turn"),
    (877, "the same, after a pause"),
    (19_658, "a lost answer to an opening, and messages that were handed in meanwhile"),
    (21_253, "a first urgent message, beside bulk that does not know of it yet"),
    (9_161, "a window that never left its start, for the bearer's buffer bounded what was in flight"),
    (8_000, "the same, on three links"),
    (46_222, "the same, with a buffer of less than half a train"),
    (208, "trains of small bulk messages that are longer than what their link moves in its span"),
    (94_698, "credit of a port that closed unheard of, and flows that waited for it"),
    (73_515, "memory that a lost peer's unfinished messages held, and senders that waited for credit of it"),
];

#[test]
fn seeds_that_once_failed_pass() {
    let factory = || engine_node::factory(Options::default());
    let run = |seeds: &[(u64, &str)]| {
        for (seed, what) in seeds {
            let outcome = runner::run_seed(*seed, false, &factory);
            assert!(outcome.violations.is_empty(), "sim {seed} ({what}): {}", outcome.violations[0]);
        }
    };
    let (first, second) = SEEDS.split_at(SEEDS.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| run(first));
        run(second);
    });
}
