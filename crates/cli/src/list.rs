//! `polyrail link|node|bearer|service|port list|show|stats` and `polyrail stats`: what a running node knows.
//! Connections, of which there may be very many, have a list of their own.

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a node can be asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noun {
    /// Links to peers.
    Link,
    /// This node and its peers.
    Node,
    /// Local attachments.
    Bearer,
    /// Bound services.
    Service,
    /// Ports of the node's programs.
    Port,
    /// Connections of those ports.
    Connection,
}

/// Which node to ask.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Control socket of the node; none: the only node of this machine
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// Which one of its things.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// Its name, as the list shows it
    name: String,
    #[command(flatten)]
    node: ListArgs,
}

/// Which of its counters.
#[derive(Args, Clone, Debug)]
pub struct StatsArgs {
    /// Only of this one, named as the list shows it
    name: Option<String>,
    #[command(flatten)]
    node: ListArgs,
}

/// The sub-commands of a noun: the same for all, each with an example of its own.
macro_rules! noun_command {
    ($(#[$doc:meta])* $name:ident, $list:literal, $list_example:literal, $show:literal, $show_example:literal,
     $stats:literal, $stats_example:literal) => {
        $(#[$doc])*
        #[derive(Subcommand, Clone, Debug)]
        pub enum $name {
            #[command(about = $list, after_help = $list_example)]
            List(ListArgs),
            #[command(about = $show, after_help = $show_example)]
            Show(ShowArgs),
            #[command(about = $stats, after_help = $stats_example)]
            Stats(StatsArgs),
        }

        impl From<$name> for Ask {
            fn from(command: $name) -> Ask {
                match command {
                    $name::List(list) => list.into(),
                    $name::Show(show) => show.into(),
                    $name::Stats(stats) => stats.into(),
                }
            }
        }
    };
}

noun_command!(
    /// `polyrail node ...` for nodes that run.
    NodeAsk,
    "Lists the nodes that a running node knows, itself included",
    "Example: polyrail node list --json",
    "Shows all that is known of a node: session, messages, queues, credit, flows, links",
    "Example: polyrail node show beta",
    "Counts the messages to and from each node",
    "Example: polyrail node stats"
);
noun_command!(
    /// `polyrail bearer ...`
    BearerCommand,
    "Lists the bearers of a running node",
    "Example: polyrail bearer list --json",
    "Shows all that is known of a bearer: address, offloads, queue, links over it",
    "Example: polyrail bearer show udp/eth0",
    "Counts what the links over each bearer moved and lost",
    "Example: polyrail bearer stats eth0"
);
noun_command!(
    /// `polyrail service ...`
    ServiceCommand,
    "Lists the services that a running node knows, of the whole cluster",
    "Example: polyrail service list",
    "Shows who has bound a service, and whether it can be reached",
    "Example: polyrail service show 100:7",
    "Counts the ports and nodes that have bound each service",
    "Example: polyrail service stats"
);
noun_command!(
    /// `polyrail port ...`
    PortCommand,
    "Lists the ports of a running node's programs",
    "Example: polyrail port list",
    "Shows all that is known of a port: bindings, memory, queues, flows, credit given",
    "Example: polyrail port show 1834572290",
    "Counts what each port sent and what waits at it",
    "Example: polyrail port stats --json"
);

/// A question about things of one kind.
#[derive(Clone, Debug)]
pub struct Ask {
    verb: &'static str,
    name: Option<String>,
    node: ListArgs,
}

impl Noun {
    fn word(self) -> &'static str {
        match self {
            Noun::Link => "link",
            Noun::Node => "node",
            Noun::Bearer => "bearer",
            Noun::Service => "service",
            Noun::Port => "port",
            Noun::Connection => "connection",
        }
    }

    /// What people see of a row; JSON has every member (docs/operating.md, "Control socket").
    fn columns(self) -> &'static [&'static str] {
        match self {
            Noun::Link => &[
                "name",
                "bearer",
                "to",
                "state",
                "status",
                "status_of_peer",
                "mtu_bytes",
                "rtt_us",
                "packets_sent",
                "packets_received",
                "packets_lost",
            ],
            Noun::Node => &["node", "name", "state", "incarnation", "links", "links_up", "lost_ago_s", "why"],
            Noun::Bearer => &[
                "bearer",
                "address",
                "state",
                "mtu_bytes",
                "gso",
                "express_frames",
                "send_buffer_bytes",
                "receive_buffer_bytes",
                "why",
            ],
            Noun::Service => &["service", "scope", "node", "port"],
            Noun::Port => &[
                "port",
                "state",
                "bindings",
                "connections",
                "messages_unconfirmed",
                "completions_waiting",
                "receive_free_bytes",
            ],
            // Its list has a file of its own.
            Noun::Connection => &[],
        }
    }
}

/// The order in which people read the groups of one thing; others follow by name.
const GROUPS: [&str; 30] = [
    "link",
    "node",
    "bearer",
    "service",
    "port",
    "connection",
    "session",
    "path",
    "window",
    "queue",
    "queues",
    "sending",
    "receiving",
    "messages",
    "messages_inside",
    "traffic",
    "trouble",
    "holds",
    "engine",
    "drops",
    "malformed",
    "refused",
    "bindings",
    "credit_of_peer",
    "credit_for_peer",
    "credit_given",
    "flows",
    "connections",
    "links",
    "changes",
];

/// The order of columns in groups that are tables; others follow by name.
const COLUMNS: [&str; 16] = [
    "at",
    "ago_s",
    "what",
    "name",
    "service",
    "port",
    "peer",
    "class",
    "from",
    "to",
    "why",
    "state",
    "bearer",
    "scope",
    "node",
    "bytes_given",
];

impl From<ListArgs> for Ask {
    fn from(node: ListArgs) -> Ask {
        Ask { verb: "list", name: None, node }
    }
}

impl From<StatsArgs> for Ask {
    fn from(stats: StatsArgs) -> Ask {
        Ask { verb: "stats", name: stats.name, node: stats.node }
    }
}

impl From<ShowArgs> for Ask {
    fn from(show: ShowArgs) -> Ask {
        Ask { verb: "show", name: Some(show.name), node: show.node }
    }
}

/// Asks for counters, of the thing with this name or of all, and prints them.
pub fn stats(noun: Noun, name: Option<String>, node: ListArgs, output: &Output) -> Result<ExitCode, Failure> {
    run(noun, Ask { verb: "stats", name, node }, output)
}

/// Asks and prints.
pub fn run(noun: Noun, ask: impl Into<Ask>, output: &Output) -> Result<ExitCode, Failure> {
    let ask = ask.into();
    let command = format!("{} {}", noun.word(), ask.verb);
    let question = Question { command: &command, name: ask.name.as_deref(), only: None };
    let answer = control::ask(ask.node.control.as_deref(), &question)?;
    match ask.verb {
        "list" => output.rows(noun.columns(), control::rows_of(&answer)?),
        "show" => output.groups(&GROUPS, &COLUMNS, control::groups_of(&answer)?),
        _ => output.counters(control::rows_of(&answer)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// `polyrail stats`: the sums of a node.
pub fn total(node: &ListArgs, output: &Output) -> Result<ExitCode, Failure> {
    let answer: Value =
        control::ask(node.control.as_deref(), &Question { command: "stats", name: None, only: None })?;
    output.groups(&GROUPS, &COLUMNS, control::groups_of(&answer)?);
    Ok(ExitCode::SUCCESS)
}
