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
mod peers;

use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};

use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::packet::PacketSocket;

use crate::{Address, Network, RxBatch, RxGroup, Transmit};
use frame::{Content, Frame, HEADERS_BYTES, PACKET_BYTES_MAX};
use peer::{Peer, Way};
use peers::Peers;

/// Frames taken off the ring by one look, so that a flood of questions or rubbish cannot hold the turn. Fewer than the ring
/// has places, as what it holds is already a flood.
const FRAMES_PER_LOOK: usize = 64;
/// Thorough looks in a row that found nothing, after which a pending error is taken off the socket.
const IDLE_LOOKS: u32 = 64;
/// A frame waits while so many groups of datagrams are read before it, if these do not come to their end.
const WAITS_MAX: usize = 32;

/// What a look at the ring found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Packets.
    pub packets: usize,
    /// Whether the next one waits for the datagrams before it to be read.
    pub behind: bool,
}

/// The next frame, if it waits for the datagrams before it to be read: it is parsed once only.
#[derive(Clone, Copy)]
struct Waiting {
    frame: Frame,
    packet_bytes: usize,
    /// Groups of datagrams read since, which did not come to their end.
    groups: usize,
}

/// The packet socket of a bearer, and which neighbours are reached by it.
pub(super) struct Express {
    socket: PacketSocket,
    local: Address,
    peers: Peers,
    /// Whether it was the last to give something.
    pub hot: bool,
    waiting: Option<Waiting>,
    idle_looks: u32,
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
        Some(Express {
            socket,
            local: local.address,
            peers: Peers::new(local),
            hot: false,
            waiting: None,
            idle_looks: 0,
            carried: (0, 0),
            out: Vec::with_capacity(HEADERS_BYTES + PACKET_BYTES_MAX),
        })
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    // ----- out -----------------------------------------------------------------------------------------------

    /// Sends a train of one packet; false if it should go as a datagram. A frame has no place for a DSCP.
    pub fn send(&mut self, train: &Transmit<'_>) -> bool {
        if !train.express || train.bytes > PACKET_BYTES_MAX || train.dscp != 0 {
            self.after_datagrams(&train.to);
            return false;
        }
        let Some(peer) = self.peers.for_packet(&train.to) else { return false };
        let mut way_out = WayOut { socket: &self.socket, local: self.local, out: &mut self.out };
        match peer.choose(monotonic_ns) {
            Way::Frame => {
                let sent = way_out.send(peer, Content::Packet, train.slices);
                if sent {
                    self.carried.0 += 1;
                } else {
                    peer.on_failed();
                }
                sent
            }
            Way::Datagram => false,
            Way::DatagramAndQuestion => {
                way_out.send(peer, Content::Question, &[]);
                // The datagram follows the question.
                peer.on_datagrams_sent();
                false
            }
        }
    }

    /// Notes that datagrams go to `to`, which are to be read before the next frame.
    pub fn after_datagrams(&mut self, to: &Address) {
        if let Some(peer) = self.peers.at(to) {
            peer.on_datagrams_sent();
        }
    }

    // ----- in ------------------------------------------------------------------------------------------------

    /// Appends the packets that have come to `batch`, but none that has to wait for datagrams sent before it, unless it was
    /// found to wait by an earlier look and these `were_read` since: what comes now may be behind datagrams that came
    /// after they were looked for.
    pub fn recv(&mut self, batch: &mut RxBatch, were_read: bool) -> Found {
        let mut found = Found::default();
        for _ in 0..FRAMES_PER_LOOK {
            if batch.spare() == 0 {
                break;
            }
            let Some(bytes) = self.socket.peek() else { break };
            let waited = self.waiting.take();
            let parsed = match &waited {
                Some(waited) => Some((waited.frame, &bytes[HEADERS_BYTES..][..waited.packet_bytes])),
                None => Frame::parse(bytes, &self.local),
            };
            let Some((frame, packet)) = parsed else {
                self.socket.pass();
                continue;
            };
            if frame.behind && !waited.is_some_and(|waited| were_read || waited.groups >= WAITS_MAX) {
                self.waiting = waited.or(Some(Waiting { frame, packet_bytes: packet.len(), groups: 0 }));
                found.behind = true;
                break;
            }
            if frame.content == Content::Packet
                && let Some(peer) = self.peers.sender(&frame)
            {
                peer.on_packet(&frame);
                batch.push(peer.address, packet, 0, false);
                found.packets += 1;
            }
            self.socket.pass();
            self.on_frame(&frame);
        }
        self.carried.1 += found.packets as u64;
        found
    }

    /// Whether anything is in the ring.
    pub fn has_frame(&mut self) -> bool {
        self.socket.peek().is_some()
    }

    /// Notes that so many groups of datagrams were read, but not to their end, which may never come: whether the next frame, if
    /// it waits for that, has waited long enough.
    pub fn has_waited(&mut self, groups: usize) -> bool {
        self.waiting.as_mut().is_some_and(|waiting| {
            waiting.groups += groups;
            waiting.groups >= WAITS_MAX
        })
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

    /// What questions and answers are for.
    fn on_frame(&mut self, frame: &Frame) {
        match frame.content {
            Content::Packet => {}
            Content::Question => {
                let Some(peer) = self.peers.meet(&frame.from) else { return };
                if peer.on_question(frame.hardware_from) {
                    let mut way_out = WayOut { socket: &self.socket, local: self.local, out: &mut self.out };
                    way_out.send(peer, Content::Answer, &[]);
                }
            }
            Content::Answer => {
                if let Some(peer) = self.peers.sender(frame) {
                    peer.on_answer(frame.hardware_from);
                }
            }
        }
    }

    /// Datagrams have come. More are likely to follow, unless it is one alone amid frames, which shows that datagrams still
    /// arrive.
    pub fn on_datagrams<'a>(&mut self, groups: impl Iterator<Item = RxGroup<'a>>) {
        let mut alone = 0;
        for group in groups {
            let amid_frames = self.peers.at(&group.from).is_some_and(Peer::on_datagram);
            alone += if amid_frames && group.stride >= group.bytes.len() { 1 } else { 2 };
        }
        self.hot &= alone <= 1;
    }
}

/// What sending a frame needs beside the neighbour.
struct WayOut<'a> {
    socket: &'a PacketSocket,
    local: Address,
    out: &'a mut Vec<u8>,
}

impl WayOut<'_> {
    /// Whether the machine took the frame.
    fn send(&mut self, peer: &mut Peer, content: Content, packet: &[IoSlice<'_>]) -> bool {
        let frame = Frame {
            content,
            from: self.local,
            to: peer.address,
            hardware_from: self.socket.hardware_address(),
            hardware_to: peer.hardware_address(content),
            behind: peer.is_behind(),
            number: peer.number(content),
            heard: peer.heard(),
        };
        let sent = frame.emit(packet, self.out) && self.socket.send(&[IoSlice::new(self.out)]).is_ok();
        if sent {
            peer.on_frame_sent();
        }
        sent
    }
}

#[cfg(test)]
mod tests;
