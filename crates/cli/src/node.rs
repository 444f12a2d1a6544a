//! `polyrail node`: an embedded node in the foreground, and what every command that runs a node shares.

use crate::failure::Failure;
use crate::list::{self, NodeAsk, Noun};
use crate::node_args::NodeArgs;
use crate::output::Output;
use crate::{control, log, size};
use clap::Args;
use polyrail::Node;
use polyrail::config::{Config, Security};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
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
    let signals = signals()?;
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
    wait(signals)?;
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
    let (reader, writer) = UnixStream::pair()?;
    pipe::register(SIGTERM, writer.try_clone()?)?;
    pipe::register(SIGINT, writer)?;
    Ok(reader)
}

fn wait(mut signals: UnixStream) -> Result<(), Failure> {
    Ok(signals.read_exact(&mut [0])?)
}
