//! Express frames: single packets to neighbours as Ethernet frames of their own, past UDP and IP.
//!
//! A small packet costs what the kernel does for it, and most of that is IP's and the socket's; an Ethernet frame that
//! arrives in a ring of shared memory takes half as long there and back. It needs CAP_NET_RAW and a neighbour
//! on the same Ethernet who does likewise; where either is missing, and for trains, there are the data sockets.
//!
//! Rules that the rest relies on:
//! - A link stays one link: frames belong to the same address as the datagrams, and are trusted only as long as both are
//!   heard. When in doubt a packet goes as a datagram, and so does whatever is to prove that the link works.
//! - No frame overtakes a train, or the packets of that would be taken for lost: a frame that follows datagrams says so,
//!   and they are read before it.

mod frame;
mod peer;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};

use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::packet::PacketSocket;

use crate::{Address, Network, RxBatch, Transmit};
use frame::{Content, Frame, HEADERS_BYTES, PACKET_BYTES_MAX};
use peer::{Peer, Way};

/// Neighbours that are known at a time.
const PEERS_MAX: usize = 16;
/// A neighbour gives way to another when so many packets went to others since its last.
const STALE_PACKETS: u32 = 1_024;
/// Frames taken off the ring by one look, so that a flood of questions or rubbish cannot hold the turn.
const FRAMES_PER_LOOK: usize = 256;
/// Thorough looks in a row that found nothing, after which a pending error is taken off the socket.
const IDLE_LOOKS: u32 = 64;

/// A frame waits for so many full reads of the datagrams before it.
const WAITS_MAX: u32 = 4;

/// What a look at the ring found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Packets.
    pub packets: usize,
    /// Whether the next one waits for the datagrams before it to be read.
    pub behind: bool,
}

/// The packet socket of a bearer, and which neighbours are reached by it.
pub(super) struct Express {
    socket: PacketSocket,
    local: Network,
    peers: Vec<Peer>,
    /// Whether it was the last to give something.
    pub hot: bool,
    waits: u32,
    idle_looks: u32,
    packets: u32,
    /// Packets sent and received as frames.
    pub carried: (u64, u64),
    out: Vec<u8>,
}

impl Express {
    /// For the bearer that is reached at `local` by the interface with this index; `None` where it cannot be.
    pub fn open(interface_index: u32, local: Network) -> Option<Express> {
        let Address::Ip(ip) = local.address else { return None };
        let socket =
            PacketSocket::open(interface_index, frame::ETHER_TYPE, frame::TO_PORT_AT, ip.port()).ok()?;
        let (peers, out) = (Vec::new(), Vec::with_capacity(HEADERS_BYTES + PACKET_BYTES_MAX));
        Some(Express {
            socket,
            local,
            peers,
            hot: false,
            waits: 0,
            idle_looks: 0,
            packets: 0,
            carried: (0, 0),
            out,
        })
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    // ----- out -----------------------------------------------------------------------------------------------

    /// Sends a train of one packet; false if it should go as a datagram.
    pub fn send(&mut self, train: &Transmit<'_>) -> bool {
        if !train.express || train.bytes > PACKET_BYTES_MAX {
            self.after_datagrams(&train.to);
            return false;
        }
        self.packets = self.packets.wrapping_add(1);
        let Some(index) = self.peer_for(&train.to) else { return false };
        let peer = &mut self.peers[index];
        peer.used = self.packets;
        match peer.choose(monotonic_ns) {
            Way::Frame => {
                let sent = self.send_content(index, Content::Packet, train.slices);
                if sent {
                    self.carried.0 += 1;
                } else {
                    self.peers[index].on_failed();
                }
                sent
            }
            Way::Datagram => false,
            Way::DatagramAndQuestion => {
                self.send_content(index, Content::Question, &[]);
                false
            }
        }
    }

    /// Notes that datagrams go to `to`, which are to be read before the next frame.
    pub fn after_datagrams(&mut self, to: &Address) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == *to) {
            peer.on_datagrams_sent();
        }
    }

    fn peer_for(&mut self, to: &Address) -> Option<usize> {
        if let Some(index) = self.peers.iter().position(|peer| peer.address == *to) {
            return Some(index);
        }
        if !self.local.reaches(to) {
            return None;
        }
        if self.peers.len() < PEERS_MAX {
            self.peers.push(Peer::new(*to, self.packets));
            return Some(self.peers.len() - 1);
        }
        let age = |peer: &Peer| self.packets.wrapping_sub(peer.used);
        let oldest = (0..PEERS_MAX).max_by_key(|index| age(&self.peers[*index]))?;
        if age(&self.peers[oldest]) < STALE_PACKETS {
            return None;
        }
        self.peers[oldest] = Peer::new(*to, self.packets);
        Some(oldest)
    }

    fn send_content(&mut self, index: usize, content: Content, packet: &[IoSlice<'_>]) -> bool {
        let peer = &mut self.peers[index];
        let frame = Frame {
            content,
            from: self.local.address,
            to: peer.address,
            hardware_from: self.socket.hardware_address(),
            hardware_to: peer.hardware_address(content),
            behind: peer.take_behind(),
            number: peer.number(content),
            heard: peer.heard(),
        };
        if !frame.emit(packet, &mut self.out) {
            return false;
        }
        self.socket.send(&[IoSlice::new(&self.out)]).is_ok()
    }

    // ----- in ------------------------------------------------------------------------------------------------

    /// Appends the packets that have come to `batch`, but none that has to wait for datagrams sent before it, unless
    /// these `were_read`.
    pub fn recv(&mut self, batch: &mut RxBatch, were_read: bool) -> Found {
        let mut found = Found::default();
        for _ in 0..FRAMES_PER_LOOK {
            if batch.spare() == 0 {
                break;
            }
            let Some(bytes) = self.socket.peek() else { break };
            let Some((frame, packet)) = Frame::parse(bytes, &self.local.address) else {
                self.socket.pass();
                continue;
            };
            if frame.behind && !were_read {
                found.behind = true;
                break;
            }
            let content = frame.content;
            let from = self.peers.iter_mut().position(|peer| peer.is_from(&frame));
            if let (Content::Packet, Some(index)) = (content, from) {
                self.peers[index].on_packet(&frame);
                batch.push(self.peers[index].address, packet, 0, false);
                found.packets += 1;
            }
            let hardware = frame.hardware_from;
            let stranger = frame.from;
            self.socket.pass();
            match content {
                Content::Packet => {}
                Content::Question => self.on_question(stranger, hardware),
                Content::Answer => {
                    if let Some(index) = from {
                        self.peers[index].on_answer(hardware);
                    }
                }
            }
        }
        self.carried.1 += found.packets as u64;
        found
    }

    /// Whether the next frame has waited long enough for the datagrams before it, which may never end.
    pub fn has_waited(&mut self) -> bool {
        self.waits = (self.waits + 1) % WAITS_MAX;
        self.waits == 0
    }

    /// Notes what a thorough look found: the descriptor counts as ready as long as an error is pending, such as that the
    /// interface was down.
    pub fn note_idle(&mut self, idle: bool) {
        self.idle_looks = if idle { self.idle_looks + 1 } else { 0 };
        if self.idle_looks == IDLE_LOOKS {
            self.socket.clear_error();
            self.idle_looks = 0;
        }
    }

    fn on_question(&mut self, from: Address, hardware: [u8; 6]) {
        let Some(index) = self.peer_for(&from) else { return };
        if self.peers[index].on_question(hardware) {
            self.send_content(index, Content::Answer, &[]);
        }
    }

    /// A datagram has come from `from`.
    pub fn on_datagram(&mut self, from: &Address) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == *from) {
            peer.on_datagram();
        }
    }
}
