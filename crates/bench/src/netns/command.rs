//! Runs the system's network commands and makes their refusals readable.
//!
//! Everything about namespaces goes through `ip`, `tc`, `nft` and `ethtool`: what they do can be repeated by hand
//! from the error text alone, which names the full command line.

use std::fmt;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Why a testbed could not be made, changed or removed.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetnsError {
    /// A needed program is not installed.
    Missing {
        /// The program that was looked for.
        program: String,
        /// The package that brings it.
        package: &'static str,
    },
    /// A command ran and refused.
    Refused {
        /// The command line as it can be typed.
        command: String,
        /// What the command wrote to its standard error.
        stderr: String,
    },
    /// The process may not create network namespaces.
    Permission,
    /// The specification asks for something impossible.
    Invalid(String),
    /// A testbed of this name exists already, held by the process with this id.
    Exists {
        /// Name of the testbed.
        name: String,
        /// Process that created it.
        pid: u32,
    },
    /// Reading or writing the record of a testbed failed.
    State(String),
}

impl fmt::Display for NetnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { program, package } => {
                write!(f, "command `{program}` not found: install the package {package}")
            }
            Self::Refused { command, stderr } => write!(f, "`{command}`: {}", stderr.trim()),
            Self::Permission => write!(
                f,
                "no permission for network namespaces: run as root, or inside \
                 `unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run && exec COMMAND'`"
            ),
            Self::Invalid(what) => write!(f, "{what}"),
            Self::Exists { name, pid } => write!(
                f,
                "testbed {name} exists already (process {pid}): choose another name, or remove it with \
                 `polyrail testbed down {name}`"
            ),
            Self::State(what) => write!(f, "testbed record: {what}"),
        }
    }
}

impl std::error::Error for NetnsError {}

/// Runs a command to its end and gives its standard output.
pub(super) fn run(program: &str, args: &[&str]) -> Result<String, NetnsError> {
    run_with_input(program, args, "")
}

/// Runs a command that reads `input`, to its end. `ip -batch -` and `nft -f -` take many changes at once this way.
pub(super) fn run_with_input(program: &str, args: &[&str], input: &str) -> Result<String, NetnsError> {
    let line = || format!("{program} {}", args.join(" "));
    let refused = |stderr: String| NetnsError::Refused { command: line(), stderr };
    // A process group of its own: an interrupt from the terminal must not hit a command that cleans up.
    let mut child = Command::new(program)
        .args(args)
        .process_group(0)
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                NetnsError::Missing { program: program.to_owned(), package: package_of(program) }
            }
            _ => refused(error.to_string()),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that refuses early closes its input; its own words then say more than our broken pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !input.is_empty() {
        stderr = format!("{} (input: {})", stderr.trim(), input.trim().replace('\n', "; "));
    }
    Err(refused(stderr))
}

fn package_of(program: &str) -> &'static str {
    match program {
        "ip" | "tc" => "iproute2",
        "nft" => "nftables",
        "ethtool" => "ethtool",
        "unshare" => "util-linux",
        _ => "that contains it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = run("polyrail-no-such-program", &[]).unwrap_err();
        assert!(error.to_string().contains("polyrail-no-such-program"), "{error}");
        assert_eq!(package_of("tc"), "iproute2");
    }

    #[test]
    fn a_refusal_carries_the_command_line_and_its_standard_error() {
        let error = run("sh", &["-c", "echo no such device >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("no such device") && error.contains("sh -c"), "{error}");
    }

    #[test]
    fn input_reaches_the_command() {
        assert_eq!(run_with_input("cat", &[], "one\ntwo").unwrap(), "one\ntwo");
    }
}
