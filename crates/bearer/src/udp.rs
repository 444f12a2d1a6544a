//! The bearer over a UDP socket of one interface.
//!
//! Everything goes in trains: through veth or a network card a system call costs 5 to 7 us whether it carries one
//! datagram or 44, so segmentation (GSO) and grouping (GRO) decide the throughput. The sockets are driven directly
//! instead of through a ready-made crate such as quinn-udp: that one sends one contiguous buffer per train, while
//! here a train is a gather list of header bytes and application memory (a second copy would cost as much as the
//! system call), and it keeps to itself what is needed most: local drops (ENOBUFS), the error queue with the
//! destination concerned, and the kernel's send queue.
//!
//! Rules that the rest relies on:
//! - Datagrams are never fragmented (DF), and path MTUs that somebody reported are hints, not limits.
//! - Nothing that a peer, a router or a forger sends breaks sending or receiving; it becomes a [`Notice`].
//! - A neighbour that does not answer is silence: what the own machine finds out about it (ARP) is not told to a
//!   socket that is tied to a device. Routers and the neighbour's own kernel are heard.
//! - A train that has to go one by one and finds room for its beginning only is completed later from a copy.

mod cut;
mod express;
mod lend;
mod offload;
mod open;
mod sockets;
mod transmit;
mod trouble;
mod watch;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

use polyrail_sys::udp::{RecvQueue, UdpSocket};

use crate::{Address, Bearer, Capabilities, Descriptors, Network, Notice, RxBatch, SendOutcome, Transmit};
use express::{Express, Found};
use lend::Lending;
use offload::Offload;
use sockets::Sockets;
use transmit::Held;
use trouble::Trouble;
use watch::Watch;

/// Groups per read call. A read of one costs the same; more only pay off when datagrams come one by one.
const GROUPS_PER_CALL: usize = 16;

pub use open::{BufferShortage, UdpConfig, buffer_shortages, datagram_bytes_max, shortages};

/// Data sockets bound to one interface's address, a beacon socket in its multicast group, and where the system allows it
/// a packet socket for express frames.
pub struct UdpBearer {
    name: String,
    device: String,
    /// Index of the interface: the scope id of link-local destinations.
    scope_id: u32,
    local: Network,
    capabilities: Capabilities,
    sockets: Sockets,
    watch: Watch,
    express: Option<Express>,
    beacon: Option<Beacon>,
    queue: RecvQueue,
    offload: Offload,
    lending: Lending,
    trouble: Trouble,
    held: Option<Held>,
    facts: open::Facts,
}

/// Where to look for datagrams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// At the socket that gave something last.
    Hot,
    /// At every socket.
    Everywhere,
    /// At every socket, for as much as there is.
    All,
}

struct Beacon {
    socket: UdpSocket,
    group: SocketAddr,
}

impl UdpBearer {
    /// Whether the wanted data port was in use, so that the kernel chose another.
    pub fn port_taken(&self) -> bool {
        self.facts.port_taken
    }

    /// Whether the sockets are tied to the device; false where that would have needed privilege.
    pub fn device_bound(&self) -> bool {
        self.facts.device_bound
    }

    /// Advice for the operator when the system's limits keep the socket buffers too small for full speed: what
    /// was granted and the command that helps.
    pub fn buffer_warning(&self) -> Option<String> {
        self.facts.buffer_warning.clone()
    }

    /// Why there are no beacons, if there are none although a beacon port was given.
    pub fn beacon_error(&self) -> Option<&str> {
        self.facts.beacon_error.as_deref()
    }

    fn recv_datagrams(&mut self, batch: &mut RxBatch, search: Search) -> io::Result<usize> {
        let (first, count) = (self.sockets.hot, self.sockets.count());
        let mut sum = 0;
        for index in (first..count).chain(0..first) {
            let data = self.sockets.get_mut(index);
            let groups_max = if data.found > 1 || search == Search::All { usize::MAX } else { 1 };
            let got = match receive(&data.socket, &mut self.queue, &mut self.trouble, batch, groups_max) {
                // What the others gave is not to be lost for the trouble of one.
                Err(_) if sum > 0 => break,
                result => result?,
            };
            data.found = if got == 0 { 0 } else { data.found.saturating_add(1) };
            if got > 0 {
                self.sockets.hot = index;
                sum += got;
            }
            if search == Search::Hot || batch.spare() == 0 {
                break;
            }
        }
        Ok(sum)
    }

    /// Reads every socket, unless none has anything.
    fn recv_everywhere(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        if self.watch.sees_nothing(&self.sockets) {
            return Ok(0);
        }
        let got = self.recv_datagrams(batch, Search::Everywhere)?;
        self.watch.note(got > 0);
        Ok(got)
    }

    /// The socket address for `to`, or `None` if it is not of this bearer's family.
    fn target(&self, to: &Address) -> Option<SocketAddr> {
        match *to {
            Address::Ip(SocketAddr::V4(v4)) => (!self.sockets.common().is_v6()).then_some(v4.into()),
            Address::Ip(SocketAddr::V6(mut v6)) => {
                if v6.ip().is_unicast_link_local() {
                    v6.set_scope_id(self.scope_id);
                }
                self.sockets.common().is_v6().then_some(v6.into())
            }
            Address::Memory(_) | Address::Shm { .. } => None,
        }
    }
}

/// The address without what means something on this machine only.
fn plain(address: SocketAddr) -> Address {
    Address::Ip(match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
    })
}

/// Bytes of the IP and UDP headers for addresses like `ip`.
fn header_bytes(ip: IpAddr) -> u16 {
    if ip.is_ipv6() { 48 } else { 28 }
}

/// Reads what `socket` has into `batch`, at most `groups_max`; what it says about earlier sends goes to `trouble`.
fn receive(
    socket: &UdpSocket,
    queue: &mut RecvQueue,
    trouble: &mut Trouble,
    batch: &mut RxBatch,
    groups_max: usize,
) -> io::Result<usize> {
    // Each round takes one pending error away. They are bounded so that a flood of them cannot hold the turn.
    for _ in 0..trouble::ROUNDS_MAX {
        let buffers = batch.spare_slots().iter_mut().take(groups_max).map(|slot| slot.bytes_mut());
        match socket.recv_many(queue, buffers) {
            Ok(count) => {
                let first = batch.len();
                for index in 0..count {
                    match queue.get(index).filter(|received| !received.truncated) {
                        Some(got) => {
                            batch.commit(plain(got.from), got.bytes, got.stride.unwrap_or(0), got.ecn == 3);
                        }
                        None => batch.commit(Address::Memory(0), 0, 0, false),
                    }
                }
                // Unreadable ones are taken out last, for slots and answers to keep the same numbers until then.
                for index in (0..count).rev() {
                    if queue.get(index).is_none_or(|received| received.truncated) {
                        batch.remove(first + index);
                    }
                }
                return Ok(batch.len() - first);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if trouble::is_fatal(&error) => return Err(error),
            Err(_) => trouble.drain(socket),
        }
    }
    Ok(0)
}

impl Bearer for UdpBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<&str> {
        Some(&self.device)
    }

    fn device_index(&self) -> Option<u32> {
        Some(self.scope_id)
    }

    fn local(&self) -> Network {
        self.local
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        self.transmit(transmit)
    }

    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        if bytes.len() > usize::from(self.capabilities.mtu_bytes) {
            return SendOutcome::TooLarge;
        }
        let Some(beacon) = &self.beacon else {
            return SendOutcome::Failed(io::ErrorKind::Unsupported.into());
        };
        let slices = [io::IoSlice::new(bytes)];
        let common = self.sockets.common();
        let sent =
            self.trouble.retry(common, |socket| socket.send_to(Some(beacon.group), &slices, None, None));
        transmit::outcome(sent)
    }

    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        if self.held.is_some() {
            self.flush_held();
        }
        let Some(express) = &mut self.express else {
            return if thorough {
                self.recv_everywhere(batch)
            } else {
                self.recv_datagrams(batch, Search::Hot)
            };
        };
        let Found { packets, behind } = express.recv(batch, false);
        express.hot |= packets > 0;
        if !thorough && !behind && express.hot {
            return Ok(packets);
        }
        let first = batch.len();
        let received = match (thorough, behind) {
            (_, true) => self.recv_datagrams(batch, Search::All),
            (true, false) => self.recv_everywhere(batch),
            (false, false) => self.recv_datagrams(batch, Search::Hot),
        };
        let datagrams = match received {
            Err(_) if packets > 0 => 0,
            result => result?,
        };
        let Some(express) = &mut self.express else { return Ok(packets + datagrams) };
        if datagrams > 0 {
            express.on_datagrams(batch.iter().skip(first));
        }
        // Where it is full of them there may be more.
        let to_end = datagrams < GROUPS_PER_CALL && batch.spare() > 0;
        let rest = to_end || express.has_waited(datagrams);
        let sum = packets + datagrams + express.recv(batch, rest).packets;
        if thorough {
            express.note_idle(sum == 0);
        }
        Ok(sum)
    }

    fn prefer(&mut self, fd: RawFd) -> bool {
        match &mut self.express {
            // Without a frame it is ready for an error that is pending, which thorough looks take off.
            Some(express) if express.fd() == fd => {
                express.hot = express.has_frame();
                express.hot
            }
            Some(express) => {
                express.hot = false;
                self.sockets.prefer(fd)
            }
            None => self.sockets.prefer(fd),
        }
    }

    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        match &self.beacon {
            Some(beacon) => receive(&beacon.socket, &mut self.queue, &mut self.trouble, batch, usize::MAX),
            None => Ok(0),
        }
    }

    fn notices(&mut self, out: &mut Vec<Notice>) {
        out.append(&mut self.trouble.notices);
    }

    fn writable(&mut self) -> bool {
        if !self.flush_held() {
            return false;
        }
        let socket = &self.sockets.get(self.sockets.full).socket;
        match socket.readiness() {
            Ok(ready) => {
                if ready.error {
                    self.trouble.drain(socket);
                }
                ready.writable
            }
            Err(_) => false,
        }
    }

    fn backlog_bytes(&mut self) -> u32 {
        let held = self.held.as_ref().map_or(0, Held::bytes_left);
        self.sockets.queued_bytes().saturating_add(held as u32)
    }

    fn set_send_buffer(&mut self, bytes: u32) {
        if let Ok(granted) = self.sockets.set_send_buffer(bytes) {
            self.capabilities.send_buffer_bytes = granted;
        }
    }

    fn set_mtu(&mut self, mtu_bytes: u16) {
        self.capabilities.mtu_bytes = mtu_bytes;
    }

    fn fds(&self) -> Descriptors {
        let beacon = self.beacon.as_ref().map(|beacon| beacon.socket.as_raw_fd());
        let mut data = self.sockets.fds();
        let room = data.get(self.sockets.full).copied();
        data.extend(self.express.as_ref().map(Express::fd));
        Descriptors { data, room, beacon }
    }

    fn fds_version(&self) -> u32 {
        self.sockets.version
    }

    fn express_frames(&self) -> Option<(u64, u64)> {
        self.express.as_ref().map(|express| express.carried)
    }

    fn beacon_group(&self) -> Option<Address> {
        self.beacon.as_ref().map(|beacon| plain(beacon.group))
    }
}

#[cfg(test)]
mod tests;
