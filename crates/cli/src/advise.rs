//! `polyrail advise`: hands on to the instrument.

use crate::output::Output;
use clap::Args;
use polyrail_bench::AdviseArgs;
use std::process::ExitCode;

/// What to advise from.
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct Advise {
    #[command(flatten)]
    arguments: AdviseArgs,
}

const EXAMPLE: &str = "Example: polyrail advise --placement inter --links 2 --rate 1000:100 --keep measured
         polyrail advise measured/*.json --toml > node.toml; polyrail config check node.toml

Exit codes: 0 advice is given, 1 something could not be measured, or nothing follows, 2 wrong arguments or documents.";

/// Advises.
pub fn run(advise: &Advise, output: &Output) -> ExitCode {
    ExitCode::from(u8::try_from(polyrail_bench::advise(&advise.arguments, output.json)).unwrap_or(1))
}
