//! `polyrail testbed`: nodes and links in network namespaces.

use crate::failure::{Exit, Failure};
use crate::output::Output;
use clap::{Args, Subcommand};
use polyrail_bench::netns::{LinkSpec, Record, Spec, Testbed, device};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Commands about testbeds.
#[derive(Subcommand)]
pub enum TestbedCommand {
    /// Creates a testbed that stays until `down`
    #[command(after_help = "Example: polyrail testbed up t --link rate=1000 --link rate=1000,loss=1,delay=2")]
    Up(Up),
    /// Runs a command inside a node
    #[command(after_help = "Example: polyrail testbed exec t b -- polyrail recv --insecure 100:0")]
    Exec(Exec),
    /// Lists the testbeds of this machine
    #[command(after_help = "Example: polyrail testbed list --json")]
    List,
    /// Removes a testbed and ends the processes inside
    #[command(after_help = "Example: polyrail testbed down t")]
    Down {
        /// Name of the testbed
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Removes every testbed that `up` created or a killed process left behind
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
}

/// What to create.
#[derive(Args)]
pub struct Up {
    /// Name of the testbed: small letters, digits and `-`
    name: String,
    /// Number of nodes
    #[arg(long, default_value_t = 2, value_name = "N")]
    nodes: usize,
    /// A link: KEY=VALUE, separated by commas, of rate (Mbit/s), burst (KiB), latency (ms), mtu (bytes),
    /// loss (percent), delay (ms each way, by a relay; two nodes only), gso (on, off); may be repeated. None: two links of 1000 Mbit/s
    #[arg(long = "link", value_name = "SPEC", value_parser = parse_link)]
    links: Vec<LinkSpec>,
}

/// What to run where.
#[derive(Args)]
pub struct Exec {
    /// Name of the testbed
    name: String,
    /// The node: a, b, ... or its number from 0
    node: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs one of them.
pub fn run(command: TestbedCommand, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        TestbedCommand::Up(up) => create(up, output)?,
        TestbedCommand::Exec(exec) => return execute(&exec),
        TestbedCommand::List => {
            let rows: Vec<Value> = Testbed::list().iter().flat_map(rows).collect();
            output.rows(&COLUMNS, &rows);
        }
        TestbedCommand::Down { name, all } => remove(name, all, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [&str; 5] = ["testbed", "node", "namespace", "link", "address"];

fn create(up: Up, output: &Output) -> Result<(), Failure> {
    let links = if up.links.is_empty() {
        vec![LinkSpec { rate_mbit: Some(1000), ..LinkSpec::default() }; 2]
    } else {
        up.links
    };
    let testbed = Testbed::create(Spec { name: up.name.clone(), nodes: up.nodes, links })?;
    testbed.keep();
    let record = find(&up.name)?;
    output.rows(&COLUMNS, &rows(&record));
    Ok(())
}

fn execute(exec: &Exec) -> Result<ExitCode, Failure> {
    let record = find(&exec.name)?;
    let node = parse_node(&exec.node).filter(|node| *node < record.spec.nodes).ok_or_else(|| {
        let allowed = format!("allowed: a, b, ... or 0 to {}", record.spec.nodes - 1);
        Failure::new(Exit::NotFound, format!("testbed {} has no node {}; {allowed}", exec.name, exec.node))
    })?;
    let testbed = Testbed::open(&exec.name)?;
    let mut command = testbed.command(node, &exec.command[0]);
    let status = command.args(&exec.command[1..]).status();
    let status = status.map_err(|error| Failure::failed(format!("ip netns exec: {error}")))?;
    Ok(exit_code(status))
}

fn remove(name: Option<String>, all: bool, output: &Output) -> Result<(), Failure> {
    let names = match name {
        Some(name) => vec![find(&name)?.spec.name],
        None if all => {
            let ended = Testbed::list().into_iter().filter(|record| record.kept || record.is_abandoned());
            ended.map(|record| record.spec.name).collect()
        }
        None => Vec::new(),
    };
    for name in &names {
        Testbed::remove(name)?;
    }
    output.result(format!("removed: {}", names.join(" ")), &json!({ "ok": true, "removed": names }));
    Ok(())
}

fn find(name: &str) -> Result<Record, Failure> {
    let records = Testbed::list();
    let known: Vec<String> = records.iter().map(|record| record.spec.name.clone()).collect();
    records.into_iter().find(|record| record.spec.name == name).ok_or_else(|| {
        let known =
            if known.is_empty() { "there is none".into() } else { format!("there are: {}", known.join(" ")) };
        Failure::new(Exit::NotFound, format!("no testbed is named {name}; {known}"))
    })
}

/// A row for each node on each link.
fn rows(record: &Record) -> Vec<Value> {
    let spec = &record.spec;
    let place = |node: usize, link: usize| {
        json!({
            "testbed": spec.name,
            "node": node_name(node),
            "namespace": spec.namespace(node),
            "link": device(link),
            "address": format!("10.{}.{link}.{}", record.subnet, node + 1),
            "rate_mbit": spec.links[link].rate_mbit,
            "loss_percent": spec.links[link].loss_percent,
            "mtu": spec.links[link].mtu,
            "abandoned": record.is_abandoned(),
        })
    };
    (0..spec.nodes)
        .flat_map(|node| (0..spec.links.len()).map(move |link| (node, link)))
        .map(|(n, l)| place(n, l))
        .collect()
}

fn node_name(node: usize) -> String {
    match u8::try_from(node) {
        Ok(index) if index < 26 => char::from(b'a' + index).to_string(),
        _ => node.to_string(),
    }
}

fn parse_node(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(usize::from(letter - b'a')),
        _ => text.parse().ok(),
    }
}

fn parse_link(text: &str) -> Result<LinkSpec, String> {
    let mut link = LinkSpec::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let wrong = || {
            format!(
                "{part:?} is no setting of a link; allowed: rate, burst, latency, mtu, loss, delay, gso=on|off"
            )
        };
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let number = || value.parse::<u32>().map_err(|_| wrong());
        match key {
            "rate" => link.rate_mbit = Some(number()?),
            "burst" => link.burst_kb = number()?,
            "latency" => link.latency_ms = number()?,
            "mtu" => link.mtu = number()?,
            "loss" => link.loss_percent = value.parse().map_err(|_| wrong())?,
            "delay" => link.delay_us = delay_us(value).ok_or_else(wrong)?,
            "gso" if ["on", "off"].contains(&value) => link.gso = value == "on",
            _ => return Err(wrong()),
        }
    }
    Ok(link)
}

/// Milliseconds, with a fraction if need be, as microseconds.
fn delay_us(text: &str) -> Option<u32> {
    let ms: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000 ms, checked")]
    (0.0..=1_000.0).contains(&ms).then(|| (ms * 1_000.0).round() as u32)
}

/// The command's own code; 128 and the signal's number if a signal ended it, as a shell says it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_key_by_key() {
        let link = parse_link("rate=1000,loss=1.5,mtu=1400,gso=off,burst=64,latency=9").unwrap();
        assert_eq!((link.rate_mbit, link.burst_kb, link.latency_ms), (Some(1000), 64, 9));
        assert_eq!((link.mtu, link.loss_percent, link.gso), (1400, 1.5, false));
        assert_eq!(parse_link(""), Ok(LinkSpec::default()));
        assert_eq!(parse_link("delay=1.5").unwrap().delay_us, 1_500);
        for wrong in
            ["rate", "rate=x", "rate=-1", "speed=1", "gso=1", "rate=1 loss=2", "delay=-1", "delay=9999"]
        {
            assert!(parse_link(wrong).unwrap_err().contains("allowed"), "{wrong:?}");
        }
    }

    #[test]
    fn a_node_is_a_letter_or_a_number() {
        assert_eq!((parse_node("a"), parse_node("c"), parse_node("27")), (Some(0), Some(2), Some(27)));
        assert_eq!((parse_node(""), parse_node("A"), parse_node("-1")), (None, None, None));
        assert_eq!((node_name(1), node_name(26)), ("b".into(), "26".into()));
    }
}
