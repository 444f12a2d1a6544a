//! `polyrail demo`: real data over two links between two nodes, the links cut in mid-transfer; then the figures.
//!
//! The nodes are processes of their own in network namespaces of their own: this program again, by a hidden
//! sub-command ([`role`]). The orchestrator throws the switches ([`script`]), watches ([`transfer`]) and lets the
//! instrument measure ([`figures`]).

mod allowance;
mod arrivals;
mod figures;
mod input;
mod links;
mod receiver;
pub mod role;
mod script;
mod sender;
mod summary;
mod transfer;

use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::size;
use clap::Args;
use polyrail_bench::netns::{LinkSpec, Spec, Testbed, reexecute_unprivileged};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Rate of each of the two links.
const LINK_MBIT: u32 = 1000;
/// Less would be through before the last cut.
const BYTES_MIN: u64 = 64 << 20;

/// What to send and how long to measure.
#[derive(Args)]
#[command(after_help = "Example: polyrail demo --bytes 256M --json")]
pub struct Demo {
    /// How much to send at most; at least 64M
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = size::parse_bytes)]
    bytes: u64,
    /// Folder whose files are sent, as a tar archive; none: the Rust toolchain, or /usr
    #[arg(long, value_name = "FOLDER")]
    source: Option<PathBuf>,
    /// Repetitions of each figure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Leaves the figures out
    #[arg(long)]
    no_figures: bool,
}

/// Transfers, measures, tells.
pub fn run(demo: &Demo, output: &Output) -> Result<ExitCode, Failure> {
    if demo.bytes < BYTES_MIN {
        return Err(Failure::new(
            Exit::Usage,
            format!("--bytes {}: too few; allowed: 64M or more", demo.bytes),
        ));
    }
    if !rustix::process::geteuid().is_root() {
        // Comes back only if that is not possible.
        return Err(reexecute_unprivileged().into());
    }
    let input = input::Input::make(demo.source.as_deref(), demo.bytes)?;
    say(format_args!(
        "input: {} of {} as tar, SHA-256 {}",
        size::show_bytes(input.bytes),
        input.source.display(),
        &input.sha256
    ));
    if input.bytes < BYTES_MIN {
        let what = format!("{}: holds only {}", input.source.display(), size::show_bytes(input.bytes));
        return Err(Failure::new(Exit::Usage, format!("{what}; allowed: a --source of 64M or more")));
    }
    let transfer = {
        let link = LinkSpec { rate_mbit: Some(LINK_MBIT), ..LinkSpec::default() };
        let name = format!("demo-{}", std::process::id());
        let mut testbed = Testbed::create(Spec::pair(name, vec![link.clone(), link]))?;
        testbed.prepare_faults()?;
        let outcome = transfer::run(&mut testbed, &input);
        testbed.down()?;
        outcome?
    };
    let figures = (!demo.no_figures).then(|| figures::measure(LINK_MBIT, demo.repeat));
    let summary = summary::Summary { input: &input, transfer: &transfer, figures: figures.as_ref() };
    output.result(summary.table(), &summary.json());
    Ok(if summary.is_good() { ExitCode::SUCCESS } else { Exit::Failed.into() })
}

/// Tells a person what happens, beside the result.
fn say(text: std::fmt::Arguments<'_>) {
    // Nothing can be done if the standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}
