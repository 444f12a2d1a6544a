//! The machine's network interfaces: what there is, whether the cable is in, and when that changes.

mod carrier;
mod features;
mod list;
mod monitor;
mod netlink;
mod qdisc;
mod route;

use std::net::IpAddr;

pub use carrier::{carrier, in_service};
pub use features::{Feature, features};
pub use list::list;
pub use monitor::{LinkChange, LinkMonitor};
pub use qdisc::{Qdisc, QdiscKind, qdiscs};
pub use route::{Route, route_to};

/// What sort of interface it is, guessed from flags and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This machine talking to itself.
    Loopback,
    /// `docker*`, `virbr*`, `veth*` or `br-*`: made for containers and virtual machines.
    Virtual,
    /// Anything else, in all likelihood a way to other machines.
    Ordinary,
}

/// How far an address is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everywhere (private ranges included).
    Global,
    /// This site only (historic).
    Site,
    /// This link only: IPv6 needs a scope id to use it.
    Link,
    /// This machine only.
    Host,
}

/// One address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// The address itself.
    pub ip: IpAddr,
    /// Leading bits shared by its subnet.
    pub prefix_bits: u8,
    /// How far it is valid.
    pub scope: Scope,
    /// IPv6 only: whether it is still being checked for duplicates, so that it cannot be bound yet.
    pub tentative: bool,
}

/// One interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number, also the scope id of its link-local addresses.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether the administrator wants it.
    pub up: bool,
    /// Whether it can carry data now.
    pub running: bool,
    /// Whether it knows multicast.
    pub multicast: bool,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// What sort it is.
    pub kind: Kind,
    /// Its IPv4 and IPv6 addresses.
    pub addresses: Vec<InterfaceAddress>,
}
