//! `polyrail link|node|bearer|service list`: what a running node knows.

use crate::control;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// What can be listed.
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
}

/// Which node to ask.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Control socket of the node; none: the only node of this machine
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// `polyrail link ...`
#[derive(Subcommand)]
pub enum LinkCommand {
    /// Lists the links of a running node
    #[command(after_help = "Example: polyrail link list --control /run/polyrail/alpha.sock")]
    List(ListArgs),
}

/// `polyrail bearer ...`
#[derive(Subcommand)]
pub enum BearerCommand {
    /// Lists the bearers of a running node
    #[command(after_help = "Example: polyrail bearer list --json")]
    List(ListArgs),
}

/// `polyrail service ...`
#[derive(Subcommand)]
pub enum ServiceCommand {
    /// Lists the services that a running node knows, of the whole cluster
    #[command(after_help = "Example: polyrail service list")]
    List(ListArgs),
}

impl Noun {
    fn command(self) -> &'static str {
        match self {
            Noun::Link => "link list",
            Noun::Node => "node list",
            Noun::Bearer => "bearer list",
            Noun::Service => "service list",
        }
    }

    /// What people see of a row; JSON has every member (docs/operating.md, "Control socket").
    fn columns(self) -> &'static [&'static str] {
        match self {
            Noun::Link => &[
                "peer",
                "link",
                "bearer",
                "to",
                "state",
                "status",
                "mtu_bytes",
                "rtt_us",
                "packets_sent",
                "packets_received",
                "packets_lost",
            ],
            Noun::Node => &["node", "name", "state", "incarnation", "links", "links_up"],
            Noun::Bearer => &[
                "bearer",
                "address",
                "state",
                "mtu_bytes",
                "gso",
                "express_frames",
                "send_buffer_bytes",
                "receive_buffer_bytes",
            ],
            Noun::Service => &["service", "scope", "node", "port"],
        }
    }
}

/// Asks and prints.
pub fn run(noun: Noun, arguments: &ListArgs, output: &Output) -> Result<ExitCode, Failure> {
    let rows = control::rows(arguments.control.as_deref(), noun.command())?;
    output.rows(noun.columns(), &rows);
    Ok(ExitCode::SUCCESS)
}
