//! What a command can end with other than success.

use polyrail::ErrorCode;
use polyrail::config::ConfigError;
use polyrail_bench::netns::NetnsError;
use std::process::ExitCode;

/// The exit codes that are not success (docs/operating.md, "Exit codes").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// It was tried and did not work.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// This machine lacks a command, a right or a feature.
    Unavailable = 3,
    /// No such service, peer, node or testbed.
    NotFound = 4,
    /// The time given was not enough.
    TimedOut = 5,
}

impl Exit {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::Unavailable => "unavailable",
            Exit::NotFound => "not_found",
            Exit::TimedOut => "timed_out",
        }
    }

    /// The exit code named so, as a control socket names it.
    pub fn from_name(name: &str) -> Self {
        let all = [Exit::Usage, Exit::Unavailable, Exit::NotFound, Exit::TimedOut];
        all.into_iter().find(|exit| exit.name() == name).unwrap_or(Exit::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command ended: one line for people, a code for scripts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// The line, lower-case, naming the thing.
    pub message: String,
}

impl Failure {
    /// A failure with its reason.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into() }
    }

    /// It was tried and did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure::new(Exit::Failed, message)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let hint = if error.key == "security" { " (on the command line: --insecure)" } else { "" };
        Failure::new(Exit::Usage, format!("{error}{hint}"))
    }
}

impl From<NetnsError> for Failure {
    fn from(error: NetnsError) -> Self {
        let exit = match &error {
            NetnsError::Missing { .. } | NetnsError::Permission => Exit::Unavailable,
            NetnsError::Invalid(what) if what.starts_with("no testbed") => Exit::NotFound,
            NetnsError::Invalid(_) => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

/// The exit code that a public error of the library leads to.
fn exit_of(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::Config | ErrorCode::Security | ErrorCode::Range => Exit::Usage,
        ErrorCode::NoBearer | ErrorCode::NotPermitted => Exit::Unavailable,
        ErrorCode::NoService | ErrorCode::NoNode | ErrorCode::NoPort => Exit::NotFound,
        ErrorCode::TimedOut | ErrorCode::WouldBlock => Exit::TimedOut,
        _ => Exit::Failed,
    }
}

macro_rules! from_library {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::new(exit_of(error.code()), error.to_string())
            }
        }
    )*};
}
from_library!(
    polyrail::StartError,
    polyrail::BindError,
    polyrail::SendError,
    polyrail::RecvError,
    polyrail::SubscribeError,
    polyrail::LimitsError,
    polyrail::UpdateError,
    polyrail::Error
);
