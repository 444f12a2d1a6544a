//! What of this machine decides how well a node does on it: interfaces, their queues and offloads, settings of the system.
//!
//! A picture, taken when it is asked for, of the network name space of whoever asks. It is for tools that tell an operator
//! what is wrong; a node itself does not need it. What cannot be read is absent, never guessed.

mod memory;

pub(crate) use memory::{descriptors, memory_bytes};

use crate::config::InterfaceRules;
use crate::node::select::best_address;
use polyrail_sys::interface;
use polyrail_sys::udp::UdpSocket;
use std::io;
use std::net::IpAddr;
use std::path::Path;

pub use polyrail_bearer::{BufferShortage, shortages};
pub use polyrail_sys::interface::{Feature, Qdisc, QdiscKind};

/// The right to send frames, by its number in `linux/capability.h`.
const CAP_NET_RAW: u32 = 13;

/// This machine, as far as a node's bearers depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
    /// Socket buffers that the system keeps too small for this process.
    pub shortages: Vec<BufferShortage>,
    /// Most bytes that the system grants without a right: `net.core.rmem_max` and `net.core.wmem_max`. It counts each twice.
    pub buffer_max_bytes: (Option<u32>, Option<u32>),
    /// Whether this process may send express frames (CAP_NET_RAW), if the system tells.
    pub may_send_frames: Option<bool>,
}

/// One interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether the administrator wants it.
    pub up: bool,
    /// Whether it is this machine talking to itself.
    pub loopback: bool,
    /// Whether a device of a bus is behind it, and not the system alone.
    pub hardware: bool,
    /// The interfaces that it is made of, if it is a network's part (VLAN), a bond or a bridge.
    pub lower: Vec<String>,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u32,
    /// Its addresses, each with the leading bits that its network shares.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The address that a node with these rules would use; none: it would not use the interface.
    pub chosen: Option<IpAddr>,
    /// What it can do by itself.
    pub features: Vec<Feature>,
    /// Its queues.
    pub qdiscs: Vec<Qdisc>,
    /// How strictly the system asks whether what arrives would be answered by the same interface: 1 is strictly.
    pub rp_filter: Option<u32>,
    /// 1 and more: it answers questions about its own addresses only.
    pub arp_ignore: Option<u32>,
    /// 2: it asks in the name of its own addresses only.
    pub arp_announce: Option<u32>,
}

impl Machine {
    /// Looks at this machine.
    ///
    /// # Errors
    /// What the system says if it does not tell its interfaces.
    pub fn look(rules: &InterfaceRules) -> io::Result<Machine> {
        let socket = UdpSocket::new(false)?;
        // Kernels without any traffic control do not know the question.
        let qdiscs = interface::qdiscs().unwrap_or_default();
        let interfaces = interface::list()?.iter().map(|found| one(rules, found, &socket, &qdiscs)).collect();
        let status = std::fs::read_to_string("/proc/self/status").ok();
        Ok(Machine {
            interfaces,
            shortages: polyrail_bearer::buffer_shortages()?,
            buffer_max_bytes: (number("/proc/sys/net/core/rmem_max"), number("/proc/sys/net/core/wmem_max")),
            may_send_frames: status.as_deref().and_then(has_net_raw),
        })
    }

    /// The interface with this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// By which interface the system itself would send to an address; none if it knows no way.
    pub fn route_to(&self, to: IpAddr) -> Option<&Interface> {
        let route = interface::route_to(to).ok()?;
        self.interfaces.iter().find(|interface| interface.index == route.interface_index)
    }
}

fn one(
    rules: &InterfaceRules,
    found: &interface::Interface,
    socket: &UdpSocket,
    qdiscs: &[Qdisc],
) -> Interface {
    let addresses: Vec<IpAddr> = found.addresses.iter().map(|a| a.ip).collect();
    let loopback = found.kind == interface::Kind::Loopback;
    let chosen = found.up && rules.selects(&found.name, &addresses, loopback);
    // The stricter of the two counts.
    let setting = |name: &str| {
        let of = |whose: &str| number(&format!("/proc/sys/net/ipv4/conf/{whose}/{name}"));
        Some(of("all")?.max(of(&found.name)?))
    };
    Interface {
        name: found.name.clone(),
        index: found.index,
        up: found.up,
        loopback,
        hardware: Path::new("/sys/class/net").join(&found.name).join("device").exists(),
        lower: lower(&found.name),
        mtu_bytes: found.mtu_bytes,
        addresses: found.addresses.iter().map(|a| (a.ip, a.prefix_bits)).collect(),
        chosen: if chosen { best_address(rules, found) } else { None },
        features: interface::features(socket, &found.name).unwrap_or_default(),
        qdiscs: qdiscs.iter().filter(|qdisc| qdisc.interface_index == found.index).cloned().collect(),
        rp_filter: setting("rp_filter"),
        arp_ignore: setting("arp_ignore"),
        arp_announce: setting("arp_announce"),
    }
}

/// What the system calls `lower_NAME` in an interface's folder.
fn lower(name: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(Path::new("/sys/class/net").join(name)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut lower: Vec<String> =
        names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)).collect();
    lower.sort_unstable();
    lower
}

fn number(path: &str) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether the rights in effect, as `/proc/self/status` has them, hold the one to send frames.
fn has_net_raw(status: &str) -> Option<bool> {
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let rights = u64::from_str_radix(rights.trim(), 16).ok()?;
    Some(rights >> CAP_NET_RAW & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn loopback_is_in_the_picture_and_used_only_if_it_is_named() {
        let look =
            |rules: &[&str]| Machine::look(&Config::new().interfaces(rules.iter().copied()).interfaces);
        let machine = look(&["lo"]).unwrap();
        let lo = machine.interface("lo").unwrap();
        assert!(
            lo.loopback && lo.up && !lo.hardware && lo.chosen.is_some() && !lo.features.is_empty(),
            "{lo:?}"
        );
        assert!(lo.rp_filter.is_some() && lo.arp_ignore.is_some() && lo.arp_announce.is_some(), "{lo:?}");
        assert_eq!(machine.route_to("127.0.0.9".parse().unwrap()), Some(lo));
        assert_eq!(look(&[]).unwrap().interface("lo").unwrap().chosen, None);
    }

    #[test]
    fn the_right_to_send_frames_is_one_bit() {
        assert_eq!(has_net_raw("Name:\tx\nCapEff:\t0000000000002000\n"), Some(true));
        assert_eq!(has_net_raw("CapEff:\t0000000000001fff\n"), Some(false));
        assert_eq!(has_net_raw("CapInh:\t0000000000002000\n"), None);
    }
}
