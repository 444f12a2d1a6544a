//! The media under test: each gives bearers that can reach each other.

use std::net::IpAddr;

use polyrail_bearer::{Address, Bearer, MemoryConfig, MemoryHub, ShmBearer, UdpBearer, UdpConfig};

use crate::hosts::Host;

/// Beacon port of the tests; every test on the same interface hears the others, so each looks for its own.
const BEACON_PORT: u16 = 17_430;

/// Makes bearers of one kind.
pub trait Medium {
    /// A new bearer. Seat 0 is one host; all others are its neighbours.
    fn bearer(&self, seat: u8) -> Box<dyn Bearer>;

    /// An address like `near`'s where nobody listens.
    fn nobody(&self, near: &Address) -> Address;

    /// Makes the way out of seat 0 slow, where the medium can be slowed down; whether a sender can be made to
    /// find no room at all.
    fn narrow(&self) -> bool;
}

pub struct Memory {
    hub: MemoryHub,
}

impl Memory {
    pub fn new() -> Memory {
        let config = MemoryConfig { inbox_bytes_max: 1 << 20, ..MemoryConfig::default() };
        Memory { hub: MemoryHub::with_config(config) }
    }
}

impl Medium for Memory {
    fn bearer(&self, seat: u8) -> Box<dyn Bearer> {
        Box::new(self.hub.bearer(seat.into()))
    }

    fn nobody(&self, _near: &Address) -> Address {
        Address::Memory(1_000)
    }

    fn narrow(&self) -> bool {
        true
    }
}

/// Nodes that share memory, on a machine of their own.
pub struct Shm {
    machine: u64,
}

impl Shm {
    pub fn new() -> Shm {
        Shm { machine: std::process::id().into() }
    }
}

impl Medium for Shm {
    fn bearer(&self, _seat: u8) -> Box<dyn Bearer> {
        Box::new(ShmBearer::open(self.machine).unwrap())
    }

    fn nobody(&self, _near: &Address) -> Address {
        Address::Shm { machine: self.machine, seat: 1 }
    }

    fn narrow(&self) -> bool {
        true
    }
}

pub struct Loopback {
    ip: IpAddr,
}

impl Loopback {
    pub fn new(ip: &str) -> Loopback {
        Loopback { ip: ip.parse().unwrap() }
    }
}

impl Medium for Loopback {
    fn bearer(&self, _seat: u8) -> Box<dyn Bearer> {
        let config = UdpConfig { beacon_port: BEACON_PORT, ..UdpConfig::new("lo", self.ip) };
        Box::new(UdpBearer::open(config).unwrap())
    }

    fn nobody(&self, _near: &Address) -> Address {
        // Taken and given back: nobody else gets it soon, as the kernel hands out ports at random.
        std::net::UdpSocket::bind((self.ip, 0)).map(|s| Address::Ip(s.local_addr().unwrap())).unwrap()
    }

    fn narrow(&self) -> bool {
        // What is sent to loopback has arrived when the call returns: there is no queue to fill.
        false
    }
}

/// Two hosts and a cable.
pub struct Veth {
    hosts: [Host; 2],
    ips: [IpAddr; 2],
    offloads: bool,
}

impl Veth {
    pub fn new(claim: &str, ips: [&str; 2], offloads: bool) -> Option<Veth> {
        let hosts: [Host; 2] = Host::some(claim)?;
        hosts[0].link(&hosts[1], "va", "vb", 1_500);
        let ips: [IpAddr; 2] = ips.map(|ip| ip.parse().unwrap());
        for ((host, device), ip) in hosts.iter().zip(["va", "vb"]).zip(ips) {
            let prefix_and_flags = if ip.is_ipv6() { "64 nodad" } else { "24" };
            host.ip(&format!("addr add dev {device} {ip}/{prefix_and_flags}"));
        }
        Some(Veth { hosts, ips, offloads })
    }

    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }
}

impl Medium for Veth {
    fn bearer(&self, seat: u8) -> Box<dyn Bearer> {
        let side = usize::from(seat.min(1));
        let config = UdpConfig {
            beacon_port: BEACON_PORT,
            gso: self.offloads,
            gro: self.offloads,
            ..UdpConfig::new(["va", "vb"][side], self.ips[side])
        };
        Box::new(self.hosts[side].run(|| UdpBearer::open(config).unwrap()))
    }

    fn nobody(&self, near: &Address) -> Address {
        match *near {
            Address::Ip(mut address) => {
                address.set_port(9);
                Address::Ip(address)
            }
            _ => unreachable!(),
        }
    }

    fn narrow(&self) -> bool {
        self.hosts[0].command("tc", "qdisc add dev va root tbf rate 20mbit burst 128kb limit 4mb");
        true
    }
}

type Wrap = fn(Box<dyn Bearer>) -> Box<dyn Bearer>;

/// Another medium, each bearer in a wrapper.
pub struct Wrapped<M> {
    inner: M,
    wrap: Wrap,
}

impl<M: Medium> Wrapped<M> {
    pub fn new(inner: M, wrap: Wrap) -> Wrapped<M> {
        Wrapped { inner, wrap }
    }
}

impl<M: Medium> Medium for Wrapped<M> {
    fn bearer(&self, seat: u8) -> Box<dyn Bearer> {
        (self.wrap)(self.inner.bearer(seat))
    }

    fn nobody(&self, near: &Address) -> Address {
        self.inner.nobody(near)
    }

    fn narrow(&self) -> bool {
        self.inner.narrow()
    }
}
