//! Where results go besides standard output, and what is done with those of before.

use std::path::PathBuf;

use clap::Args;

/// Where results are kept.
#[derive(Args, Clone, Debug, Default)]
pub struct KeepArgs {
    /// Write every sample to this file too, as CSV: one line per row, figure and repetition. `-`: to standard output
    /// instead of the table.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write each sample to this file once it is taken, and measure none again that is there: the same command line
    /// continues a run that was cut.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// What is compared.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The document to compare to, as --json wrote it.
    #[arg(value_name = "A.json")]
    pub first: PathBuf,
    /// The document that is compared.
    #[arg(value_name = "B.json")]
    pub second: PathBuf,
    /// A figure of B that is worse by less than this, in percent, is no regression.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent)]
    pub threshold: f64,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=1_000.0).contains(percent));
    percent.ok_or_else(|| format!("`{text}` is not within 0 to 1000 percent"))
}
