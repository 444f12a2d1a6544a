//! What `polyrail advise` is asked.

use std::path::PathBuf;

use clap::Args;

use super::{Placement, values};
use crate::wait::WaitMode;

/// From what advice is given, or what is measured for it.
#[derive(Args, Clone, Debug)]
pub struct AdviseArgs {
    /// Documents of this machine, as `polyrail bench ... --json` wrote them. If none is given, it measures.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where is measured: between two nodes of a testbed (inter), between two processes of this node (intra), separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "inter,intra",
        conflicts_with = "files"
    )]
    pub placement: Vec<Placement>,
    /// Links between the two nodes that are measured; with 2 or more it is found out whether the further ones pay.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "files",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    pub links: u8,
    /// Rate of each link in Mbit/s, or `1000:100` for links of their own; 0: unthrottled.
    #[arg(long, value_name = "RATE", default_value = "0", conflicts_with = "files")]
    pub rate: String,
    /// How the measuring threads wait.
    #[arg(long, value_enum, value_name = "HOW", default_value = "adaptive", conflicts_with = "files")]
    pub wait: WaitMode,
    /// Seconds that measuring may take; what has no time any more is said.
    #[arg(long, value_name = "S", default_value = "240", conflicts_with = "files")]
    pub limit: f64,
    /// Keep the documents that it measures in this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "files")]
    pub keep: Option<PathBuf>,
    /// Documents of a sweep: how much worse than the best of it each choice is.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub against: Vec<PathBuf>,
    /// Print the settings that follow, as a file for `polyrail node --config`, and nothing else.
    #[arg(long)]
    pub toml: bool,
}

/// A limit under which nothing could be measured.
const LIMIT_S_MIN: f64 = 5.0;

impl AdviseArgs {
    /// Checks what is to be measured.
    ///
    /// # Errors
    /// One line for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        values::seconds("--limit", self.limit, LIMIT_S_MIN)?;
        values::rates(&self.rate, usize::from(self.links))?;
        match self.placement.iter().find(|placement| matches!(placement, Placement::Host(_))) {
            Some(host) => Err(format!(
                "--placement {host}: advise measures on this machine; measure with `polyrail bench ... --placement {host}` and give \
                 the documents"
            )),
            None => Ok(()),
        }
    }
}
