//! `polyrail connection list|show|stats`: what a running node knows of connections, of which there may be very many.

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::list::{ListArgs, Noun, ShowArgs};
use crate::log;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde_json::json;
use std::process::ExitCode;

/// `polyrail connection ...`
#[derive(Subcommand, Clone, Debug)]
pub enum ConnectionCommand {
    /// Lists the connections of a running node's ports, by peer
    #[command(after_help = "Example: polyrail connection list --peer beta --limit 1000")]
    List(ConnectionList),
    /// Shows all that is known of a connection: both ports, state, credit and messages both ways
    #[command(after_help = "Example: polyrail connection show beta/out-7")]
    Show(ShowArgs),
    /// Counts the connections with each node: asked for, opened, refused and why, over
    #[command(after_help = "Example: polyrail connection stats beta --json")]
    Stats(ConnectionStats),
}

/// Which connections.
#[derive(Args, Clone, Debug)]
pub struct ConnectionList {
    /// Only those with this node, by name or identity
    #[arg(long, value_name = "NODE")]
    peer: Option<String>,
    /// Only those of this port of the node
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    limit: u32,
    #[command(flatten)]
    node: ListArgs,
}

/// Which of the counters.
#[derive(Args, Clone, Debug)]
pub struct ConnectionStats {
    /// Only of those with this node, by name or identity
    peer: Option<String>,
    #[command(flatten)]
    node: ListArgs,
}

/// What people see of a row; JSON has every member (docs/operating.md, "Control socket").
const COLUMNS: [&str; 13] = [
    "name",
    "port",
    "peer_port",
    "class",
    "carries",
    "state",
    "age_s",
    "messages_sent",
    "messages_received",
    "messages_unconfirmed",
    "starved",
    "sending_bytes_left",
    "receiving_bytes_left",
];

/// Asks and prints.
pub fn run(command: ConnectionCommand, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        ConnectionCommand::List(list) => self::list(&list, output),
        ConnectionCommand::Show(show) => crate::list::run(Noun::Connection, show, output),
        ConnectionCommand::Stats(stats) => {
            crate::list::stats(Noun::Connection, stats.peer, stats.node, output)
        }
    }
}

fn list(list: &ConnectionList, output: &Output) -> Result<ExitCode, Failure> {
    let only = json!({ "peer": list.peer, "port": list.port, "limit": list.limit });
    let question = Question { command: "connection list", name: None, only: Some(&only) };
    let answer = control::ask(list.node.control.as_deref(), &question)?;
    let rows = control::rows_of(&answer)?;
    let total = answer["rows_total"].as_u64().unwrap_or(rows.len() as u64);
    output.rows_of_many(&COLUMNS, rows, total);
    if total > rows.len() as u64 && !output.json {
        log::warn(format!("{} of {total} connections shown; see --limit, --peer, --port", rows.len()));
    }
    Ok(ExitCode::SUCCESS)
}
