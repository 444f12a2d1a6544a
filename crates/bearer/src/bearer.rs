//! The one trait all bearers have in common.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;

use crate::{Address, Capabilities, Network, RxBatch};

/// Most datagrams in one train; every bearer takes so many, with or without offload.
pub const TRAIN_SEGMENTS_MAX: usize = 64;

/// Most bytes in one train, over all its datagrams: what one UDP/IPv4 super-packet carries.
pub const TRAIN_BYTES_MAX: usize = 65_507;

/// One train: datagrams for one destination, as a gather list.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination.
    pub to: Address,
    /// Size in bytes of every datagram but the last, which may be shorter. Not 0.
    pub segment_bytes: usize,
    /// Sum of the lengths of `slices`.
    pub bytes: usize,
    /// The bytes of the train, in at most 1,024 slices; the cuts between slices have nothing to do with those
    /// between datagrams.
    pub slices: &'a [IoSlice<'a>],
    /// Whether a single datagram may take a quicker way, if the medium has one beside that of all others. Not if it is to
    /// prove that trains get there.
    pub express: bool,
    /// Whether the bytes stay as they are, in the single slice that they then lie in, until all datagrams have been
    /// received: the medium may then take references to the pages ([`Capabilities::lends_pages`]).
    pub lend: bool,
    /// The DSCP (0 to 63) of its datagrams, for media that have one: how routers and switches are to treat them. What has
    /// one other than 0 takes no quicker way.
    pub dscp: u8,
}

impl Transmit<'_> {
    /// How many datagrams the train has (an empty datagram is one too).
    pub fn segments(&self) -> usize {
        self.bytes.div_ceil(self.segment_bytes.max(1)).max(1)
    }
}

/// What became of a train.
#[derive(Debug)]
pub enum SendOutcome {
    /// Handed over.
    Sent,
    /// No room now; nothing was sent. [`Descriptors::room`] becomes writable when there is room again.
    WouldBlock,
    /// Lost on this machine, now, and known to be (the queue of the interface was full: ENOBUFS).
    Dropped,
    /// A datagram is larger than the interface or the known path takes (they are never fragmented), or the train
    /// breaks [`TRAIN_SEGMENTS_MAX`] or [`TRAIN_BYTES_MAX`]. Nothing was sent.
    TooLarge,
    /// The interface or the route is gone, or something worse: ENETDOWN, ENETUNREACH, EHOSTUNREACH, ENODEV...
    Failed(io::Error),
}

/// Which part of the way said that a destination cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoticeCode {
    /// The machine is there; nobody listens at that port.
    Port,
    /// The machine does not answer, or a router says so.
    Host,
    /// There is no way to that network.
    Net,
    /// Any other refusal, such as administrative prohibition.
    Other,
}

/// Something the medium said beside the data. Notices are hints: anybody can forge an ICMP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Datagrams to `to` do not get there.
    Unreachable {
        /// The destination of the datagram that failed.
        to: Address,
        /// Who said so.
        code: NoticeCode,
    },
    /// The path to `to` takes datagrams of at most `mtu_bytes` payload.
    MtuHint {
        /// The destination of the datagram that was too large.
        to: Address,
        /// Largest payload in bytes.
        mtu_bytes: u16,
    },
    /// The node at `to`, on this machine, has ended: nothing will come from there any more. This is no hint: the system says so.
    Gone {
        /// Where it was.
        to: Address,
    },
    /// Segmentation offload failed and the datagrams go one by one from now on; retried by itself.
    GsoOff,
}

/// What to wait on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptors {
    /// Each becomes readable when something has arrived.
    pub data: Vec<RawFd>,
    /// The one of them that becomes writable when there is room for what was refused.
    pub room: Option<RawFd>,
    /// Becomes readable when a beacon has arrived.
    pub beacon: Option<RawFd>,
}

/// A local attachment to a medium. No call blocks. Used by one thread at a time.
pub trait Bearer: Send {
    /// For people: `udp/eth0`.
    fn name(&self) -> &str;

    /// The interface to watch for carrier and configuration, if there is one.
    fn device(&self) -> Option<&str>;

    /// The number of that interface when the bearer was opened: an interface that takes its name later has another.
    fn device_index(&self) -> Option<u32> {
        None
    }

    /// Where this bearer is reached, and which addresses are its neighbours.
    fn local(&self) -> Network;

    /// What the medium can do.
    fn capabilities(&self) -> &Capabilities;

    /// Sends one train.
    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome;

    /// Sends one datagram to all neighbours on the medium that listen for beacons.
    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome;

    /// Appends groups that have arrived to `batch` and returns how many; 0 means that nothing is there or that
    /// the batch is full. A bearer with several sources looks only at the one that gave something last, unless
    /// `thorough`. An error is one of the socket itself, never one that a peer or a router can cause.
    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize>;

    /// The descriptor `fd` of [`Bearer::fds`] is readable: whether the next `recv` that is not thorough reads from it first.
    fn prefer(&mut self, _fd: RawFd) -> bool {
        false
    }

    /// Like `recv`, for what others sent by `broadcast`. A bearer may hear its own beacons.
    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize>;

    /// Moves the notices that came since the last call to `out`; cheap when there are none.
    fn notices(&mut self, out: &mut Vec<Notice>);

    /// Whether `send` would find room now.
    fn writable(&mut self) -> bool;

    /// Bytes accepted but not yet gone from this machine's queue, as the kernel counts them; 0 where unknown.
    fn backlog_bytes(&mut self) -> u32;

    /// Sets how much may be queued for sending, in the unit of `Capabilities::send_buffer_bytes`; the value
    /// really granted is found there afterwards.
    fn set_send_buffer(&mut self, bytes: u32);

    /// Takes notice that the medium takes datagrams of at most so many bytes from now on; found in
    /// `Capabilities::mtu_bytes` afterwards. Media whose size never changes take none.
    fn set_mtu(&mut self, _mtu_bytes: u16) {}

    /// What to wait on; without data where there is nothing to wait on.
    fn fds(&self) -> Descriptors;

    /// Whether anybody sends to it by a way that its descriptors tell of only while somebody sleeps on them.
    fn has_senders(&self) -> bool {
        false
    }

    /// Somebody is about to sleep on the descriptors, and who sends is to see to it that they tell from now on: whether
    /// something has come already. `names`: whether that one will say which of them ended its sleep ([`Bearer::prefer`]).
    /// Nothing to do where the kernel tells anyway.
    fn doze(&mut self, _names: bool) -> bool {
        false
    }

    /// Nobody sleeps any more.
    fn rouse(&mut self) {}

    /// Changes whenever `fds` has other descriptors than before.
    fn fds_version(&self) -> u32 {
        0
    }

    /// Packets that were sent and received as express frames (docs/protocol.md §2.5); `None` where there are none.
    fn express_frames(&self) -> Option<(u64, u64)> {
        None
    }

    /// Where [`Bearer::broadcast`] sends to, if that is an address.
    fn beacon_group(&self) -> Option<Address> {
        None
    }
}

impl<B: Bearer + ?Sized> Bearer for Box<B> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn device(&self) -> Option<&str> {
        (**self).device()
    }
    fn device_index(&self) -> Option<u32> {
        (**self).device_index()
    }
    fn local(&self) -> Network {
        (**self).local()
    }
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }
    fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        (**self).send(transmit)
    }
    fn broadcast(&mut self, bytes: &[u8]) -> SendOutcome {
        (**self).broadcast(bytes)
    }
    fn recv(&mut self, batch: &mut RxBatch, thorough: bool) -> io::Result<usize> {
        (**self).recv(batch, thorough)
    }
    fn prefer(&mut self, fd: RawFd) -> bool {
        (**self).prefer(fd)
    }
    fn recv_beacons(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        (**self).recv_beacons(batch)
    }
    fn notices(&mut self, out: &mut Vec<Notice>) {
        (**self).notices(out);
    }
    fn writable(&mut self) -> bool {
        (**self).writable()
    }
    fn backlog_bytes(&mut self) -> u32 {
        (**self).backlog_bytes()
    }
    fn set_send_buffer(&mut self, bytes: u32) {
        (**self).set_send_buffer(bytes);
    }
    fn set_mtu(&mut self, mtu_bytes: u16) {
        (**self).set_mtu(mtu_bytes);
    }
    fn fds(&self) -> Descriptors {
        (**self).fds()
    }
    fn has_senders(&self) -> bool {
        (**self).has_senders()
    }
    fn doze(&mut self, names: bool) -> bool {
        (**self).doze(names)
    }
    fn rouse(&mut self) {
        (**self).rouse();
    }
    fn fds_version(&self) -> u32 {
        (**self).fds_version()
    }
    fn express_frames(&self) -> Option<(u64, u64)> {
        (**self).express_frames()
    }
    fn beacon_group(&self) -> Option<Address> {
        (**self).beacon_group()
    }
}
