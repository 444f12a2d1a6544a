//! How much is asked of a protocol at once, where a workload can be asked for more than one pair going as fast as it goes.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::Load;
use crate::workload::Workload;

/// How much is asked of a protocol at once.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Payload that datagram offers, in Mbit/s, separated by commas, each measured in turn; 0: as much as is taken.
    /// 100,300,1000,3000,0 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub offer: Vec<u32>,
    /// Messages per second: of openloop, separated by commas, each measured in turn, 1000,10000,50000 if not given; of the
    /// watched flow of failover, 10000 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub arrivals: Vec<u64>,
    /// Streams side by side between the two processes of stream, separated by commas, each measured in turn; 1 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: Vec<u32>,
    /// Client processes of pingpong, rate and stream that have one server, all at once, within this machine (intra), separated by
    /// commas, each measured in turn: `pingpong --placement intra --clients 64 --protocol polyrail-attached,unix-stream`.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: Vec<u32>,
    /// Pairs of processes of share, separated by commas, each measured in turn; 1,2 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub pairs: Vec<u32>,
    /// Which way the pairs of share send, separated by commas, each measured in turn; both if not given.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub direction: Vec<FlowDirection>,
    /// What goes between the two processes of pingpong meanwhile: bulk, messages of 1 MiB as fast as they are taken. The class
    /// of the questions is --class: `pingpong --beside bulk --class urgent --rate 1000`.
    #[arg(long, value_enum)]
    pub beside: Option<BesideKind>,
    /// Senders of incast, separated by commas, each measured in turn; 2,4,8 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub senders: Vec<u32>,
    /// Nodes that multicast sends to, separated by commas, each measured in turn; 8 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub members: Vec<u32>,
    /// Ports of each node that a multicast reaches, separated by commas, each measured in turn; 3 if not given.
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub member_ports: Vec<u32>,
}

/// What goes beside questions and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BesideKind {
    /// Messages of 1 MiB as fast as they are taken, the way that the questions go, of class bulk where there are classes.
    Bulk,
}

/// Which way several pairs send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlowDirection {
    /// All the same way.
    Same,
    /// Every other one the other way.
    Opposite,
}

impl FlowDirection {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Opposite => "opposite",
        }
    }
}

impl LoadArgs {
    /// The loads of a workload, in the order in which they are measured.
    pub(super) fn loads(&self, workload: Workload) -> Vec<Load> {
        let or = |given: &[u32], otherwise: &[u32]| if given.is_empty() { otherwise } else { given }.to_vec();
        match workload {
            Workload::PingPong | Workload::Rate | Workload::Stream if !self.clients.is_empty() => {
                self.clients.iter().copied().map(Load::Clients).collect()
            }
            Workload::Datagram => {
                or(&self.offer, &[100, 300, 1000, 3000, 0]).into_iter().map(Load::Offered).collect()
            }
            Workload::OpenLoop => {
                let arrivals =
                    if self.arrivals.is_empty() { &[1_000, 10_000, 50_000] } else { &self.arrivals[..] };
                arrivals.iter().copied().map(Load::Arrivals).collect()
            }
            Workload::Stream => or(&self.streams, &[1])
                .into_iter()
                .map(|count| if count == 1 { Load::Full } else { Load::Streams(count) })
                .collect(),
            Workload::Incast => or(&self.senders, &[2, 4, 8]).into_iter().map(Load::Senders).collect(),
            Workload::Multicast => {
                let ports = or(&self.member_ports, &[3]);
                let of = |count| ports.iter().map(move |&ports| Load::Members(count, ports));
                or(&self.members, &[8]).into_iter().flat_map(of).collect()
            }
            Workload::PingPong if self.beside.is_some() => vec![Load::BesideBulk],
            Workload::Share => self.pairs(&or(&self.pairs, &[1, 2])),
            _ => vec![Load::Full],
        }
    }

    fn pairs(&self, counts: &[u32]) -> Vec<Load> {
        let both = [FlowDirection::Same, FlowDirection::Opposite];
        let directions = if self.direction.is_empty() { &both[..] } else { &self.direction[..] };
        // One pair alone has no other to go with or against.
        let of = |&count: &u32| {
            let directions = if count == 1 { &directions[..1] } else { directions };
            directions.iter().map(move |&direction| Load::Pairs(count, direction))
        };
        counts.iter().flat_map(of).collect()
    }
}
