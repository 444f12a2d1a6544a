//! `polyrail node`: an embedded node in the foreground, and what every command that runs a node shares.

use crate::failure::Failure;
use crate::list::{self, NodeAsk, Noun};
use crate::node_args::NodeArgs;
use crate::output::Output;
use crate::{control, log, size};
use clap::Args;
use polyrail::Node;
use polyrail::config::{Config, Security};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// `polyrail node` alone runs a node; `polyrail node list`, `show` and `stats` ask one.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Example: polyrail node --insecure --name alpha --interface 'eth*'")]
pub struct NodeCommand {
    #[command(subcommand)]
    action: Option<NodeAsk>,
    #[command(flatten)]
    run: Run,
}

#[derive(Args)]
struct Run {
    /// Path of the control socket; none: NAME.sock in /run/polyrail, $XDG_RUNTIME_DIR/polyrail or /tmp
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// How long the node may take to leave, once it is told to
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = size::parse_span)]
    drain: Duration,
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs a node until a signal, or asks one.
pub fn run(command: &NodeCommand, output: &Output) -> Result<ExitCode, Failure> {
    match &command.action {
        Some(ask) => list::run(Noun::Node, ask.clone(), output),
        None => foreground(&command.run, output),
    }
}

/// Starts a node and says what an operator should know about it.
pub fn embed(config: Config) -> Result<Node, Failure> {
    if config.security == Security::None {
        log::warn(format_args!(
            "insecure: nothing authenticates a peer and nothing is encrypted; whoever reaches UDP port {} is believed",
            config.port
        ));
    }
    let node = Node::embed(config)?;
    node.warnings().iter().for_each(log::warn);
    Ok(node)
}

fn foreground(run: &Run, output: &Output) -> Result<ExitCode, Failure> {
    let mut config = run.node.config()?;
    // The name holds the process id unless configured: the same one for the node and its socket.
    config = config.clone().name(config.name_or_default());
    if let Some(path) = run.control.clone().or(config.control.clone()) {
        config = config.control(path);
    } else {
        config = config.clone().control(control_path(&config)?);
    }
    let path = config.control.clone().unwrap_or_default();
    let attach = config.attach.clone().unwrap_or_else(|| path.with_extension("attach"));
    config = config.attach(&attach);
    let signals = Signals::register(run.node.config.is_some())?;
    raise_descriptor_limit();
    let node = embed(config)?;
    let text = format!(
        "node {} ({}) runs; control socket {}; programs attach at {}",
        node.name(),
        node.id(),
        path.display(),
        attach.display()
    );
    let started = json!({
        "ok": true, "event": "started", "node": node.id().to_string(), "name": node.name(), "control": path,
        "attach": attach,
    });
    output.result(text, &started);
    signals.wait(|| read_again(run, &node, output))?;
    node.leave(run.drain)?;
    output.result("left", &json!({ "ok": true, "event": "left" }));
    Ok(ExitCode::SUCCESS)
}

/// Each port of a program that attaches takes three descriptors, and the usual limit is 1,024. That is for programs that use `select`,
/// which this one does not; what it is allowed to raise it to is the limit that somebody has set.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn(format_args!(
            "descriptors: at most {:?}, for the limit can't be raised: {error}",
            limit.current
        ));
    }
}

fn control_path(config: &Config) -> Result<PathBuf, Failure> {
    let folder = control::folder();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    Ok(folder.join(format!("{}.sock", config.name_or_default())))
}

/// A stream that a byte comes out of at SIGTERM or SIGINT.
pub fn signals() -> Result<UnixStream, Failure> {
    stream_of(&[SIGTERM, SIGINT])
}

fn stream_of(signals: &[i32]) -> Result<UnixStream, Failure> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// What a node that runs is told by signals: each makes its stream readable.
struct Signals {
    end: UnixStream,
    again: Option<UnixStream>,
}

impl Signals {
    /// SIGTERM and SIGINT end it; SIGHUP has it read its file again, if it has one.
    fn register(has_file: bool) -> Result<Signals, Failure> {
        Ok(Signals { end: signals()?, again: has_file.then(|| stream_of(&[SIGHUP])).transpose()? })
    }

    /// Until it is to end.
    fn wait(self, read_again: impl Fn()) -> Result<(), Failure> {
        loop {
            let streams = [Some(&self.end), self.again.as_ref()].into_iter().flatten();
            let mut fds: Vec<PollFd<'_>> = streams.map(|one| PollFd::new(one, PollFlags::IN)).collect();
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                other => other.map_err(std::io::Error::from)?,
            };
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            if let Some(mut again) = self.again.as_ref() {
                // Whoever said it several times meant the file as it is now.
                let _ = again.read(&mut [0; 64])?;
                read_again();
            }
        }
    }
}

/// Takes from the file what may change while the node runs. With a mistake in it, all stays as it is.
fn read_again(run: &Run, node: &Node, output: &Output) {
    match run.node.config().and_then(|config| Ok(node.set_limits(&config)?)) {
        Ok(()) => output.result(
            "settings read again: what users may have is as they say, all else as at the start of the node",
            &json!({ "ok": true, "event": "read_again", "file": run.node.config }),
        ),
        Err(failure) => log::warn(format_args!("all settings stay as they are: {}", failure.message)),
    }
}
