//! A model of what was measured: `T(n) = T_start + n / Bw`, the time of a message of `n` bytes, in as many pieces as the samples
//! give evidence for, each parameter with an interval.
//!
//! `model` reckons what links *should* do from their rates; here nothing is assumed of links, and what comes out is what was
//! measured, in few numbers. The steps, each a file:
//!
//! 1. `collect`: rows of documents become curves, times over sizes;
//! 2. `phase`: samples of another phase of the machine are left out, for no line goes through two phases;
//! 3. `level`: each size gets one time, the middle of its samples' logarithms in which what lies far off counts less;
//! 4. `pieces`: lines through stretches of sizes, and how many of them the evidence bears;
//! 5. `bootstrap`: all of that again with samples drawn anew, for the intervals;
//! 6. `loggp`: what curves of several workloads say together.
//!
//! Nothing is said of sizes beyond those measured.

mod ask;
mod bootstrap;
mod collect;
mod curve;
mod level;
mod line;
mod loggp;
mod phase;
mod pieces;
mod plot;
mod tell;
#[cfg(test)]
mod tests;

pub use ask::MODEL_SCHEMA;
pub(crate) use ask::Models;
pub(crate) use bootstrap::{Fitted, Interval};
pub(crate) use collect::{Series, same_machine, series};
#[cfg(test)]
use curve::{Curve, TimedSample};
