//! TCP, three ways: with each of the two congestion controls that matter, and with small segments sent at once.

use std::io;
use std::time::Duration;

use super::stream_socket::{self, Options};
use super::{Answerer, Caller, Hub, Listener, Pipe, Protocol, Server, Setup, Transactor};

/// TCP with one set of options.
pub(super) struct Tcp {
    name: &'static str,
    about: &'static str,
    options: Options,
}

/// Cubic, named by socket option: the system's default may be another.
pub(super) static CUBIC: Tcp = Tcp {
    name: "tcp-cubic",
    about: "TCP, one connection over the first link, congestion control cubic",
    options: Options {
        protocol: socket2::Protocol::TCP,
        congestion: Some("cubic"),
        nodelay: false,
        every_address: false,
        cut_send_buffer: None,
    },
};

/// BBR, named by socket option.
pub(super) static BBR: Tcp = Tcp {
    name: "tcp-bbr",
    about: "TCP, one connection over the first link, congestion control bbr",
    options: Options {
        protocol: socket2::Protocol::TCP,
        congestion: Some("bbr"),
        nodelay: false,
        every_address: false,
        cut_send_buffer: None,
    },
};

/// The system's congestion control, with TCP_NODELAY.
pub(super) static NODELAY: Tcp = Tcp {
    name: "tcp-nodelay",
    about: "TCP with TCP_NODELAY, one connection over the first link, the system's congestion control",
    options: Options {
        protocol: socket2::Protocol::TCP,
        congestion: None,
        nodelay: true,
        every_address: false,
        cut_send_buffer: None,
    },
};

impl Protocol for Tcp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn congestion(&self) -> Option<&'static str> {
        self.options.congestion
    }

    fn available(&self) -> Result<(), String> {
        stream_socket::probe(self.options)
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        stream_socket::listen(self.options, setup)
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        stream_socket::connect(self.options, setup, address, timeout)
    }

    fn reads_whole(&self) -> bool {
        true
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        Some(self)
    }

    fn hub(&self) -> Option<&dyn Hub> {
        Some(self)
    }
}

impl Hub for Tcp {
    fn server(&self, setup: &Setup, clients: u32) -> io::Result<Box<dyn Server>> {
        stream_socket::server(self.options, setup, clients)
    }
}

impl Transactor for Tcp {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        stream_socket::answerer(self.options, setup)
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        stream_socket::caller(self.options, setup, address)
    }
}
