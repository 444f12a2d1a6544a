//! The data sockets: a common one for everybody, and connected ones for the few peers that are talked to most.
//!
//! A connected socket has the same local address. The kernel knows its route beforehand, at both ends, and hands to it
//! what comes from its peer, and all else to the common one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use polyrail_sys::udp::UdpSocket;

/// Most connected sockets: each one more is one more to look at.
const CONNECTED_MAX: usize = 4;
/// Trains to one peer that are worth a socket of its own.
const CONNECTED_TRAINS: u32 = 256;
/// Peers without one that are counted at a time.
const CANDIDATES_MAX: usize = 16;
/// No send buffer is smaller: one train must find room.
const SEND_BUFFER_BYTES_MIN: u32 = 65_536;

/// What every data socket is set to.
pub(super) struct Setup {
    pub v6: bool,
    /// The interface to be tied to, where that is allowed.
    pub device: Option<String>,
    pub gro: bool,
    /// As asked of the kernel.
    pub receive_buffer_bytes: u32,
    /// What leaves goes with this one unless it is said.
    pub dscp: u8,
}

impl Setup {
    /// A new socket with these settings but the buffers, not yet bound.
    pub fn socket(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::new(self.v6)?;
        if let Some(device) = &self.device {
            socket.bind_to_device(device)?;
        }
        socket.set_receive_errors()?;
        socket.set_path_mtu_probe()?;
        socket.set_receive_traffic_class()?;
        socket.set_traffic_class(traffic_class(self.dscp))?;
        Ok(socket)
    }
}

/// The traffic class with this DSCP. Routers mark congestion only on what says it understands such marks: ECT(0).
fn traffic_class(dscp: u8) -> u8 {
    dscp << 2 | 2
}

/// One data socket.
pub(super) struct Data {
    pub socket: UdpSocket,
    /// The other end of a connected one.
    pub peer: Option<SocketAddr>,
    /// Looks in a row that found something. Only a stream is worth a look for many groups: one for a single group, which
    /// will most likely find nothing, costs less.
    pub found: u32,
    /// Trains sent since peers were last compared.
    trains: u32,
    /// Size of the datagrams that the kernel cuts from what is sent without saying one; 0: it cuts nothing.
    segment_bytes: u16,
    /// The DSCP of what is sent without saying one.
    dscp: u8,
}

impl Data {
    fn new(socket: UdpSocket, peer: Option<SocketAddr>, dscp: u8) -> Data {
        Data { socket, peer, found: 0, trains: 0, segment_bytes: 0, dscp }
    }

    /// Has the kernel cut what is sent without saying a size into datagrams of `segment_bytes` (0: not at all); whether
    /// it does.
    pub fn cut(&mut self, segment_bytes: u16) -> bool {
        if self.segment_bytes != segment_bytes && self.socket.set_segment(segment_bytes).is_ok() {
            self.segment_bytes = segment_bytes;
        }
        self.segment_bytes == segment_bytes
    }

    /// What a call has to say for its train to go with `dscp`: nothing where all goes with that.
    pub fn mark(&self, dscp: u8) -> Option<u8> {
        (dscp != self.dscp).then(|| traffic_class(dscp))
    }

    /// Has all go with `dscp` that is sent without saying one; whether it does. For what cannot say one.
    pub fn mark_all(&mut self, dscp: u8) -> bool {
        if self.dscp != dscp && self.socket.set_traffic_class(traffic_class(dscp)).is_ok() {
            self.dscp = dscp;
        }
        self.dscp == dscp
    }

    /// The address that a call has to name to reach `to` by this socket.
    pub fn name(&self, to: SocketAddr) -> Option<SocketAddr> {
        self.peer.is_none().then_some(to)
    }
}

pub(super) struct Sockets {
    setup: Setup,
    local: SocketAddr,
    /// The common socket, then the connected ones.
    all: Vec<Data>,
    /// Peers without a socket of their own, and how many trains they had.
    candidates: Vec<(SocketAddr, u32)>,
    send_buffer_bytes: u32,
    /// The socket that gave something last.
    pub hot: usize,
    /// The socket that had no room at the last try.
    pub full: usize,
    /// Changes with the set of sockets.
    pub version: u32,
}

impl Sockets {
    /// `common` is bound to `local`, whose port is known.
    pub fn new(setup: Setup, common: UdpSocket, local: SocketAddr) -> Sockets {
        let all = vec![Data::new(common, None, setup.dscp)];
        let candidates = Vec::new();
        Sockets { setup, local, all, candidates, send_buffer_bytes: 0, hot: 0, full: 0, version: 0 }
    }

    pub fn common(&self) -> &UdpSocket {
        &self.all[0].socket
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, index: usize) -> &Data {
        &self.all[index]
    }

    pub fn get_mut(&mut self, index: usize) -> &mut Data {
        &mut self.all[index]
    }

    /// The socket for one more train to `to`. A peer that has had many gets one of its own, if need be that of
    /// one that has had fewer meanwhile.
    pub fn toward(&mut self, to: SocketAddr) -> usize {
        if let Some(index) = self.connected_to(to) {
            let data = &mut self.all[index];
            data.trains = data.trains.saturating_add(1);
            return index;
        }
        if !self.earns_socket(to) {
            return 0;
        }
        // What cannot be opened (no descriptors, no route) is done without, until as many trains have gone again.
        self.connect(to).unwrap_or(0)
    }

    /// The socket for what is left of a train to `to`.
    pub fn reaching(&self, to: SocketAddr) -> usize {
        self.connected_to(to).unwrap_or(0)
    }

    fn connected_to(&self, to: SocketAddr) -> Option<usize> {
        self.all.iter().position(|data| data.peer == Some(to))
    }

    /// Counts a train to a peer without a socket of its own; whether it has now had enough of them.
    fn earns_socket(&mut self, to: SocketAddr) -> bool {
        if let Some((_, trains)) = self.candidates.iter_mut().find(|(peer, _)| *peer == to) {
            *trains += 1;
            return *trains >= CONNECTED_TRAINS && self.compare(to);
        }
        if self.candidates.len() == CANDIDATES_MAX {
            // Whoever had least makes room; the newcomer takes the count over, so that one of many can get ahead.
            let least = (0..CANDIDATES_MAX).min_by_key(|i| self.candidates[*i].1).unwrap_or(0);
            self.candidates[least].0 = to;
            self.candidates[least].1 += 1;
        } else {
            self.candidates.push((to, 1));
        }
        false
    }

    /// Whether there is a place for a socket to `to`; all counts begin anew.
    fn compare(&mut self, to: SocketAddr) -> bool {
        let mut place = self.all.len() <= CONNECTED_MAX;
        if !place
            && let Some(least) = (1..self.all.len()).min_by_key(|i| self.all[*i].trains)
            && self.all[least].trains < CONNECTED_TRAINS
        {
            // What it holds unread is lost, as datagrams are, and sent again.
            self.all.remove(least);
            (self.hot, self.full) = (0, 0);
            self.version += 1;
            place = true;
        }
        for data in &mut self.all {
            data.trains = 0;
        }
        self.candidates.retain(|(peer, _)| *peer != to);
        for (_, trains) in &mut self.candidates {
            *trains = 0;
        }
        place
    }

    fn connect(&mut self, peer: SocketAddr) -> io::Result<usize> {
        let socket = self.setup.socket()?;
        if self.setup.gro {
            socket.set_gro(true)?;
        }
        socket.set_receive_buffer(self.setup.receive_buffer_bytes)?;
        // The address is shared for this moment only: nobody else is to bind to it later.
        self.share(true)?;
        let bound = socket
            .set_reuse_address(true)
            .and_then(|()| socket.bind(self.local))
            .and_then(|()| socket.connect(peer))
            .and_then(|()| socket.set_reuse_address(false));
        self.share(false)?;
        bound?;
        self.all.push(Data::new(socket, Some(peer), self.setup.dscp));
        self.version += 1;
        if self.send_buffer_bytes > 0 {
            self.set_send_buffer(self.send_buffer_bytes)?;
        }
        Ok(self.all.len() - 1)
    }

    fn share(&self, on: bool) -> io::Result<()> {
        self.all.iter().try_for_each(|data| data.socket.set_reuse_address(on))
    }

    /// Sets the send buffers; what was granted to the largest. The connected ones share the bytes, for they share the medium.
    pub fn set_send_buffer(&mut self, bytes: u32) -> io::Result<u32> {
        self.send_buffer_bytes = bytes;
        let connected = self.all.len() as u32 - 1;
        let share = (bytes / connected.max(1)).max(SEND_BUFFER_BYTES_MIN.min(bytes));
        let mut granted = 0;
        for data in &self.all {
            granted = data.socket.set_send_buffer(share)?.max(granted);
        }
        Ok(granted)
    }

    /// Bytes in all the kernel's queues.
    pub fn queued_bytes(&self) -> u32 {
        self.all.iter().map(|data| data.socket.queued_bytes().unwrap_or(0)).sum()
    }

    /// Makes the socket `fd` the one that is read first; false if there is none.
    pub fn prefer(&mut self, fd: RawFd) -> bool {
        let index = self.all.iter().position(|data| data.socket.as_raw_fd() == fd);
        self.hot = index.unwrap_or(self.hot);
        index.is_some()
    }

    pub fn fds(&self) -> Vec<RawFd> {
        self.all.iter().map(|data| data.socket.as_raw_fd()).collect()
    }
}
