//! What the orchestrator and the server say to each other once both have proven the key.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::control::{Event, Task};
use crate::host::Host;
use crate::protocol;

/// A line to the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(super) enum Ask {
    /// Start a measured process; the one before has ended by then.
    Start {
        /// Its number, counted up.
        job: u64,
        /// What it is for.
        task: Task,
    },
    /// Hand an order on to it.
    Tell {
        /// Its number.
        job: u64,
        /// The order, as a measured process gets it.
        line: serde_json::Value,
    },
    /// End it.
    End {
        /// Its number.
        job: u64,
    },
    /// What time is it?
    Clock {
        /// Number of the question.
        number: u32,
    },
    /// Nothing new.
    Alive,
    /// No more will come.
    Bye,
}

/// A line from the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "tell")]
pub(super) enum Tell {
    /// The first: what there is.
    Welcome(Box<Welcome>),
    /// The first and last: another client is served.
    Busy {
        /// For how long already, in s.
        held_s: u64,
    },
    /// Something that the measured process said.
    Event {
        /// Its number.
        job: u64,
        /// What.
        event: Box<Event>,
    },
    /// It has ended, or could not be started.
    Ended {
        /// Its number.
        job: u64,
        /// Why.
        reason: String,
    },
    /// The machine's monotonic clock.
    Clock {
        /// Number of the question.
        number: u32,
        /// When the question was here, in ns.
        received_ns: u64,
        /// When this left, in ns.
        sent_ns: u64,
    },
    /// Nothing new.
    Alive,
    /// No more will come.
    Bye {
        /// Why.
        reason: String,
    },
}

/// The machine that a server runs on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Its facts.
    pub(crate) host: Host,
    /// Its addresses that are offered to be measured to, one per link.
    pub(crate) addresses: Vec<IpAddr>,
    /// What it can receive by.
    pub(crate) protocols: Vec<Offer>,
}

/// A protocol that the server's program knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) name: String,
    /// Why it cannot run there.
    pub(crate) refused: Option<String>,
}

impl Welcome {
    pub(super) fn here(addresses: Vec<IpAddr>) -> Self {
        let offer = |protocol: &'static dyn protocol::Protocol| Offer {
            name: protocol.name().to_owned(),
            refused: protocol.available().err(),
        };
        Self { host: Host::here(), addresses, protocols: protocol::all().into_iter().map(offer).collect() }
    }

    /// Why a protocol cannot be received by there.
    pub(crate) fn refusal(&self, protocol: &str) -> Option<String> {
        match self.protocols.iter().find(|offer| offer.name == protocol) {
            Some(offer) => offer.refused.clone(),
            None => Some("not known to the program there".to_owned()),
        }
    }
}
