//! Opening: finds the interface, sets up the sockets, and notes what the system did not grant.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use polyrail_sys::interface::{self, Interface};
use polyrail_sys::udp::{RecvQueue, UdpSocket};

use super::express::Express;
use super::lend::Lending;
use super::offload::Offload;
use super::sockets::{Setup, Sockets};
use super::trouble::Trouble;
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
}

impl UdpConfig {
    /// The usual settings for `address` on `interface`: any data port, beacons on port 7430, all offloads and express frames.
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

fn capabilities(config: &UdpConfig, interface: &Interface, data: &UdpSocket) -> Capabilities {
    let header = u32::from(header_bytes(config.address));
    let mtu_bytes = interface.mtu_bytes.saturating_sub(header).min(TRAIN_BYTES_MAX as u32) as u16;
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
    }
}

/// Asks for the buffers and says what the operator could do if too little was granted.
fn size_buffers(
    config: &UdpConfig,
    data: &UdpSocket,
    facts: &mut Capabilities,
) -> io::Result<Option<String>> {
    let limit = config.socket_buffer_bytes_max.unwrap_or(u32::MAX);
    let (receive, send) = (RECEIVE_BUFFER_BYTES.min(limit), SEND_BUFFER_BYTES.min(limit));
    facts.receive_buffer_bytes = data.set_receive_buffer(receive)?;
    facts.send_buffer_bytes = data.set_send_buffer(send)?;
    let advice = [
        advice("receive", "rmem_max", facts.receive_buffer_bytes, receive, RECEIVE_BUFFER_BYTES_MIN),
        advice("send", "wmem_max", facts.send_buffer_bytes, send, SEND_BUFFER_BYTES_MIN),
    ];
    let lines: Vec<String> = advice.into_iter().flatten().collect();
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

fn advice(which: &str, limit: &str, granted: u32, wanted: u32, enough: u32) -> Option<String> {
    // The kernel doubles the number in the limit, so half of what is wanted is enough there.
    (granted < wanted.min(enough)).then(|| {
        let half = wanted / 2;
        format!("{which} buffer has {granted} bytes of {wanted} wanted: sysctl -w net.core.{limit}={half}")
    })
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
        assert_eq!(advice("receive", "rmem_max", 4 << 20, 16 << 20, 4 << 20), None);
        assert_eq!(advice("receive", "rmem_max", 100_000, 100_000, 4 << 20), None);
        assert_eq!(
            advice("receive", "rmem_max", 425_984, 16 << 20, 4 << 20).unwrap(),
            "receive buffer has 425984 bytes of 16777216 wanted: sysctl -w net.core.rmem_max=8388608"
        );
    }
}
