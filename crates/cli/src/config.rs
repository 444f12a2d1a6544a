//! `polyrail config`: checks configuration files.

use crate::failure::Failure;
use crate::output::Output;
use clap::Subcommand;
use polyrail::config::Config;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Commands about configuration.
#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Names the first setting of a file that is not allowed
    #[command(after_help = "Example: polyrail config check docs/polyrail.toml")]
    Check {
        /// The TOML file
        file: PathBuf,
    },
}

/// Runs one of them.
pub fn run(command: ConfigCommand, output: &Output) -> Result<ExitCode, Failure> {
    let ConfigCommand::Check { file } = command;
    let config = Config::load(&file)?;
    // A flag may still say what the file leaves out; a file that is checked shall stand on its own.
    config.validate()?;
    let file = file.display().to_string();
    output.result(format!("{file}: ok"), &json!({ "ok": true, "file": file, "cluster": config.cluster }));
    Ok(ExitCode::SUCCESS)
}
