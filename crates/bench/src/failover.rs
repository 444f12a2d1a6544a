//! What a cut link does to a flow: messages that arrive at a fixed rate, whatever becomes of them, beside bulk, while
//! links are cut and given back; how late each of them is in the receiver's hands.
//!
//! The messages' schedule is fixed beforehand and never waits for the protocol: a message that could not be handed
//! over in time is late from the moment it was due.

mod judge;
mod receive;
mod send;
mod stall;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use judge::Judgement;
pub(crate) use stall::StallSummary;

use std::sync::mpsc::Receiver;

use crate::control::{Beside, Event, Job, Order, Role, SideReport};
use crate::netns::Direction;
use crate::protocol::Pipe;

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One end's interface is set down: both nodes are told by their own kernel.
    Carrier,
    /// Packets vanish, in one direction or both; nobody is told.
    Blackhole,
}

impl Kind {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Carrier => "carrier",
            Self::Blackhole => "blackhole",
        }
    }
}

/// What either side works with.
#[derive(Clone, Copy)]
struct Scene<'a> {
    job: &'a Job,
    beside: &'a Beside,
    orders: &'a Receiver<Order>,
    say: &'a dyn Fn(&Event),
}

/// Plays one side to its end, over the watched flow's pipe and the bulk's.
pub(crate) fn play(
    job: &Job,
    watched: &mut dyn Pipe,
    bulk: &mut dyn Pipe,
    orders: &Receiver<Order>,
    say: &dyn Fn(&Event),
) -> Result<SideReport, String> {
    let beside = job.beside.as_ref().ok_or("no second flow")?;
    let scene = Scene { job, beside, orders, say };
    match job.role {
        Role::Sender => send::send(scene, watched, bulk),
        Role::Receiver => receive::receive(scene, watched, bulk),
    }
}

/// What a thread said when it panicked.
fn last_words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
    format!("a thread panicked: {text}")
}

/// One cut and what it did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) place: Place,
    /// When the cut was begun, in ns of the machine's clock.
    pub(crate) cut_ns: u64,
    pub(crate) judgement: Judgement,
    /// Share of the bytes that left over the cut link shortly before.
    pub(crate) carried_share: f64,
    /// Largest lateness of what was due after the link's return, until the calm before the next cut, in ns; none if
    /// the run ended before.
    pub(crate) aftermath_ns: Option<u64>,
}

/// Which cut it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) link: usize,
    /// The node that suffers it: whose carrier is lost, whose packets vanish.
    pub(crate) node: usize,
    /// Which of its packets vanish.
    pub(crate) direction: Direction,
}

impl Place {
    /// The cut of this number: links alternate, then ends; holes are of both directions, then of each.
    pub(crate) fn of(kind: Kind, number: usize, links: usize) -> Self {
        let round = number / links;
        let direction = match kind {
            Kind::Carrier => Direction::Both,
            Kind::Blackhole => [Direction::Both, Direction::Into, Direction::OutOf][round % 3],
        };
        // With the ends alternating beside three directions, every pair of them has its turn.
        Self { kind, link: number % links, node: round % 2, direction }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_cuts_meet_every_link_end_and_direction() {
        let mut places: Vec<_> = (0..12)
            .map(|number| Place::of(Kind::Blackhole, number, 2))
            .map(|place| (place.link, place.node, format!("{:?}", place.direction)))
            .collect();
        assert!(places.windows(2).all(|pair| pair[0].0 != pair[1].0), "the link alternates");
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 12);
    }
}
