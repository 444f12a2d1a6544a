//! `polyrail doctor`: what is wrong with this machine's and a running node's links, and the command that mends it.
//!
//! First a picture is taken of the machine and of the node, twice for what moves; then each check looks at the picture and
//! at nothing else, so that each can be tried with pictures that were planted.

mod bottleneck;
mod buffers;
mod cables;
mod changed;
mod finding;
mod frames;
mod life;
mod loss;
mod missing;
mod mtu;
mod network;
mod offloads;
mod picture;
mod place;
#[cfg(test)]
mod planted;
mod refused;
mod routes;
mod shaper;
mod subnets;

use crate::failure::{Exit, Failure};
use crate::list::ListArgs;
use crate::output::Output;
use crate::{control, size};
use clap::Args;
use finding::{Finding, Severity};
use picture::{NodePicture, Picture};
use polyrail::config::Config;
use polyrail::machine::Machine;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Finds what is wrong with this machine's and a running node's links, and tells the command that mends it.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Doctor {
    /// Only links to this peer, by name or identity; none: to all
    peer: Option<String>,
    #[command(flatten)]
    node: ListArgs,
    /// Only this machine, and no node, even if one runs
    #[arg(long, conflicts_with_all = ["peer", "control"])]
    machine: bool,
    /// How long to watch what links send and receive
    #[arg(long = "for", value_name = "SPAN", default_value = "1s", value_parser = size::parse_span)]
    watch: Duration,
    /// Settings of the node that is to run here, if none does: a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Interface that a node is to use, if none runs: as of `polyrail node`; may be repeated
    #[arg(long = "interface", value_name = "RULE")]
    interfaces: Vec<String>,
}

const EXAMPLE: &str = "Example: polyrail doctor beta --control /run/polyrail/alpha.sock

Ends with 1 if there is an error or a warning among the findings, with 0 if not.";

/// Every check.
const CHECKS: [fn(&Picture) -> Vec<Finding>; 18] = [
    place::check,
    changed::check,
    buffers::check,
    offloads::check,
    frames::check,
    cables::check,
    subnets::check,
    routes::check,
    shaper::check,
    life::check_bearers,
    life::check_links,
    life::check_peers,
    life::check_lost,
    mtu::check,
    loss::check,
    bottleneck::check,
    missing::check,
    refused::check,
];

impl Doctor {
    /// Whether nothing that was typed belongs to a running node.
    fn means_no_node(&self) -> bool {
        self.node.control.is_none() && self.peer.is_none()
    }
}

/// Looks, checks, tells.
pub fn run(arguments: &Doctor, output: &Output) -> Result<ExitCode, Failure> {
    let picture = take(arguments)?;
    let findings = findings(&picture);
    let healthy = findings.iter().all(|finding| finding.severity == Severity::Note);
    tell(&picture, &findings, healthy, output);
    Ok(if healthy { ExitCode::SUCCESS } else { Exit::Failed.into() })
}

/// What all checks find, the gravest first.
fn findings(picture: &Picture) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(picture)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn take(arguments: &Doctor) -> Result<Picture, Failure> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path)?,
        None => Config::new(),
    };
    if !arguments.interfaces.is_empty() {
        config = config.interfaces(&arguments.interfaces);
    }
    config.clone().insecure().validate()?;
    let machine = Machine::look(&config.interfaces)
        .map_err(|error| Failure::failed(format!("this machine's interfaces cannot be read: {error}")))?;
    Ok(Picture::new(machine, look_at_node(arguments)?))
}

/// The node that is meant, if there is one.
fn look_at_node(arguments: &Doctor) -> Result<Option<NodePicture>, Failure> {
    if arguments.machine {
        return Ok(None);
    }
    match control::open(arguments.node.control.as_deref()) {
        Ok((path, _)) => NodePicture::take(&path, arguments.peer.as_deref(), arguments.watch).map(Some),
        // Without a node there still is the machine; but who names a node or a peer means one.
        Err(failure) if failure.exit == Exit::NotFound && arguments.means_no_node() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn tell(picture: &Picture, findings: &[Finding], healthy: bool, output: &Output) {
    let node = picture.node.as_ref();
    let used: Vec<&str> = picture.used().iter().map(|interface| interface.name.as_str()).collect();
    let mut lines: Vec<String> = findings.iter().flat_map(Finding::lines).collect();
    let what = match findings.len() {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    };
    let interfaces = if used.is_empty() { "none".to_owned() } else { used.join(" ") };
    let about = match node {
        Some(node) => {
            let peers: Vec<&str> = node.peers.iter().map(|peer| peer.name.as_str()).collect();
            let peers = if peers.is_empty() { "none".to_owned() } else { peers.join(" ") };
            format!("node {}; peers {peers}", node.name)
        }
        None => "no node looked at".to_owned(),
    };
    lines.push(format!("{what}; interfaces {interfaces}; {about}"));
    let findings: Vec<_> = findings.iter().map(Finding::to_json).collect();
    let value = json!({
        "ok": true, "healthy": healthy, "node": node.map(|node| &node.name), "interfaces": used, "findings": findings,
    });
    output.result(lines.join("\n"), &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_found_on_a_sound_machine_with_a_sound_node_or_none() {
        assert_eq!(findings(&planted::sound()), []);
        let mut alone = planted::sound();
        alone.node = None;
        assert_eq!(findings(&alone), []);
    }

    #[test]
    fn the_gravest_comes_first() {
        let mut picture = planted::sound();
        picture.machine.may_send_frames = Some(false);
        let node = picture.node.as_mut().unwrap();
        node.bearers[0].express_frames = false;
        node.bearers[1].carrier = false;
        node.drops.insert("version".into(), 3);
        let found: Vec<Severity> = findings(&picture).iter().map(|finding| finding.severity).collect();
        assert_eq!(found, [Severity::Error, Severity::Warning, Severity::Note]);
    }
}
