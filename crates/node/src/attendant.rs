//! The one thread for everything slow: carriers, DNS, the control socket.
//!
//! Asking for a carrier takes a lock of the kernel's that others may hold for 20 ms, names take seconds: none of that
//! may happen on a thread that moves messages. Results are handed to the engine in one short call.

use crate::clock::now_ns;
use crate::config::PeerName;
use crate::control::Listener;
use crate::node::Shared;
use polyrail_bearer::Address;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::interface::{self, LinkChange, LinkMonitor};
use polyrail_sys::udp::UdpSocket;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often carriers are asked for while messages flow, and otherwise. The kernel's own notice comes too, but it
/// may be 600 ms late when changes follow each other.
const BUSY: Duration = Duration::from_millis(1);
/// The first where there is one device only: no other link waits to take over, and each look takes the core from a thread
/// that spins.
const BUSY_ALONE: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(250);
/// How long the system may take to say that it uses a carrier that is back.
const SERVICE_WAIT_NS: u64 = 50_000_000;
/// How often peers' names are resolved again.
const RESOLVE_EVERY_NS: u64 = 30_000_000_000;
/// How long a name that gave nothing waits.
const RESOLVE_AGAIN_NS: u64 = 2_000_000_000;

struct Attendant {
    probe: Option<UdpSocket>,
    monitor: Option<LinkMonitor>,
    devices: Vec<Device>,
    peers: Vec<PeerName>,
    resolve_at_ns: u64,
    control: Option<Listener>,
    epoll: Epoll,
}

/// An interface that bearers use.
struct Device {
    name: String,
    bearers: Vec<usize>,
    /// Whether the engine counts on its carrier.
    usable: bool,
    /// Since when its carrier is back without the system saying that it uses it.
    waiting_since_ns: Option<u64>,
}

impl Device {
    fn new(name: String) -> Device {
        Device { name, bearers: Vec::new(), usable: true, waiting_since_ns: None }
    }

    /// The interfaces of all bearers: those of both address families share one.
    fn of_bearers(named: Vec<(usize, String)>) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for (bearer, name) in named {
            let known = devices.iter().position(|device| device.name == name);
            let index = known.unwrap_or_else(|| {
                devices.push(Device::new(name));
                devices.len() - 1
            });
            devices[index].bearers.push(bearer);
        }
        devices
    }

    /// Whether the engine may count on the carrier now.
    ///
    /// A carrier that is back is of use only once the system uses it: what is sent before is lost. The system says when
    /// it does; but of an interface that was set up again, which is in use at once, some systems say so only when their
    /// watch over carriers has its turn, up to a second later. So its word is not waited for any longer than it takes
    /// where it tells something.
    fn look(
        &mut self,
        now_ns: u64,
        carrier: impl FnOnce(&str) -> bool,
        in_service: impl FnOnce(&str) -> bool,
    ) -> bool {
        // In this order: newer systems settle the matter when they are asked for the carrier.
        if !carrier(&self.name) {
            self.waiting_since_ns = None;
            return false;
        }
        if self.usable || in_service(&self.name) {
            self.waiting_since_ns = None;
            return true;
        }
        let since_ns = *self.waiting_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= SERVICE_WAIT_NS
    }
}

/// Starts the thread; it ends when the node does.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let devices = Device::of_bearers(shared.drive.engine().devices());
    let control = match &shared.config.control {
        Some(path) => Some(Listener::open(path)?),
        None => None,
    };
    let epoll = Epoll::new()?;
    let monitor = LinkMonitor::open().ok();
    if let Some(monitor) = &monitor {
        epoll.add(monitor.as_raw_fd(), 0, Interest::READ)?;
    }
    if let Some(control) = &control {
        epoll.add(control.as_raw_fd(), 1, Interest::READ)?;
    }
    let mut attendant = Attendant {
        probe: UdpSocket::new(false).ok(),
        monitor,
        devices,
        peers: shared.config.peer_names().unwrap_or_default(),
        resolve_at_ns: 0,
        control,
        epoll,
    };
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new().name("polyrail-attend".to_owned()).spawn(move || attendant.run(&shared))
}

impl Attendant {
    fn run(&mut self, shared: &Weak<Shared>) {
        let mut events = Events::new(8);
        loop {
            let busy = {
                let Some(shared) = shared.upgrade() else { return };
                if shared.drive.is_stopping() {
                    if let Some(control) = &mut self.control {
                        control.finish(&shared);
                    }
                    return;
                }
                self.check_carriers(&shared);
                self.resolve(&shared);
                if let Some(control) = &mut self.control {
                    control.serve(&shared);
                }
                // Waiting for whoever drives would make that thread wake this one, which costs more than it is worth.
                shared.drive.idle_engine().is_none_or(|engine| engine.is_busy(now_ns()))
            };
            let waiting = self.devices.iter().any(|device| device.waiting_since_ns.is_some());
            // What is captured waits in a ring, and nobody rings for it.
            let tracing = self.control.as_ref().is_some_and(Listener::is_tracing);
            let wait = match (busy, self.devices.len()) {
                _ if waiting || tracing => BUSY,
                (true, ..2) => BUSY_ALONE,
                (true, _) => BUSY,
                (false, _) => IDLE,
            };
            let _ = self.epoll.wait(&mut events, Some(wait.as_nanos() as u64));
            let mut changes: Vec<LinkChange> = Vec::new();
            if let Some(monitor) = &mut self.monitor {
                let _ = monitor.drain(&mut changes);
            }
        }
    }

    fn check_carriers(&mut self, shared: &Shared) {
        let Some(probe) = &self.probe else { return };
        for device in &mut self.devices {
            // An interface that is gone has no carrier either.
            let carrier = |name: &str| interface::carrier(probe, name).unwrap_or(false);
            let in_service = |name: &str| interface::in_service(probe, name).unwrap_or(false);
            let usable = device.look(now_ns(), carrier, in_service);
            if usable != device.usable {
                device.usable = usable;
                {
                    let mut engine = shared.drive.engine();
                    device.bearers.iter().for_each(|&bearer| engine.carrier(now_ns(), bearer, usable));
                }
                // Whoever sleeps must act on it now: what the dead link carried goes by the others.
                if shared.drive.inline().is_none() {
                    shared.drive.wake();
                }
            }
        }
    }

    fn resolve(&mut self, shared: &Shared) {
        let now = now_ns();
        if self.peers.is_empty() || now < self.resolve_at_ns {
            return;
        }
        let mut found = Vec::new();
        let mut failed = false;
        for peer in &self.peers {
            match (peer.host.as_str(), peer.port).to_socket_addrs() {
                Ok(addresses) => found.extend(addresses.map(plain)),
                Err(_) => failed = true,
            }
        }
        self.resolve_at_ns = now + if failed { RESOLVE_AGAIN_NS } else { RESOLVE_EVERY_NS };
        let mut engine = shared.drive.engine();
        if !failed {
            engine.retain_connects(&found);
        }
        for address in found {
            engine.connect(now_ns(), address);
        }
        drop(engine);
        shared.drive.wake();
    }
}

fn plain(mut address: SocketAddr) -> Address {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
        v6.set_flowinfo(0);
    }
    Address::Ip(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NS: u64 = 7_000_000_000;

    /// What a look at this moment finds if the carrier and the system's word are these.
    fn look(device: &mut Device, after_ns: u64, carrier: bool, in_service: bool) -> bool {
        device.usable = device.look(AT_NS + after_ns, |_| carrier, |_| in_service);
        device.usable
    }

    #[test]
    fn bearers_of_one_interface_are_one_device() {
        let named =
            [(0, "eth0"), (1, "eth0"), (2, "eth1"), (4, "eth0")].map(|(b, name)| (b, name.to_owned()));
        let devices = Device::of_bearers(named.to_vec());
        let seen: Vec<(&str, &[usize])> = devices.iter().map(|d| (d.name.as_str(), &d.bearers[..])).collect();
        assert_eq!(seen, [("eth0", &[0, 1, 4][..]), ("eth1", &[2])]);
    }

    #[test]
    fn a_carrier_that_is_back_counts_once_the_system_says_so_or_has_had_time_to() {
        let mut device = Device::new("eth0".to_owned());
        assert!(look(&mut device, 0, true, false), "it was there all the time");
        assert!(!look(&mut device, 1, false, true));
        assert!(look(&mut device, 2, true, true));
        assert!(!look(&mut device, 3, false, false));
        assert!(!look(&mut device, 4, true, false));
        assert!(!look(&mut device, 3 + SERVICE_WAIT_NS, true, false));
        assert!(look(&mut device, 4 + SERVICE_WAIT_NS, true, false));
        assert!(device.look(AT_NS, |_| true, |_| false), "and goes on to");
    }

    #[test]
    fn a_carrier_that_left_again_is_waited_for_anew() {
        let mut device = Device::new("eth0".to_owned());
        assert!(!look(&mut device, 0, false, false));
        assert!(!look(&mut device, 1, true, false));
        assert!(!look(&mut device, 2, false, false));
        assert!(device.waiting_since_ns.is_none());
        assert!(!look(&mut device, 1 + SERVICE_WAIT_NS, true, false));
        assert!(!look(&mut device, 2 + SERVICE_WAIT_NS, true, false));
        assert!(look(&mut device, 1 + 2 * SERVICE_WAIT_NS, true, false));
    }
}
