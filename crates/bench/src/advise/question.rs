//! The questions: what differs among the candidates, which of them is the simpler, and which figure counts.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::choice::{Better, Candidate, Choice, choose};
use crate::args::Placement;
use crate::protocol::{self, Protocol};
use crate::report::{Measured, MeasuredRow};
use crate::stats::median;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// Which protocol, for this size and pattern.
    Protocol,
    /// Which policy of Polyrail's, over several links.
    Policy,
    /// Which socket buffer, for this size.
    SocketBuffer,
    /// Whether further links pay, for this size.
    FurtherLinks,
    /// How threads wait.
    Wait,
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) question: Question,
    /// Those that the candidates share.
    pub(super) conditions: Map<String, Value>,
    #[serde(skip)]
    pub(super) workload: Workload,
    /// Name of the figure in the document.
    pub(super) figure: &'static str,
    #[serde(flatten)]
    pub(super) choice: Choice,
}

/// What shows the limit of the machine is no protocol.
const LIMITS: [&str; 2] = ["cacheline", "memcpy"];
/// Polyrail's with something left out or elsewhere, to be compared with; not what a program uses.
const VARIANTS: [&str; 4] = ["polyrail-first", "polyrail-last", "polyrail-hosted", "polyrail-multicast"];
/// The simpler first: what each system has and every program can use, then what has to be there, too.
const SIMPLE: [&str; 10] = [
    "tcp-nodelay",
    "tcp-cubic",
    "unix-stream",
    "pipe",
    "unix-seqpacket",
    "unix-dgram",
    "polyrail",
    "polyrail-connection",
    "polyrail-stream",
    "polyrail-attached",
];
/// Where the program is told what is Polyrail with another policy.
const USUAL_POLICY: &str = "polyrail";

impl Question {
    pub(super) const ALL: [Self; 5] =
        [Self::Protocol, Self::FurtherLinks, Self::Policy, Self::Wait, Self::SocketBuffer];

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Protocol => "which protocol",
            Self::Policy => "which policy over several links",
            Self::SocketBuffer => "which socket buffer",
            Self::FurtherLinks => "whether a second link pays",
            Self::Wait => "how to wait",
        }
    }

    /// What measures it.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Protocol => {
                "polyrail bench pingpong --repeat 15 --json > pingpong.json (and stream, rate, transact)"
            }
            Self::Policy => {
                "polyrail bench stream --protocol policies --links 2 --rate 1000 --repeat 15 --json > policies.json"
            }
            Self::SocketBuffer => {
                "polyrail bench buffer --protocol polyrail,tcp-cubic --repeat 7 --json > buffer.json"
            }
            Self::FurtherLinks => {
                "polyrail bench links --links 2 --rate 1000 --protocol polyrail --size 1K..1M --repeat 7 --json > links.json"
            }
            Self::Wait => {
                "polyrail bench openloop --arrivals 1000 --protocol polyrail --wait spin,adaptive,block --repeat 7 --json > wait.json"
            }
        }
    }

    /// The conditions in which candidates differ.
    fn differing(self) -> &'static [&'static str] {
        match self {
            Self::Protocol => &["protocol", "class"],
            Self::Policy => &["protocol"],
            Self::SocketBuffer => &["socket_buffer_max"],
            Self::FurtherLinks => &["links", "rate_mbit", "loss_percent", "delay_ms"],
            Self::Wait => &["wait"],
        }
    }

    fn concerns(self, row: &MeasuredRow) -> bool {
        use Workload::{Buffer, Links, Lone, OpenLoop, PingPong, Rate, Stream, Transact};
        let is_policy = row.protocol == USUAL_POLICY || is_policy(&row.protocol);
        let protocol = row.protocol.as_str();
        match self {
            Self::Protocol => {
                matches!(row.workload, PingPong | Stream | Rate | Transact | Lone | Links | OpenLoop)
                    && row.socket_buffer_max.is_none()
                    && !is_policy_variant(protocol)
                    && !LIMITS.contains(&protocol)
                    && !VARIANTS.contains(&protocol)
            }
            Self::Policy => is_policy && row.links > 1 && figure(row).is_some(),
            Self::SocketBuffer => {
                row.reliable && row.socket_buffer_max.is_some() && matches!(row.workload, Buffer | Stream)
            }
            Self::FurtherLinks => {
                row.placement == Placement::Inter
                    && protocol::find(protocol).is_some_and(Protocol::striped)
                    && matches!(row.workload, PingPong | Stream | Links | Lone)
            }
            Self::Wait => row.reliable && matches!(row.workload, PingPong | Transact | OpenLoop),
        }
    }

    /// What the rows of one question share.
    fn key(self, row: &MeasuredRow) -> Map<String, Value> {
        let mut key = row.conditions_without(self.differing());
        if self == Self::FurtherLinks {
            key.insert("first_link_mbit".to_owned(), json!(row.rate_mbit.first().copied().flatten()));
        }
        key
    }

    fn candidate(self, row: &MeasuredRow, document: usize) -> Candidate {
        let protocol = row.protocol.clone();
        let place = rank(&protocol);
        let mbit = || row.rate_mbit.iter().map(|rate| rate.unwrap_or(0).to_string()).collect::<Vec<_>>();
        let (name, rank) = match self {
            Self::Protocol => (protocol, place),
            Self::Policy => {
                let rank = usize::from(protocol != USUAL_POLICY);
                (protocol, rank)
            }
            Self::SocketBuffer => {
                let bytes = row.socket_buffer_max.unwrap_or(0);
                (bytes.to_string(), bytes)
            }
            Self::FurtherLinks => (format!("{} ({} Mbit/s)", links(row.links), mbit().join(":")), row.links),
            Self::Wait => (row.wait.name().to_owned(), 2 - place_of(row.wait)),
        };
        let not_for_choice = match self {
            _ if !row.reliable => Some("promises no delivery"),
            // A core that is always busy is nobody's to spend but the owner's.
            Self::Wait if row.wait == WaitMode::Spin => Some("a core for each waiting thread, all the time"),
            _ => None,
        };
        Candidate {
            name,
            values: figure(row).map(|(_, _, values)| values.to_vec()).unwrap_or_default(),
            document,
            in_turns: matches!(self, Self::Protocol | Self::Policy),
            rank,
            not_for_choice,
            cores_used: median(&row.cores_used.iter().flatten().copied().collect::<Vec<_>>()),
        }
    }
}

/// A protocol's place among those that are simple.
pub(super) fn rank(protocol: &str) -> usize {
    SIMPLE.iter().position(|name| *name == protocol).unwrap_or(SIMPLE.len())
}

fn links(count: usize) -> String {
    format!("{count} {}", if count == 1 { "link" } else { "links" })
}

/// How eagerly a way of waiting wakes.
fn place_of(wait: WaitMode) -> usize {
    match wait {
        WaitMode::Spin => 0,
        WaitMode::Adaptive => 1,
        WaitMode::Block => 2,
    }
}

/// Whether this is Polyrail with another policy than the usual one.
fn is_policy_variant(protocol: &str) -> bool {
    protocol != USUAL_POLICY && is_policy(protocol)
}

fn is_policy(protocol: &str) -> bool {
    protocol::policies().iter().any(|policy| policy.name() == protocol)
}

/// The figure of a row that counts: its name, which way it is better, and its values.
pub(super) fn figure(row: &MeasuredRow) -> Option<(&'static str, Better, &[Option<f64>])> {
    use Workload::{Buffer, Links, Lone, OpenLoop, PingPong, Rate, Stream, Transact};
    match row.workload {
        Stream | Links | Buffer => Some(("throughput_mbps", Better::Higher, &row.throughput_mbps)),
        Rate => Some(("rate_per_s", Better::Higher, &row.rate_per_s)),
        PingPong | Transact | Lone | OpenLoop => Some(("latency_us.p50", Better::Lower, &row.latency_p50_us)),
        _ => None,
    }
}

/// The rows of one question under the same conditions, and where each comes from.
pub(super) struct Group<'a> {
    pub(super) question: Question,
    pub(super) key: Map<String, Value>,
    pub(super) rows: Vec<(usize, &'a MeasuredRow)>,
}

/// All groups of a question, in the order of their first rows.
pub(super) fn groups(question: Question, all: &[Measured]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for (document, measured) in all.iter().enumerate() {
        for row in measured.rows.iter().filter(|row| question.concerns(row)) {
            let key = question.key(row);
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.rows.push((document, row)),
                None => groups.push(Group { question, key, rows: vec![(document, row)] }),
            }
        }
    }
    groups
}

impl Group<'_> {
    /// The candidates: of one that several documents have, the row with most samples.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (document, row) in &self.rows {
            let one = self.question.candidate(row, *document);
            match candidates.iter_mut().find(|known| known.name == one.name) {
                Some(known) if known.values.len() < one.values.len() => *known = one,
                Some(_) => {}
                None => candidates.push(one),
            }
        }
        candidates
    }

    /// The answer; none where there is nothing to choose from.
    pub(super) fn finding(&self) -> Option<Finding> {
        let (_, row) = self.rows.first()?;
        let (figure, better, _) = figure(row)?;
        let choice = choose(self.candidates(), better)?;
        Some(Finding {
            question: self.question,
            conditions: self.key.clone(),
            workload: row.workload,
            figure,
            choice,
        })
    }
}
