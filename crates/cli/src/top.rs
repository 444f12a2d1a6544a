//! `polyrail top`: the ports and links of a running node at work, picture after picture.

mod picture;
mod screen;

use crate::control::{self, Question};
use crate::failure::{Exit, Failure};
use crate::list::ListArgs;
use crate::output::{Output, write_line};
use crate::size::parse_span;
use clap::{Args, ValueEnum};
use picture::{Look, Picture};
use screen::Screen;
use serde_json::Value;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How far apart pictures may be. The node's engine waits while it is asked.
const EVERY_MIN: Duration = Duration::from_millis(10);
const EVERY_MAX: Duration = Duration::from_secs(3_600);

/// How often, and in which order.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: polyrail top --every 2s --sort sent
         polyrail top --json --count 10 --control /run/polyrail/alpha.sock")]
pub struct Top {
    /// Time between two pictures, over which rates are computed
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = parse_every)]
    every: Duration,
    /// Ends after so many pictures; without it, at SIGINT (Ctrl-C) or SIGTERM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// What comes first
    #[arg(long, value_name = "ORDER", default_value = "name")]
    sort: Order,
    #[command(flatten)]
    node: ListArgs,
}

/// The order of ports and links.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// By program, or by peer
    Name,
    /// Those that send most bytes
    Sent,
    /// Those that receive most bytes
    Received,
    /// Ports with the most messages in their queues, links with the most bytes in flight
    Waiting,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = parse_span(text)?;
    if (EVERY_MIN..=EVERY_MAX).contains(&every) { Ok(every) } else { Err("allowed: 10ms to 60m".into()) }
}

/// Shows pictures until there were enough, a signal comes, or the node is gone.
pub fn run(top: &Top, output: &Output) -> Result<ExitCode, Failure> {
    // Which node is decided once: the next one that begins on this machine is another.
    let path = match &top.node.control {
        Some(path) => path.clone(),
        None => control::only()?,
    };
    let name = name_of(&path)?;
    let mut before = look(&path)?;
    let screen = (!output.json && std::io::stdout().is_terminal()).then(Screen::open);
    end_at_signal(screen.is_some())?;
    if let Some(screen) = &screen {
        screen.draw(&Picture::without_rates(&name, before.clone(), top.sort), top.every);
    }
    let (mut shown, mut next_at) = (0, Instant::now());
    while top.count.is_none_or(|count| shown < count) {
        next_at = (next_at + top.every).max(Instant::now());
        std::thread::sleep(next_at.saturating_duration_since(Instant::now()));
        let now = look(&path).map_err(has_gone)?;
        let picture = Picture::between(&name, &before, now.clone(), top.sort);
        match &screen {
            Some(screen) => screen.draw(&picture, top.every),
            None => print(&picture, top.every, output),
        }
        before = now;
        shown += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// One picture below the other: a document on a line, or text and an empty line.
fn print(picture: &Picture, every: Duration, output: &Output) {
    if output.json {
        return write_line(&picture.document().to_string());
    }
    screen::lines(picture, every, None).iter().for_each(|line| write_line(line));
    write_line("");
}

/// What the node calls itself.
fn name_of(path: &Path) -> Result<String, Failure> {
    let answer = ask(path, "node list")?;
    let own = control::rows_of(&answer)?.iter().find(|row| row["state"] == "self");
    Ok(own.and_then(|row| row["name"].as_str()).unwrap_or("node").to_owned())
}

fn look(path: &Path) -> Result<Look, Failure> {
    let ports = ask(path, "port list")?;
    // In the middle of what is looked at.
    let at = Instant::now();
    let links = ask(path, "link list")?;
    Ok(Look { at, ports: control::rows_of(&ports)?.to_vec(), links: control::rows_of(&links)?.to_vec() })
}

fn ask(path: &Path, command: &str) -> Result<Value, Failure> {
    control::ask(Some(path), &Question { command, name: None, only: None })
}

/// The failure of a node that did answer before.
fn has_gone(failure: Failure) -> Failure {
    if failure.exit == Exit::TimedOut {
        return failure;
    }
    let what = "the node has ended; start it again by `polyrail node`, or choose another by --control";
    Failure::new(failure.exit, format!("{}; {what}", failure.message))
}

/// Ends the program at a signal, also while a node that hangs is asked.
fn end_at_signal(on_screen: bool) -> Result<(), Failure> {
    let mut signals = crate::node::signals()?;
    std::thread::spawn(move || {
        if signals.read_exact(&mut [0]).is_ok() {
            if on_screen {
                screen::restore();
            }
            std::process::exit(0);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_neither_too_close_nor_too_far_apart() {
        assert_eq!(parse_every("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "9ms", "61m", "soon", ""] {
            assert!(parse_every(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_node_that_is_gone_is_told_with_what_to_do() {
        let gone = has_gone(Failure::new(Exit::NotFound, "a.sock: no node answers"));
        assert_eq!(gone.exit, Exit::NotFound);
        assert!(gone.message.contains("`polyrail node`"), "{gone:?}");
        let slow = Failure::new(Exit::TimedOut, "a.sock: no answer");
        assert_eq!(has_gone(slow.clone()), slow);
    }
}
