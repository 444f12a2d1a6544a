//! `polyrail metrics`: a running node's counters and measures in Prometheus' text format, printed or served.

mod answer;
mod serve;

use crate::control::{self, Question};
use crate::failure::Failure;
use crate::list::ListArgs;
use crate::output::Output;
use clap::Args;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

/// Of which node, and where to.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: polyrail metrics
         polyrail metrics --listen 127.0.0.1:7433 --control /run/polyrail/alpha.sock")]
pub struct Metrics {
    /// Serves them at /metrics of this address by HTTP until SIGINT (Ctrl-C) or SIGTERM, in place of printing them once;
    /// whoever reaches the address may read them
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    node: ListArgs,
}

/// Prints, or serves.
pub fn run(metrics: &Metrics, output: &Output) -> Result<ExitCode, Failure> {
    let control = metrics.node.control.as_deref();
    if let Some(address) = metrics.listen {
        return serve::run(address, control, output);
    }
    let answer = ask(control)?;
    output.result(page_of(&answer)?.trim_end(), &answer);
    Ok(ExitCode::SUCCESS)
}

fn ask(control: Option<&Path>) -> Result<Value, Failure> {
    control::ask(control, &Question { command: "metrics", name: None, only: None })
}

/// The page in an answer.
fn page_of(answer: &Value) -> Result<&str, Failure> {
    answer["metrics"].as_str().ok_or_else(|| Failure::failed("answer not understood"))
}
