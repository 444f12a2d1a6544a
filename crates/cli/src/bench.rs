//! `polyrail bench`: hands on to the instrument.

use crate::output::Output;
use clap::Args;
use polyrail_bench::BenchArgs;
use std::process::ExitCode;

/// What to measure.
#[derive(Args)]
#[command(
    after_help = "Example: polyrail bench stream --protocol tcp-cubic,mptcp --links 2 --rate 1000 --json"
)]
pub struct Bench {
    #[command(flatten)]
    arguments: BenchArgs,
}

/// Measures.
pub fn run(mut bench: Bench, output: &Output) -> ExitCode {
    // `--json` may stand before the sub-command too.
    bench.arguments.json |= output.json;
    ExitCode::from(u8::try_from(polyrail_bench::run(bench.arguments)).unwrap_or(1))
}
