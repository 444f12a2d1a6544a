//! Other systems, measured beside our protocols by their own programs or by small drivers over their interfaces.
//!
//! A peer says which programs play its two sides and reads a [`Sample`] from what they tell. How they are run (nodes,
//! priority, pinning, deadlines, their end) is the orchestrator's business and the same for all.

mod driver;
mod drivers;
mod iperf3;
mod mpi;
mod place;
mod sockperf;
mod transact_c;

use std::net::IpAddr;
use std::path::PathBuf;

use crate::args::ReadKind;
use crate::errand::{Ending, Errand};
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// Another system.
pub(crate) trait Peer: Sync {
    /// What is known of it without running it.
    fn facts(&self) -> &Facts;

    /// The program that must be there, or the line that brings it.
    fn program(&self) -> Result<PathBuf, String>;

    /// Whether it can do this, or why not.
    fn supports(&self, workload: Workload, placement: Place, size: usize) -> Result<(), String>;

    /// What is run for one measurement; `program` is what [`Peer::program`] gave.
    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast;

    /// What the programs' words mean.
    fn sample(&self, scene: &Scene, told: &Told) -> Result<Sample, String>;
}

/// What is known of a peer.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The name used on the command line and in reports.
    pub(crate) name: &'static str,
    /// Whether it promises that everything arrives, once and in order.
    pub(crate) reliable: bool,
    /// Whether it uses every link at once.
    pub(crate) striped: bool,
}

/// The conditions of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) workload: Workload,
    pub(crate) placement: Place,
    pub(crate) size: usize,
    pub(crate) wait: WaitMode,
    pub(crate) read: ReadKind,
    pub(crate) warmup_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) sender: Seat,
    pub(crate) receiver: Seat,
    /// Devices of the links; none on loopback.
    pub(crate) devices: Vec<String>,
    /// A port of the receiver that was free just now.
    pub(crate) port: u16,
}

/// Where the two sides are; those of other machines are not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Two processes of one node.
    Intra,
    /// Two nodes of a testbed.
    Inter,
}

impl Place {
    /// The name used on command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Intra => "intra",
            Self::Inter => "inter",
        }
    }
}

/// Where one side is.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Its address on the first link.
    pub(crate) address: IpAddr,
    /// Core of its measuring thread; none where the machine has too few.
    pub(crate) core: Option<usize>,
    /// Its network namespace; none on loopback.
    pub(crate) namespace: Option<String>,
}

/// Who plays one measurement.
#[derive(Clone, Debug)]
pub(crate) enum Cast {
    /// Two programs, the receiver first.
    Two {
        /// Listens; receives a stream, or answers.
        receiver: Errand,
        /// When the sender may begin.
        ready: Ready,
        /// Whether the receiver ends by itself once the sender has.
        ends_itself: bool,
        /// Connects; sends a stream, or asks.
        sender: Errand,
    },
    /// One program that brings up both sides. How it ends by itself is not waited for: that may take for ever.
    One {
        /// The program.
        errand: Errand,
        /// When it has told all.
        done: Ready,
    },
}

/// How a receiver shows that it can be reached, or a program that it has told all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It has a TCP socket that listens on the scene's port.
    ListensTcp,
    /// It has a UDP socket on the scene's port.
    BoundUdp,
    /// It says a line that begins like this.
    Says(&'static str),
}

/// What the programs told, each line of standard output by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Of the sender, or of the only program.
    pub(crate) sender: Words,
    /// Of the receiver; nothing where there is only one program.
    pub(crate) receiver: Words,
}

/// What one program told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Lines of its standard output.
    pub(crate) lines: Vec<String>,
    /// Lines of its standard error.
    pub(crate) asides: Vec<String>,
    /// How it ended; nothing if it had to be ended before it said so.
    pub(crate) ending: Ending,
}

/// Every peer, those with bars first.
pub(crate) fn all() -> Vec<&'static dyn Peer> {
    let mut list: Vec<&'static dyn Peer> =
        vec![&iperf3::Iperf3, &sockperf::TCP, &sockperf::UDP, &transact_c::TransactC];
    list.extend(drivers::ALL.iter().map(|peer| peer as &dyn Peer));
    list.extend(mpi::ALL.map(|peer| peer as &dyn Peer));
    list
}

/// The peer of this name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Peer> {
    all().into_iter().find(|peer| peer.facts().name == name)
}

/// What begins with whole seconds only: `ns` rounded up, at least 1.
fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).max(1)
}

#[cfg(test)]
mod tests;
