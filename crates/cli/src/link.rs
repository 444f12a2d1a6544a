//! `polyrail link list|show|stats|set`: the links of a running node, and what its operator wants of them.

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::list::{self, ListArgs, Noun, ShowArgs, StatsArgs};
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::process::ExitCode;

/// `polyrail link ...`
#[derive(Subcommand, Clone, Debug)]
pub enum LinkCommand {
    /// Lists the links of a running node
    #[command(after_help = "Example: polyrail link list --control /run/polyrail/alpha.sock")]
    List(ListArgs),
    /// Shows all that is known of a link: path, window, losses, and when and why it changed its state
    #[command(after_help = "Example: polyrail link show beta/1")]
    Show(ShowArgs),
    /// Counts what each link moved and lost
    #[command(after_help = "Example: polyrail link stats beta/1 --json")]
    Stats(StatsArgs),
    /// Puts a link aside or to use again, at both of its ends
    #[command(after_help = "Example: polyrail link set beta/1 --state standby")]
    Set(LinkSet),
}

/// Which link, and what for.
#[derive(Args, Clone, Debug)]
pub struct LinkSet {
    /// Its name, as the list shows it
    name: String,
    /// What is wanted of it
    #[arg(long, value_name = "STATE")]
    state: Wanted,
    #[command(flatten)]
    node: ListArgs,
}

/// What an operator may want of a link.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// It carries messages
    Active,
    /// It carries messages only while no active link can
    Standby,
    /// It finishes what it carries and takes no message more
    Drain,
}

impl Wanted {
    fn word(self) -> &'static str {
        match self {
            Wanted::Active => "active",
            Wanted::Standby => "standby",
            Wanted::Drain => "drain",
        }
    }
}

/// Asks, or sets, and prints.
pub fn run(command: LinkCommand, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        LinkCommand::List(ask) => list::run(Noun::Link, ask, output),
        LinkCommand::Show(ask) => list::run(Noun::Link, ask, output),
        LinkCommand::Stats(ask) => list::run(Noun::Link, ask, output),
        LinkCommand::Set(set) => self::set(&set, output),
    }
}

fn set(set: &LinkSet, output: &Output) -> Result<ExitCode, Failure> {
    let only = json!({ "status": set.state.word() });
    let question = Question { command: "link set", name: Some(&set.name), only: Some(&only) };
    let answer = control::ask(set.node.control.as_deref(), &question)?;
    output.result(told(&answer["link"]), &answer);
    Ok(ExitCode::SUCCESS)
}

/// What has become of a link, and what whoever set it may not expect.
fn told(link: &Value) -> String {
    let word = |member: &str| link[member].as_str().unwrap_or("unknown").to_owned();
    let (name, state, status, of_peer) =
        (word("name"), word("state"), word("status"), word("status_of_peer"));
    let mut line = format!("{name}: {status}");
    let inflight_bytes = link["inflight_bytes"].as_u64().unwrap_or_default();
    let takes = link["takes_messages"] == true;
    if status == "drain" && inflight_bytes > 0 {
        line += &format!(
            "; {inflight_bytes} bytes are still in flight, `polyrail link show {name}` tells when they are not"
        );
    }
    if status == "standby" && takes {
        line += "; it still takes messages, for no active link is usable";
    }
    if status == "active" && of_peer != "active" {
        line += &format!("; the peer wants it {of_peer}, and that holds until it is set otherwise there");
    } else if status == "active" && !takes {
        line += &format!("; it takes no messages yet: it is {state}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_may_not_expect_is_said() {
        let link = |status: &str, of_peer: &str, takes: bool, inflight_bytes: u64| {
            told(&json!({
                "name": "beta/0", "state": "up", "status": status, "status_of_peer": of_peer,
                "takes_messages": takes, "inflight_bytes": inflight_bytes,
            }))
        };
        assert_eq!(link("active", "active", true, 5), "beta/0: active");
        assert_eq!(link("standby", "active", false, 5), "beta/0: standby");
        assert_eq!(link("drain", "active", false, 0), "beta/0: drain");
        assert!(link("drain", "active", false, 700).contains("700 bytes are still in flight"));
        assert!(link("standby", "active", true, 0).contains("still takes messages"));
        assert!(link("active", "drain", false, 0).contains("the peer wants it drain"));
        assert!(link("active", "active", false, 0).contains("no messages yet: it is up"));
    }
}
