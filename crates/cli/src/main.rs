//! The program `polyrail`: nodes, messages, testbeds and measurements from the command line.

#![forbid(unsafe_code)]

mod advise;
mod bench;
mod config;
mod connection;
mod control;
mod demo;
mod doctor;
mod failure;
mod link;
mod list;
mod log;
mod mem;
mod metrics;
mod node;
mod node_args;
mod output;
mod recv;
mod send;
mod service;
mod size;
mod testbed;
mod top;
mod trace;
mod watch;
mod why;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use failure::{Exit, Failure};
use list::Noun;
use output::Output;
use std::process::ExitCode;

/// Messages between the processes of a cluster, over every link at once.
#[derive(Parser)]
#[command(name = "polyrail", version, max_term_width = 110, subcommand_required = true)]
#[command(after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    /// Writes results, also failures, as JSON to the standard output
    #[arg(long, global = true)]
    json: bool,
    /// How much to say on the standard error
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    log: log::Level,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not available on this \
machine, 4 no such service, peer or node, 5 timed out.";

#[derive(Subcommand)]
enum Command {
    /// Real data over two links that are cut on the way, then figures beside TCP's and MPTCP's
    Demo(demo::Demo),
    /// Sends files, text or the standard input to a service
    Send(Box<send::Send>),
    /// Binds a service and writes out what arrives
    Recv(Box<recv::Recv>),
    /// Tells of services, nodes and links as they come and go
    Watch(Box<watch::Watch>),
    /// Runs a node, or tells what a running one knows of itself and others
    Node(Box<node::NodeCommand>),
    /// Links of a running node
    #[command(subcommand)]
    Link(link::LinkCommand),
    /// Bearers of a running node
    #[command(subcommand)]
    Bearer(list::BearerCommand),
    /// Services that a running node knows
    #[command(subcommand)]
    Service(list::ServiceCommand),
    /// Ports of a running node's programs
    #[command(subcommand)]
    Port(list::PortCommand),
    /// Connections of a running node's ports
    #[command(subcommand)]
    Connection(connection::ConnectionCommand),
    /// Sums of all counters of a running node, drops by reason
    #[command(after_help = "Example: polyrail stats --json")]
    Stats(list::ListArgs),
    /// Shows the ports and links of a running node at work: rates, queues, losses, again and again
    Top(top::Top),
    /// Memory that a running node has promised: by kind, user and program, with limits and what was refused
    Mem(mem::Mem),
    /// Metrics of a running node for Prometheus: prints them, or serves them by HTTP
    Metrics(metrics::Metrics),
    /// Tells what a message to a peer would take now, link by link, and why
    Why(why::Why),
    /// Captures the packets of a running node, into a file or as text
    Trace(trace::Trace),
    /// Finds what is wrong with links and this machine, and tells the command that mends it
    Doctor(doctor::Doctor),
    /// Checks configuration files
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Nodes and links in network namespaces of this machine
    #[command(subcommand)]
    Testbed(testbed::TestbedCommand),
    /// Measures protocols beside each other
    Bench(Box<bench::Bench>),
    /// Tells which protocol, buffer, message size, links and way of waiting serve best here, and on what evidence
    Advise(Box<advise::Advise>),
}

fn main() -> ExitCode {
    // Processes that the program starts for itself; nobody types these.
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    match arguments.first().map(String::as_str) {
        Some(demo::role::COMMAND) => return demo::role::main(),
        Some(polyrail_bench::AGENT_COMMAND) => {
            return ExitCode::from(u8::try_from(polyrail_bench::agent_main(&arguments[1..])).unwrap_or(1));
        }
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log::set(cli.log);
    let output = Output::new(cli.json);
    match run(cli.command, &output) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

fn run(command: Command, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        Command::Demo(arguments) => demo::run(&arguments, output),
        Command::Bench(arguments) => Ok(bench::run(*arguments, output)),
        Command::Advise(arguments) => Ok(advise::run(&arguments, output)),
        Command::Send(arguments) => send::run(&arguments, output),
        Command::Recv(arguments) => recv::run(&arguments, output),
        Command::Watch(arguments) => watch::run(&arguments, output),
        Command::Node(command) => node::run(&command, output),
        Command::Link(command) => link::run(command, output),
        Command::Bearer(ask) => list::run(Noun::Bearer, ask, output),
        Command::Service(ask) => list::run(Noun::Service, ask, output),
        Command::Port(ask) => list::run(Noun::Port, ask, output),
        Command::Connection(command) => connection::run(command, output),
        Command::Stats(node) => list::total(&node, output),
        Command::Top(arguments) => top::run(&arguments, output),
        Command::Mem(arguments) => mem::run(&arguments, output),
        Command::Metrics(arguments) => metrics::run(&arguments, output),
        Command::Why(arguments) => why::run(&arguments, output),
        Command::Trace(arguments) => trace::run(&arguments, output),
        Command::Doctor(arguments) => doctor::run(&arguments, output),
        Command::Config(command) => config::run(command, output),
        Command::Testbed(command) => testbed::run(command, output),
    }
}

/// Help goes out as it is; what is wrong becomes one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nobody reads on if the pipe is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::Usage.into();
    }
    let json =
        std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    let failure = Failure::new(Exit::Usage, one_line(&error.render().to_string()));
    Output::new(json).failure(&failure);
    failure.exit.into()
}

/// The paragraphs of a message in one line, without the pointer to `--help`.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let text = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ").replace("; [", " [");
    text.strip_prefix("error: ").unwrap_or(&text).to_string()
}
