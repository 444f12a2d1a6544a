//! Bearers that are opened, resized and closed while the engine runs, and what is missing where there should be one.

use super::vacant::Vacant;
use super::{Attached, Engine, media};
use crate::config::InterfaceRules;
use crate::node::events::NodeEvent;
use polyrail_bearer::{Address, Bearer};
use polyrail_proto::BearerInfo;
use polyrail_proto::id::BearerId;
use polyrail_proto::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

/// Interfaces without a bearer that are remembered: those that lost it last.
const MISSING_MAX: usize = 32;
/// How long one is remembered that the settings do not name in full.
const MISSING_SPAN: Duration = Duration::s(3_600);

/// A bearer on an interface, as far as what becomes of the interface concerns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// The bearer's number.
    pub bearer: usize,
    /// The interface's name and number when it was opened.
    pub interface: String,
    /// See `interface`.
    pub interface_index: Option<u32>,
    /// Its own address.
    pub address: SocketAddr,
    /// Its largest datagram, bytes.
    pub mtu_bytes: u16,
}

/// Why an interface has no bearer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyClosed {
    /// The interface was removed, or renamed.
    InterfaceRemoved,
    /// Another interface has its name.
    InterfaceReplaced,
    /// The interface does not have the bearer's address any more.
    AddressRemoved,
    /// It has an address that comes before the bearer's.
    AddressPreferred,
    /// The settings do not choose it any more.
    NotChosen,
    /// The system refuses to open it.
    Refused(String),
    /// There are as many bearers as there may be.
    TooMany,
}

impl fmt::Display for WhyClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyClosed::InterfaceRemoved => "interface removed",
            WhyClosed::InterfaceReplaced => "interface replaced",
            WhyClosed::AddressRemoved => "address removed",
            WhyClosed::AddressPreferred => "another address comes first",
            WhyClosed::NotChosen => "not chosen by the settings",
            WhyClosed::Refused(what) => return write!(f, "cannot be opened: {what}"),
            WhyClosed::TooMany => "too many bearers",
        })
    }
}

/// What an interface has lost, or could not be given.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub at: Instant,
    /// The address that the bearer had, if there was one.
    pub address: Option<SocketAddr>,
    pub why: WhyClosed,
    /// The settings name the interface in full: it is not forgotten.
    pub is_named: bool,
}

/// The interfaces without a bearer that should have one, by name.
#[derive(Debug, Default)]
pub(crate) struct Missing(BTreeMap<String, Lost>);

impl Missing {
    fn note(&mut self, interface: &str, lost: Lost) {
        if !self.0.contains_key(interface) && self.0.len() >= MISSING_MAX {
            let oldest = self.0.iter().min_by_key(|(name, lost)| (lost.is_named, lost.at, *name));
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| self.0.remove(&name));
        }
        // What is refused again and again is so since the first time.
        let since = self.0.get(interface).filter(|known| known.why == lost.why).map(|known| known.at);
        let address = lost.address.or_else(|| self.0.get(interface).and_then(|known| known.address));
        self.0.insert(interface.to_owned(), Lost { at: since.unwrap_or(lost.at), address, ..lost });
    }

    /// Those that are not forgotten.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = (&str, &Lost)> {
        let known = self.0.iter().filter(move |(_, lost)| lost.is_named || now.since(lost.at) < MISSING_SPAN);
        known.map(|(name, lost)| (name.as_str(), lost))
    }
}

impl Engine {
    /// What is wanted of interfaces, for bearers that are added from now on.
    pub(crate) fn set_interfaces(&mut self, rules: InterfaceRules) {
        self.interfaces = rules;
    }

    /// Adds a bearer; its number is the count of those before it.
    ///
    /// # Panics
    /// If there are as many as there may be: see [`Engine::open_bearer`].
    pub fn add_bearer(&mut self, now_ns: u64, bearer: Box<dyn Bearer>) -> usize {
        let info = describe(bearer.as_ref(), &self.interfaces);
        let id = self.node.add_bearer(Instant(now_ns), info);
        self.attach(now_ns, bearer, id, false)
    }

    /// Adds the bearer by which ports of this node reach each other.
    pub fn add_loopback(&mut self, now_ns: u64, bearer: Box<dyn Bearer>) -> usize {
        let info =
            BearerInfo { broadcast: false, ambiguous: true, ..describe(bearer.as_ref(), &self.interfaces) };
        let id = self.node.add_loopback(Instant(now_ns), info);
        let index = self.attach(now_ns, bearer, id, true);
        self.loopback_at = Some(index);
        index
    }

    /// Adds a bearer while the engine runs: peers are told of it. Its number; none if there are as many as there may be.
    pub fn open_bearer(&mut self, now_ns: u64, bearer: Box<dyn Bearer>) -> Option<usize> {
        let info = describe(bearer.as_ref(), &self.interfaces);
        let id = self.node.try_add_bearer(Instant(now_ns), info)?;
        self.next_at = Instant::ZERO;
        let name = bearer.name().to_owned();
        if let Some(device) = bearer.device() {
            self.missing.0.remove(device);
        }
        let address = bearer.local().address.to_string();
        let index = self.attach(now_ns, bearer, id, false);
        self.push_event(NodeEvent::BearerOpened { bearer: id.0, name, address });
        Some(index)
    }

    /// Closes a bearer: what it carried goes by others, and peers are told. It is given back, for its sockets are closed when
    /// it is dropped, which takes a while, and whoever waits on them has to be told before.
    pub fn close_bearer(&mut self, now_ns: u64, index: usize, why: &WhyClosed) -> Option<Box<dyn Bearer>> {
        let entry = self.bearers.get_mut(index).filter(|entry| !entry.vacant && !entry.loopback)?;
        let name = entry.bearer.name().to_owned();
        let address = entry.bearer.local().address.to_string();
        let closed = std::mem::replace(&mut entry.bearer, Box::new(Vacant(name.clone())));
        (entry.vacant, entry.blocked, entry.near, entry.send_buffer) = (true, false, false, 0);
        let id = entry.id;
        self.changes = self.changes.wrapping_add(1);
        self.next_at = Instant::ZERO;
        self.node.remove_bearer(Instant(now_ns), id, &mut self.store);
        self.push_event(NodeEvent::BearerClosed { bearer: id.0, name, address, why: why.to_string() });
        Some(closed)
    }

    /// A bearer's medium takes datagrams of another size.
    pub fn resize_bearer(&mut self, now_ns: u64, index: usize, mtu_bytes: u16) {
        let Some(entry) = self.bearers.get_mut(index).filter(|entry| !entry.vacant) else { return };
        entry.bearer.set_mtu(mtu_bytes);
        self.next_at = Instant::ZERO;
        let (id, taken) = (entry.id, entry.bearer.capabilities().mtu_bytes);
        self.node.set_bearer_mtu(Instant(now_ns), id, taken);
    }

    /// An interface has no bearer, though it had one or should have one.
    pub(crate) fn note_missing(&mut self, interface: &str, lost: Lost) {
        self.missing.note(interface, lost);
    }

    /// Forgets interfaces that could not be given a bearer, but for those that still want one.
    pub(crate) fn forget_refused(&mut self, wants: impl Fn(&str) -> bool) {
        let is_refused = |why: &WhyClosed| matches!(why, WhyClosed::Refused(_) | WhyClosed::TooMany);
        self.missing.0.retain(|name, lost| !is_refused(&lost.why) || wants(name));
    }

    /// The bearers that are on interfaces.
    pub fn attachments(&self) -> Vec<Attachment> {
        let of = |(bearer, entry): (usize, &Attached)| {
            let Address::Ip(address) = entry.bearer.local().address else { return None };
            Some(Attachment {
                bearer,
                interface: entry.bearer.device()?.to_owned(),
                interface_index: entry.bearer.device_index(),
                address,
                mtu_bytes: entry.bearer.capabilities().mtu_bytes,
            })
        };
        self.bearers.iter().enumerate().filter_map(of).collect()
    }

    /// Where others of this machine reach the node by shared memory.
    pub fn seat(&self) -> Option<Address> {
        self.bearers.iter().find(|entry| entry.near).map(|entry| entry.bearer.local().address)
    }

    fn attach(&mut self, now_ns: u64, bearer: Box<dyn Bearer>, id: BearerId, loopback: bool) -> usize {
        let [checked_at, looked_at, found_at, beacons_at] = [Instant::ZERO; 4];
        let near = bearer.capabilities().near;
        let attached = Attached {
            bearer,
            near,
            id,
            blocked: false,
            checked_at,
            looked_at,
            found_at,
            beacons_at,
            send_buffer: 0,
            loopback,
            vacant: false,
            opened_at: Instant(now_ns),
            looped: false,
        };
        let index = id.0 as usize;
        if index == self.bearers.len() {
            self.bearers.push(attached);
        } else {
            self.bearers[index] = attached;
        }
        self.changes = self.changes.wrapping_add(1);
        index
    }
}

/// A bearer's facts, and what is wanted of its links, in the core's words.
fn describe(bearer: &dyn Bearer, interfaces: &InterfaceRules) -> BearerInfo {
    let (network, facts) = (bearer.local(), bearer.capabilities());
    let link_local = match network.address {
        Address::Ip(std::net::SocketAddr::V6(v6)) => v6.ip().is_unicast_link_local(),
        _ => false,
    };
    // One peer may fill half of the receive buffer: its bookkeeping counts against it too, and other peers come.
    let window = if facts.lossless { 4 << 20 } else { facts.receive_buffer_bytes / 2 };
    BearerInfo {
        address: media(&network.address),
        prefix_at: 3,
        prefix_bits: network.prefix_bits as usize,
        mtu: facts.mtu_bytes,
        window,
        broadcast: facts.broadcast,
        ambiguous: link_local,
        near: facts.near,
        standby: match (bearer.device(), network.address) {
            (Some(device), Address::Ip(address)) => interfaces.is_standby(device, address.ip()),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(at_s: u64, is_named: bool) -> Lost {
        let at = Instant::ZERO + Duration::s(at_s);
        Lost { at, address: None, why: WhyClosed::InterfaceRemoved, is_named }
    }

    #[test]
    fn interfaces_without_a_bearer_are_forgotten_after_a_while_and_when_there_are_many() {
        let mut missing = Missing::default();
        let names = |missing: &Missing, at_s: u64| {
            let now = Instant::ZERO + Duration::s(at_s);
            missing.iter(now).map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        missing.note("eth0", lost(0, true));
        missing.note("eth1", lost(10, false));
        assert_eq!(names(&missing, 3_609), ["eth0", "eth1"]);
        assert_eq!(names(&missing, 3_611), ["eth0"], "one that is named is not forgotten");
        for number in 0..MISSING_MAX as u64 {
            missing.note(&format!("veth{number:02}"), lost(20 + number, false));
        }
        let known = names(&missing, 100);
        assert_eq!(known.len(), MISSING_MAX);
        assert!(known.contains(&"eth0".to_owned()) && !known.contains(&"eth1".to_owned()), "{known:?}");
        assert!(!known.contains(&"veth00".to_owned()) && known.contains(&"veth31".to_owned()), "{known:?}");
    }
}
