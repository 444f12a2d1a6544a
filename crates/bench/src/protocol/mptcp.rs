//! MPTCP: the kernel's own way to use several links for one connection.
//!
//! The receiver announces its addresses on the further links, the sender opens a subflow to each. Congestion control
//! is set by socket option: the system's default may be either, and which of the two serves MPTCP better depends on the links.

use std::fs;
use std::io;
use std::time::Duration;

use super::stream_socket::{self, Options};
use super::{Answerer, Caller, Listener, Pipe, Protocol, Setup, Transactor};
use crate::netns::{Testbed, device};

/// MPTCP over every link, with one congestion control on all of them.
pub(super) struct Mptcp {
    name: &'static str,
    about: &'static str,
    options: Options,
}

/// With cubic.
pub(super) static CUBIC: Mptcp = Mptcp {
    name: "mptcp",
    about: "Multipath TCP over all links, kernel path manager, congestion control cubic",
    options: options("cubic"),
};

/// With BBR.
pub(super) static BBR: Mptcp = Mptcp {
    name: "mptcp-bbr",
    about: "Multipath TCP over all links, kernel path manager, congestion control bbr",
    options: options("bbr"),
};

const fn options(congestion: &'static str) -> Options {
    Options {
        protocol: socket2::Protocol::MPTCP,
        congestion: Some(congestion),
        nodelay: false,
        every_address: true,
        cut_send_buffer: Some(CUT_SEND_BUFFER),
    }
}

/// Send buffer of what fills links that are cut, in bytes, as far as `net.core.wmem_max` lets it be. What the kernel
/// chooses fills with what the dead link owns, and the connection then crawls for as long as that stays dead.
const CUT_SEND_BUFFER: usize = 4 << 20;

impl Protocol for Mptcp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn packet_payload(&self) -> usize {
        // TCP's time stamps, and an option with two numbers of 8 bytes.
        1_420
    }

    fn congestion(&self) -> Option<&'static str> {
        self.options.congestion
    }

    fn striped(&self) -> bool {
        true
    }

    fn available(&self) -> Result<(), String> {
        match fs::read_to_string("/proc/sys/net/mptcp/enabled") {
            Err(_) => return Err("this kernel has no MPTCP (CONFIG_MPTCP)".to_owned()),
            Ok(text) if text.trim() != "1" => {
                return Err("MPTCP is switched off: `sysctl net.mptcp.enabled=1`".to_owned());
            }
            Ok(_) => {}
        }
        stream_socket::probe(self.options)
    }

    fn prepare(&self, testbed: &Testbed, receivers: &[usize]) -> Result<(), String> {
        let limits: &[&str] = &["mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8"];
        for node in 0..testbed.spec().nodes {
            ip(testbed, node, limits)?;
            ip(testbed, node, &["mptcp", "endpoint", "flush"])?;
        }
        for &receiver in receivers {
            for link in 1..testbed.spec().links.len() {
                let address = testbed.address(receiver, link).to_string();
                let endpoint = ["mptcp", "endpoint", "add", &address, "dev", &device(link), "signal"];
                ip(testbed, receiver, &endpoint)?;
            }
        }
        Ok(())
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
}

impl Transactor for Mptcp {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        stream_socket::answerer(self.options, setup)
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        stream_socket::caller(self.options, setup, address)
    }
}

fn ip(testbed: &Testbed, node: usize, args: &[&str]) -> Result<(), String> {
    let output = testbed.command(node, "ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip {}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
