//! What a cut link does to a flow: messages that arrive at a fixed rate, whatever becomes of them, beside bulk, while
//! links are cut and given back; how late each of them is in the receiver's hands.
//!
//! The messages' schedule is fixed beforehand and never waits for the protocol: a message that could not be handed
//! over in time is late from the moment it was due.

mod goodput;
mod judge;
mod receive;
mod reuse;
mod schedule;
mod send;
mod stall;
mod timeline;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use goodput::{GET_OVER_NS, Goodput};
pub(crate) use judge::Judgement;
pub(crate) use reuse::{Look, Returned, Reuse};
pub(crate) use schedule::schedule;
pub(crate) use stall::StallSummary;
pub(crate) use timeline::STEP_NS;
pub use timeline::Timeline;

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
    /// One end's interface is set down and up, down and up, ten times a second; only if it is asked for.
    Flapping,
}

impl Kind {
    /// All of them, in the order in which they are told.
    pub(crate) const ALL: [Self; 3] = [Self::Carrier, Self::Blackhole, Self::Flapping];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Carrier => "carrier",
            Self::Blackhole => "blackhole",
            Self::Flapping => "flapping",
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
    /// When the link was given back, in ns of the same clock; 0 where that was not recorded.
    #[serde(default)]
    pub(crate) restored_ns: u64,
    pub(crate) judgement: Judgement,
    /// Share of the bytes that left over the cut link shortly before.
    pub(crate) carried_share: f64,
    /// Largest lateness of what was due after the link's return, until the calm before the next cut, in ns; none if
    /// the run ended before.
    pub(crate) aftermath_ns: Option<u64>,
    /// How soon the link carried again after its return.
    #[serde(default)]
    pub(crate) reuse: Reuse,
    /// How often the link went down and came up, where it flapped.
    #[serde(default)]
    pub(crate) flaps: u32,
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
            Kind::Carrier | Kind::Flapping => Direction::Both,
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

    #[test]
    fn a_cut_that_was_recorded_before_goodput_and_reuse_were_measured_is_read() {
        let cut = Cut {
            place: Place::of(Kind::Flapping, 3, 2),
            cut_ns: 1,
            restored_ns: 2,
            judgement: Judgement { goodput: Some(Goodput { bytes: 1, span_ns: 2 }), ..Judgement::default() },
            carried_share: 0.5,
            aftermath_ns: None,
            reuse: Reuse::After(7),
            flaps: 9,
        };
        let mut value = serde_json::to_value(&cut).unwrap();
        let whole: Cut = serde_json::from_value(value.clone()).unwrap();
        assert_eq!((whole.judgement, whole.reuse, whole.flaps), (cut.judgement, cut.reuse, cut.flaps));
        for name in ["reuse", "flaps", "restored_ns"] {
            value.as_object_mut().unwrap().remove(name).unwrap();
        }
        value["judgement"].as_object_mut().unwrap().remove("goodput").unwrap();
        let old: Cut = serde_json::from_value(value).unwrap();
        assert_eq!((old.judgement.goodput, old.reuse, old.flaps), (None, Reuse::Unknown, 0));
    }
}
