//! What `bench report` and `bench quick` are asked.

use std::path::PathBuf;

use clap::Args;

/// Which documents are shown, and how.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Documents that --json wrote.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The page to write; `-` for standard output.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Write a table for a README to standard output instead of a page: Polyrail beside each peer, machine and commands.
    #[arg(long, conflicts_with_all = ["brief", "output"])]
    pub markdown: bool,
    /// Write the one document to this file again without single times and courses over time, instead of a page: small enough to
    /// be kept beside a program.
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub brief: Option<PathBuf>,
}

/// Where a quick measurement goes.
#[derive(Args, Clone, Debug)]
pub struct QuickArgs {
    /// The page to write.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Begin nothing that would not end within so many seconds.
    #[arg(long, value_name = "S", default_value_t = 170, value_parser = clap::value_parser!(u32).range(10..=3600))]
    pub limit: u32,
}
