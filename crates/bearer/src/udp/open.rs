//! Opening: finds the interface, sets up the sockets, and notes what the system did not grant.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use polyrail_sys::interface::{self, Interface};
use polyrail_sys::udp::{RecvQueue, UdpSocket};

use super::express::Express;
use super::lend::Lending;
use super::offload::Offload;
use super::sockets::{Setup, Sockets};
use super::trouble::Trouble;
use super::watch::Watch;
use super::{Beacon, GROUPS_PER_CALL, UdpBearer, header_bytes, plain};
use crate::bearer::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};
use crate::{Capabilities, Network};

/// Beacons go to these groups, to hear them is a matter of joining.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 74, 30);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x7430);

/// What is asked for: a receive buffer for some milliseconds of a fast link, and a send buffer that the window
/// will lower soon, in bytes as the kernel counts.
const RECEIVE_BUFFER_BYTES: u32 = 16 << 20;
const SEND_BUFFER_BYTES: u32 = 2 << 20;
/// Less than this costs throughput.
const RECEIVE_BUFFER_BYTES_MIN: u32 = 4 << 20;
const SEND_BUFFER_BYTES_MIN: u32 = 1 << 20;

/// How to open a UDP bearer.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The interface, by name or by index.
    pub interface: String,
    /// One of its addresses.
    pub address: IpAddr,
    /// The data port; 0 lets the kernel choose.
    pub port: u16,
    /// The port for beacons, the same for all nodes of a cluster; 0 means no beacons.
    pub beacon_port: u16,
    /// Keeps each socket buffer below so many bytes as the kernel counts.
    pub socket_buffer_bytes_max: Option<u32>,
    /// Whether to try segmentation offload.
    pub gso: bool,
    /// Whether to try receive grouping.
    pub gro: bool,
    /// Whether to try express frames.
    pub express: bool,
    /// The DSCP (0 to 63) of beacons, and of all that no other is said for: saying one costs a little for each train.
    pub dscp: u8,
}

impl UdpConfig {
    /// The usual settings for `address` on `interface`: any data port, beacons on port 7430, all offloads and express frames,
    /// DSCP 0.
    pub fn new(interface: impl Into<String>, address: IpAddr) -> UdpConfig {
        UdpConfig {
            interface: interface.into(),
            address,
            port: 0,
            beacon_port: 7430,
            socket_buffer_bytes_max: None,
            gso: true,
            gro: true,
            express: true,
            dscp: 0,
        }
    }
}

/// What became of the wishes, for the operator.
#[derive(Default)]
pub(super) struct Facts {
    pub port_taken: bool,
    pub device_bound: bool,
    pub buffer_warning: Option<String>,
    pub beacon_error: Option<String>,
}

impl UdpBearer {
    /// Opens both sockets on the interface.
    ///
    /// # Errors
    /// NotFound if there is no such interface; otherwise what the system says about the data socket.
    pub fn open(config: UdpConfig) -> io::Result<UdpBearer> {
        let interface = find(&config.interface)?;
        let scoped = scoped(config.address, &interface);
        let mut facts = Facts::default();
        let limit = config.socket_buffer_bytes_max.unwrap_or(u32::MAX);
        let mut setup = Setup {
            v6: config.address.is_ipv6(),
            device: Some(interface.name.clone()),
            gro: false,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES.min(limit),
            dscp: config.dscp,
        };
        let data = match setup.socket() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                setup.device = None;
                setup.socket()?
            }
            result => result?,
        };
        facts.device_bound = setup.device.is_some();
        facts.port_taken = bind_port(&data, scoped, config.port)?;
        // Beacons leave by the data socket: where they come from is where their sender is reached.
        data.set_multicast_interface(interface.index, config.address)?;
        data.set_multicast_hops(1)?;
        data.set_multicast_loop(true)?;

        let mut capabilities = capabilities(&config, &interface, &data);
        setup.gro = capabilities.gro;
        facts.buffer_warning = size_buffers(&config, &data, &mut capabilities)?;
        let beacon = match open_beacon(&config, &interface, scoped) {
            Ok(beacon) => beacon,
            Err(error) => {
                facts.beacon_error = Some(error.to_string());
                None
            }
        };
        capabilities.broadcast = beacon.is_some();
        let prefix_bits = interface.addresses.iter().find(|a| a.ip == config.address).map(|a| a.prefix_bits);
        let prefix_bits = prefix_bits.unwrap_or(if config.address.is_ipv6() { 128 } else { 32 });
        let mut local = scoped;
        local.set_port(data.local_address()?.port());
        let network = Network { address: plain(local), prefix_bits };
        let express = config.express.then(|| Express::open(interface.index, network)).flatten();
        let lending = Lending::new(capabilities.segments_max > 1);
        capabilities.lends_pages = lending.is_possible();
        Ok(UdpBearer {
            name: format!("udp/{}", interface.name),
            scope_id: interface.index,
            local: network,
            offload: Offload::new(capabilities.segments_max > 1),
            lending,
            device: interface.name,
            capabilities,
            sockets: Sockets::new(setup, data, local),
            watch: Watch::default(),
            express,
            beacon,
            queue: RecvQueue::new(GROUPS_PER_CALL),
            trouble: Trouble::default(),
            held: None,
            facts,
        })
    }
}

fn find(wanted: &str) -> io::Result<Interface> {
    let index: Option<u32> = wanted.parse().ok();
    let found = interface::list()?.into_iter().find(|i| i.name == wanted || Some(i.index) == index);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {wanted}")))
}

/// `ip` with the scope that binding to a link-local address needs, and port 0.
fn scoped(ip: IpAddr, interface: &Interface) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
            SocketAddrV6::new(v6, 0, 0, interface.index).into()
        }
        _ => (ip, 0).into(),
    }
}

/// Ties `socket` to its interface, or reports false where that needs a privilege we lack.
fn bind_device(socket: &UdpSocket, interface: &Interface) -> io::Result<bool> {
    match socket.bind_to_device(&interface.name) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// Binds to `port`, or to any if that is in use; whether it was.
fn bind_port(socket: &UdpSocket, mut address: SocketAddr, port: u16) -> io::Result<bool> {
    address.set_port(port);
    match socket.bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && port != 0 => {
            address.set_port(0);
            socket.bind(address).map(|()| true)
        }
        result => result.map(|()| false),
    }
}

/// Largest datagram of a bearer whose interface has this MTU and whose address is of the family of `address`, bytes.
pub fn datagram_bytes_max(interface_mtu_bytes: u32, address: IpAddr) -> u16 {
    let header = u32::from(header_bytes(address));
    interface_mtu_bytes.saturating_sub(header).min(TRAIN_BYTES_MAX as u32) as u16
}

fn capabilities(config: &UdpConfig, interface: &Interface, data: &UdpSocket) -> Capabilities {
    let mtu_bytes = datagram_bytes_max(interface.mtu_bytes, config.address);
    let gso = config.gso && data.knows_gso();
    Capabilities {
        mtu_bytes,
        segments_max: if gso { TRAIN_SEGMENTS_MAX as u8 } else { 1 },
        gro: config.gro && data.set_gro(true).is_ok(),
        lossless: false,
        ordered: false,
        checksummed: true,
        send_buffer_bytes: 0,
        receive_buffer_bytes: 0,
        lends_pages: false,
        broadcast: false,
        near: false,
    }
}

/// Asks for the buffers and says what the operator could do if too little was granted.
fn size_buffers(
    config: &UdpConfig,
    data: &UdpSocket,
    facts: &mut Capabilities,
) -> io::Result<Option<String>> {
    let limit = config.socket_buffer_bytes_max.unwrap_or(u32::MAX);
    let granted = grant_buffers(data, limit)?;
    (facts.receive_buffer_bytes, facts.send_buffer_bytes) = granted;
    let lines: Vec<String> = shortages(granted, limit).iter().map(ToString::to_string).collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// Asks for both buffers, each at most `limit`: what was granted for receiving and for sending.
fn grant_buffers(socket: &UdpSocket, limit: u32) -> io::Result<(u32, u32)> {
    let receive = socket.set_receive_buffer(RECEIVE_BUFFER_BYTES.min(limit))?;
    Ok((receive, socket.set_send_buffer(SEND_BUFFER_BYTES.min(limit))?))
}

/// A socket buffer that the system keeps smaller than is good, and the setting that does it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferShortage {
    /// What the buffer is for: `receive` or `send`.
    pub which: &'static str,
    /// Bytes that the system grants, as it counts.
    pub granted_bytes: u32,
    /// Bytes that are wanted, as it counts.
    pub wanted_bytes: u32,
    /// The setting.
    pub sysctl: &'static str,
    /// What it should be at least.
    pub sysctl_value: u32,
}

impl fmt::Display for BufferShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BufferShortage { which, granted_bytes, wanted_bytes, sysctl, sysctl_value } = self;
        write!(
            f,
            "{which} buffer has {granted_bytes} bytes of {wanted_bytes} wanted: sysctl -w {sysctl}={sysctl_value}"
        )
    }
}

/// Asks the system for the buffers that a bearer asks for, and tells which of them it keeps too small for this process.
///
/// # Errors
/// What the system says about a socket.
pub fn buffer_shortages() -> io::Result<Vec<BufferShortage>> {
    let socket = UdpSocket::new(false)?;
    Ok(shortages(grant_buffers(&socket, u32::MAX)?, u32::MAX))
}

/// What is short of `granted`, for receiving and for sending, if no more than `limit` is wanted.
pub fn shortages(granted: (u32, u32), limit: u32) -> Vec<BufferShortage> {
    let (receive, send) = (RECEIVE_BUFFER_BYTES.min(limit), SEND_BUFFER_BYTES.min(limit));
    let receive = shortage("receive", "net.core.rmem_max", granted.0, receive, RECEIVE_BUFFER_BYTES_MIN);
    let send = shortage("send", "net.core.wmem_max", granted.1, send, SEND_BUFFER_BYTES_MIN);
    [receive, send].into_iter().flatten().collect()
}

fn shortage(
    which: &'static str,
    sysctl: &'static str,
    granted_bytes: u32,
    wanted_bytes: u32,
    enough: u32,
) -> Option<BufferShortage> {
    // The kernel doubles the number in the setting, so half of what is wanted is enough there.
    let sysctl_value = wanted_bytes / 2;
    let found = BufferShortage { which, granted_bytes, wanted_bytes, sysctl, sysctl_value };
    (granted_bytes < wanted_bytes.min(enough)).then_some(found)
}

/// The socket that sends and hears beacons: several nodes of one machine may share it, and each hears all.
fn open_beacon(config: &UdpConfig, interface: &Interface, local: SocketAddr) -> io::Result<Option<Beacon>> {
    if config.beacon_port == 0 {
        return Ok(None);
    }
    let v6 = config.address.is_ipv6();
    let group_ip: IpAddr = if v6 { GROUP_V6.into() } else { GROUP_V4.into() };
    let mut group = scoped(group_ip, interface);
    group.set_port(config.beacon_port);

    // Whether there is a way to the group at all is found out by a socket that is thrown away.
    let probe = UdpSocket::new(v6)?;
    bind_device(&probe, interface)?;
    probe.bind(local)?;
    probe.connect(group)?;

    let socket = UdpSocket::new(v6)?;
    socket.set_reuse_address(true)?;
    bind_device(&socket, interface)?;
    // Bound to the group, it does not compete for unicast datagrams that others get on the same port.
    socket.bind(group)?;
    socket.join(group_ip, interface.index)?;
    socket.set_multicast_own_only()?;
    socket.set_receive_errors()?;
    Ok(Some(Beacon { socket, group }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_come_with_the_command_that_helps() {
        let told =
            |granted, limit| shortages(granted, limit).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(told((4 << 20, 1 << 20), u32::MAX).is_empty());
        assert!(told((100_000, 100_000), 100_000).is_empty(), "no more was wanted");
        let receive =
            "receive buffer has 425984 bytes of 16777216 wanted: sysctl -w net.core.rmem_max=8388608";
        let send = "send buffer has 425984 bytes of 2097152 wanted: sysctl -w net.core.wmem_max=1048576";
        assert_eq!(told((425_984, 425_984), u32::MAX), [receive, send]);
        assert!(buffer_shortages().is_ok());
    }
}
