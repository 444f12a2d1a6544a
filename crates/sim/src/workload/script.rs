//! What the two ends of a connection do, drawn from the run's seed and the connection's number alone.

use super::WorkloadOptions;
use crate::prng::Prng;
use crate::queue::{MS, TimeNs, US};

/// What one end does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Script {
    /// So many messages it sends.
    pub messages: usize,
    /// So long it waits between two of them.
    pub gap_ns: TimeNs,
    /// It ends its half when it has sent all; else only when the other side has.
    pub finishes_first: bool,
    /// It gives the connection up when it has sent and received so many messages together.
    pub drops_after: Option<usize>,
    /// It does not read for so long.
    pub sleeps_ns: TimeNs,
    /// When both halves are done it says that it receives no more, as those do who give a connection back.
    pub says_deaf: bool,
}

/// What both do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scripts {
    /// The side that asks.
    pub asker: Script,
    /// The side that is asked.
    pub acceptor: Script,
    /// The first message goes with the question.
    pub with_first: bool,
    /// The other side does not want it.
    pub refuses: bool,
    /// After it the asked port looks at no further request for so long.
    pub accepts_again_ns: TimeNs,
    /// Its messages are large ones.
    pub heavy: bool,
}

/// The scripts of connection `number` in the run of `seed`.
pub fn draw(workload: &WorkloadOptions, seed: u64, number: usize) -> Scripts {
    let mut prng = Prng::for_component(seed, "connection", number as u64);
    let heavy = prng.chance_ppm(workload.connect_heavy_ppm);
    // One of them ends first, or both at once; if each waited for the other, there would be no end.
    let who = prng.below(4);
    let asker = draw_one(&mut prng, heavy, who != 1);
    let acceptor = draw_one(&mut prng, heavy, who != 0);
    Scripts {
        with_first: asker.messages > 0 && prng.chance_ppm(500_000),
        refuses: prng.chance_ppm(60_000),
        accepts_again_ns: if prng.chance_ppm(120_000) { prng.log_uniform(MS, 100 * MS) } else { 0 },
        asker,
        acceptor,
        heavy,
    }
}

fn draw_one(prng: &mut Prng, heavy: bool, finishes_first: bool) -> Script {
    Script {
        messages: if heavy { prng.between(20, 60) } else { prng.below(21) } as usize,
        gap_ns: if prng.chance_ppm(500_000) { 0 } else { prng.log_uniform(10 * US, 5 * MS) },
        finishes_first,
        drops_after: prng.chance_ppm(120_000).then(|| prng.below(12) as usize),
        sleeps_ns: if prng.chance_ppm(200_000) { prng.log_uniform(MS, 100 * MS) } else { 0 },
        says_deaf: prng.chance_ppm(500_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_script_is_drawn_and_none_waits_for_a_side_that_waits() {
        let workload = WorkloadOptions { connect_heavy_ppm: 100_000, ..WorkloadOptions::default() };
        let all: Vec<Scripts> = (0..2_000).map(|number| draw(&workload, 7, number)).collect();
        assert_eq!(all[3], draw(&workload, 7, 3));
        assert!(all.iter().all(|s| s.asker.finishes_first || s.acceptor.finishes_first));
        for (what, reached) in [
            ("silence", (|s| s.asker.messages == 0 && s.acceptor.messages == 0) as fn(&Scripts) -> bool),
            ("both at once", |s| s.asker.finishes_first && s.acceptor.finishes_first),
            ("acceptor first", |s| !s.asker.finishes_first),
            ("asker first", |s| !s.acceptor.finishes_first),
            ("drop at once", |s| s.asker.drops_after == Some(0)),
            ("two drops", |s| s.acceptor.drops_after.is_some() && s.asker.drops_after.is_some()),
            ("one question", |s| s.with_first && s.asker.messages == 1),
            ("refusal", |s| s.refuses),
            ("a port that does not accept", |s| s.accepts_again_ns > 0),
            ("a reader that sleeps", |s| s.acceptor.sleeps_ns > 10 * MS),
            ("large messages", |s| s.heavy),
        ] {
            assert!(all.iter().any(reached), "{what}");
        }
    }
}
