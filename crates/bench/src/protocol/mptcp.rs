//! MPTCP: the kernel's own way to use several links for one connection.
//!
//! The receiver announces its addresses on the further links, the sender opens a subflow to each. Congestion control
//! is set to cubic by socket option, which serves MPTCP better here than the system's default.

use std::fs;
use std::io;
use std::time::Duration;

use super::stream_socket::{self, Options};
use super::{Answerer, Caller, Listener, Pipe, Protocol, Setup, Transactor};
use crate::netns::{Testbed, device};

/// MPTCP over every link.
pub(super) struct Mptcp;

const OPTIONS: Options = Options {
    protocol: socket2::Protocol::MPTCP,
    congestion: Some("cubic"),
    nodelay: false,
    every_address: true,
};

impl Protocol for Mptcp {
    fn name(&self) -> &'static str {
        "mptcp"
    }

    fn about(&self) -> &'static str {
        "Multipath TCP over all links, kernel path manager, congestion control cubic"
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
        stream_socket::probe(OPTIONS)
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
        stream_socket::listen(OPTIONS, setup)
    }

    fn connect(&self, setup: &Setup, address: &str, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        stream_socket::connect(OPTIONS, setup, address, timeout)
    }

    fn transactor(&self) -> Option<&dyn Transactor> {
        Some(self)
    }
}

impl Transactor for Mptcp {
    fn answerer(&self, setup: &Setup) -> io::Result<Box<dyn Answerer>> {
        stream_socket::answerer(OPTIONS, setup)
    }

    fn caller(&self, setup: &Setup, address: &str) -> io::Result<Box<dyn Caller>> {
        stream_socket::caller(OPTIONS, setup, address)
    }
}

fn ip(testbed: &Testbed, node: usize, args: &[&str]) -> Result<(), String> {
    let output = testbed.command(node, "ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip {}`: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
