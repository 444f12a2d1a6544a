//! The one thread for everything slow: carriers, interfaces that come and go, DNS, the control socket.
//!
//! Asking for a carrier takes a lock of the kernel's that others may hold for 20 ms, names take seconds: none of that
//! may happen on a thread that moves messages. Results are handed to the engine in one short call.

mod devices;
mod follow;
mod holds;
mod neighbours;
mod plan;

use crate::clock::now_ns;
use crate::config::PeerName;
use crate::control::Listener;
use crate::node::Home;
use crate::wait::Drive;
use devices::Device;
use follow::Follow;
use neighbours::Neighbours;
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
/// While nothing but large messages passes, of which none is missed for so long.
const CALM: Duration = Duration::from_millis(10);
/// While single packets pass: a carrier lost is noticed so much later, and each question costs what a packet does.
const SPARSE: Duration = Duration::from_millis(4);
const IDLE: Duration = Duration::from_millis(250);
/// How often peers' names are resolved again.
const RESOLVE_EVERY_NS: u64 = 30_000_000_000;
/// How long a name that gave nothing waits.
const RESOLVE_AGAIN_NS: u64 = 2_000_000_000;

/// What ends its sleep.
const MONITOR: u64 = 0;
const CONTROL: u64 = 1;

struct Attendant {
    probe: Option<UdpSocket>,
    monitor: Option<LinkMonitor>,
    devices: Vec<Device>,
    follow: Follow,
    peers: Vec<PeerName>,
    resolve_at_ns: u64,
    /// What peers' names resolved to last.
    resolved: Vec<Address>,
    neighbours: Neighbours,
    control: Option<Listener>,
    epoll: Epoll,
}

/// What passes, as far as it concerns how soon a carrier that is lost has to be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    None,
    /// Nothing but large messages.
    Calm,
    /// Single packets.
    Sparse,
    Busy,
}

impl Traffic {
    fn of(drive: &Drive, now_ns: u64) -> Traffic {
        // Waiting for whoever drives would make that thread wake this one, which costs more than it is worth.
        let is_busy = drive.idle_engine().is_none_or(|engine| engine.is_busy(now_ns));
        match (is_busy, drive.passing()) {
            (false, _) => Traffic::None,
            (true, passing) if passing.is_calm() => Traffic::Calm,
            (true, passing) if passing.is_sparse(now_ns) => Traffic::Sparse,
            (true, _) => Traffic::Busy,
        }
    }
}

/// Starts the thread; it ends when the node does.
pub(crate) fn start(home: &Arc<Home>) -> io::Result<JoinHandle<()>> {
    let devices = Device::of_bearers(home.drive.engine().attachments());
    let control = match &home.config.control {
        Some(path) => Some(Listener::open(path)?),
        None => None,
    };
    let epoll = Epoll::new()?;
    // Before the interfaces are looked at, so that nothing that changes afterwards is missed.
    let monitor = LinkMonitor::open().ok();
    if let Some(monitor) = &monitor {
        epoll.add(monitor.as_raw_fd(), MONITOR, Interest::READ)?;
    }
    if let Some(control) = &control {
        epoll.add(control.as_raw_fd(), CONTROL, Interest::READ)?;
    }
    let mut attendant = Attendant {
        probe: UdpSocket::new(false).ok(),
        follow: Follow::new(monitor.is_some()),
        monitor,
        devices,
        peers: home.config.peer_names().unwrap_or_default(),
        resolve_at_ns: 0,
        resolved: Vec::new(),
        neighbours: Neighbours::new(&home.config, &home.drive.engine()),
        control,
        epoll,
    };
    let home = Arc::downgrade(home);
    std::thread::Builder::new().name("polyrail-attend".to_owned()).spawn(move || attendant.run(&home))
}

impl Attendant {
    fn run(&mut self, home: &Weak<Home>) {
        let mut events = Events::new(8);
        loop {
            let traffic = {
                let Some(home) = home.upgrade() else { return };
                if home.drive.is_stopping() {
                    if let Some(control) = &mut self.control {
                        control.finish(&home);
                    }
                    return;
                }
                self.check_carriers(&home);
                self.follow_interfaces(&home);
                self.resolve(&home);
                self.greet_neighbours(&home);
                if let Some(control) = &mut self.control {
                    control.serve(&home);
                }
                Traffic::of(&home.drive, now_ns())
            };
            let wait = self.pause(traffic);
            let _ = self.epoll.wait(&mut events, Some(wait.as_nanos() as u64));
            let mut changes: Vec<LinkChange> = Vec::new();
            if let Some(monitor) = &mut self.monitor
                && events.iter().any(|event| event.token == MONITOR)
                && monitor.drain(&mut changes).unwrap_or(true)
            {
                self.follow.note_change();
            }
        }
    }

    /// Until carriers are asked for again.
    fn pause(&self, traffic: Traffic) -> Duration {
        let is_waiting = self.devices.iter().any(|device| device.waiting_since_ns.is_some());
        // What is captured waits in a ring, and nobody rings for it.
        let is_tracing = self.control.as_ref().is_some_and(Listener::is_tracing);
        match (traffic, self.devices.len()) {
            _ if is_waiting || is_tracing => BUSY,
            (Traffic::None, _) => IDLE,
            (_, ..2) => BUSY_ALONE,
            (Traffic::Calm, _) => CALM,
            (Traffic::Sparse, _) => SPARSE,
            (Traffic::Busy, _) => BUSY,
        }
    }

    fn check_carriers(&mut self, home: &Home) {
        let Some(probe) = &self.probe else { return };
        for device in &mut self.devices {
            // An interface that is gone has no carrier either.
            let carrier = |name: &str| interface::carrier(probe, name).unwrap_or(false);
            let in_service = |name: &str| interface::in_service(probe, name).unwrap_or(false);
            let usable = device.look(now_ns(), carrier, in_service);
            if usable != device.usable {
                device.usable = usable;
                {
                    let mut engine = home.drive.engine();
                    device.bearers.iter().for_each(|&bearer| engine.carrier(now_ns(), bearer, usable));
                }
                // Whoever sleeps must act on it now: what the dead link carried goes by the others.
                if home.drive.inline().is_none() {
                    home.drive.wake();
                }
            }
        }
    }

    /// Bearers come and go with the interfaces and addresses that they are for.
    fn follow_interfaces(&mut self, home: &Home) {
        if !self.follow.step(home, now_ns()) {
            return;
        }
        let mut engine = home.drive.engine();
        let (now, attachments) = (now_ns(), engine.attachments());
        let known = std::mem::take(&mut self.devices);
        self.devices = Device::renew(known, attachments, |bearer| engine.carrier(now, bearer, false));
        // Peers that are named are looked for by new bearers too.
        self.greeted().for_each(|address| engine.connect(now, address));
        drop(engine);
        home.drive.wake();
    }

    /// Whom the node tries to reach, whether it hears of them or not.
    fn greeted(&self) -> impl Iterator<Item = Address> {
        self.resolved.iter().chain(self.neighbours.found()).copied()
    }

    fn greet_neighbours(&mut self, home: &Home) {
        if !self.neighbours.look(now_ns()) {
            return;
        }
        let mut engine = home.drive.engine();
        engine.retain_connects(&self.greeted().collect::<Vec<_>>());
        self.neighbours.found().iter().for_each(|address| engine.connect(now_ns(), *address));
        drop(engine);
        home.drive.wake();
    }

    fn resolve(&mut self, home: &Home) {
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
        let mut engine = home.drive.engine();
        if failed {
            // A name that is not answered now has not changed.
            found.extend(
                self.resolved.iter().filter(|known| !found.contains(known)).copied().collect::<Vec<_>>(),
            );
        } else {
            let neighbours = self.neighbours.found().iter().copied();
            engine.retain_connects(&found.iter().copied().chain(neighbours).collect::<Vec<_>>());
        }
        found.iter().for_each(|address| engine.connect(now_ns(), *address));
        self.resolved = found;
        drop(engine);
        home.drive.wake();
    }
}

fn plain(mut address: SocketAddr) -> Address {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
        v6.set_flowinfo(0);
    }
    Address::Ip(address)
}
