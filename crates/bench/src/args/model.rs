//! What `bench model` is asked.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// What is fitted.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Documents of this machine, as --json wrote them: pingpong, stream, rate, transact or lone over sizes.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Sizes to say a time of, separated by commas (K, M for powers of 1024); only within the sizes measured.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub at: Vec<String>,
    /// Draw each curve and its lines.
    #[arg(long)]
    pub plot: bool,
}

impl ModelArgs {
    /// The sizes asked for, in bytes.
    ///
    /// # Errors
    /// One that is no size.
    pub(crate) fn sizes(&self) -> Result<Vec<usize>, String> {
        values::sizes(&self.at, None, 1).map_err(|error| error.replace("--size", "--at"))
    }
}
