//! ZeroMQ in a build without it: named, with the reason why it cannot be measured.

use std::io;
use std::time::Duration;

use super::{Listener, Pipe, Protocol, Setup};

/// ZeroMQ, which this build does not have.
pub(super) struct NoZmq;

const REASON: &str = "this build has no ZeroMQ: build with the feature `zmq`, which needs libzmq (`make build`, not `make static`)";

impl Protocol for NoZmq {
    fn name(&self) -> &'static str {
        "zmq"
    }

    fn about(&self) -> &'static str {
        "ZeroMQ over TCP on the first link"
    }

    fn available(&self) -> Result<(), String> {
        Err(REASON.to_owned())
    }

    fn listen(&self, _setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, REASON))
    }

    fn connect(&self, _setup: &Setup, _address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, REASON))
    }
}
