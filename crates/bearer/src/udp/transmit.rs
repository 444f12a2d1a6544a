//! Sending a train: whole if it can be, one by one if it must, and what is left of it later.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::errno;
use polyrail_sys::udp::SLICES_MAX;

use super::UdpBearer;
use super::cut::{Cut, join};
use crate::bearer::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};
use crate::{Notice, SendOutcome, Transmit};

/// The end of a train whose beginning the kernel has taken.
pub(super) struct Held {
    to: SocketAddr,
    dscp: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
    sent: usize,
}

impl Held {
    #[cfg(test)]
    pub fn for_test(to: SocketAddr, dscp: u8, segment_bytes: usize, bytes: &[u8]) -> Held {
        Held { to, dscp, segment_bytes, bytes: bytes.to_vec(), sent: 0 }
    }

    pub fn bytes_left(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

/// What a send call's result means for its train.
pub(super) fn outcome(result: io::Result<usize>) -> SendOutcome {
    let Err(error) = result else { return SendOutcome::Sent };
    if error.kind() == io::ErrorKind::WouldBlock {
        return SendOutcome::WouldBlock;
    }
    match error.raw_os_error() {
        // A local packet filter says EPERM for what it drops. A refused connection is always about an earlier
        // datagram; it is left over here only when such messages come faster than they can be read.
        Some(errno::ENOBUFS | errno::ENOMEM | errno::EPERM | errno::ECONNREFUSED) => SendOutcome::Dropped,
        Some(errno::EMSGSIZE) => SendOutcome::TooLarge,
        _ => SendOutcome::Failed(error),
    }
}

/// Whether an offloaded train may have failed because of the offload. The same numbers also mean "too large",
/// which the attempt to send one by one then tells.
fn blames_offload(error: &io::Error) -> bool {
    let suspects = [errno::EIO, errno::EINVAL, errno::EMSGSIZE, errno::ENOPROTOOPT, errno::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|number| suspects.contains(&number))
}

impl UdpBearer {
    pub(super) fn transmit(&mut self, train: &Transmit<'_>) -> SendOutcome {
        debug_assert_eq!(train.bytes, train.slices.iter().map(|slice| slice.len()).sum::<usize>());
        let (segments, largest) = (train.segments(), train.segment_bytes.min(train.bytes));
        let fits = largest <= usize::from(self.capabilities.mtu_bytes);
        if !fits
            || segments > TRAIN_SEGMENTS_MAX
            || train.bytes > TRAIN_BYTES_MAX
            || train.slices.len() > SLICES_MAX
        {
            return SendOutcome::TooLarge;
        }
        let Some(to) = self.target(&train.to) else {
            return SendOutcome::Failed(io::ErrorKind::InvalidInput.into());
        };
        if self.held.is_some() && !self.flush_held() {
            return SendOutcome::WouldBlock;
        }
        if let Some(express) = &mut self.express {
            if segments > 1 {
                express.after_datagrams(&train.to);
            } else if express.send(train) {
                return SendOutcome::Sent;
            }
        }
        let index = self.sockets.toward(to);
        let sent = self.send_whole(index, to, train, segments, largest);
        if matches!(sent, SendOutcome::WouldBlock) {
            self.sockets.full = index;
        }
        sent
    }

    /// Sends a train by the socket `index`: in one call if it can be.
    fn send_whole(
        &mut self,
        index: usize,
        to: SocketAddr,
        train: &Transmit<'_>,
        segments: usize,
        largest: usize,
    ) -> SendOutcome {
        let data = self.sockets.get_mut(index);
        if segments > 1
            && self.offload.usable(monotonic_ns)
            && let Some(sent) = self.lending.send(train, data, largest as u16, &mut self.trouble)
        {
            self.on_offloaded(sent.is_ok());
            return outcome(sent);
        }
        data.cut(0);
        let (socket, name, mark) = (&data.socket, data.name(to), data.mark(train.dscp));
        if segments == 1 {
            let sent = self.trouble.retry(socket, |socket| socket.send_to(name, train.slices, None, mark));
            return outcome(sent);
        }
        if !self.offload.usable(monotonic_ns) {
            return self.send_one_by_one(index, to, train);
        }
        let stride = Some(largest as u16);
        match self.trouble.retry(socket, |socket| socket.send_to(name, train.slices, stride, mark)) {
            Err(error) if blames_offload(&error) => {
                let result = self.send_one_by_one(index, to, train);
                if matches!(result, SendOutcome::Sent) {
                    self.on_offload_failed();
                }
                result
            }
            result => {
                self.on_offloaded(result.is_ok());
                if result.is_ok() {
                    self.lending.on_copied();
                    self.capabilities.lends_pages = self.lending.is_possible();
                }
                outcome(result)
            }
        }
    }

    fn on_offloaded(&mut self, sent: bool) {
        if sent && self.offload.succeed() {
            self.capabilities.segments_max = TRAIN_SEGMENTS_MAX as u8;
        }
    }

    fn on_offload_failed(&mut self) {
        if self.offload.fail(monotonic_ns()) {
            self.capabilities.segments_max = 1;
            self.trouble.push(Notice::GsoOff);
        }
    }

    /// Sends without offload. All or nothing as far as the caller can tell: once the kernel has taken the
    /// beginning, the end is kept until there is room.
    fn send_one_by_one(&mut self, index: usize, to: SocketAddr, train: &Transmit<'_>) -> SendOutcome {
        let data = self.sockets.get(index);
        let (socket, name, mark) = (&data.socket, data.name(to), data.mark(train.dscp));
        let cut = Cut::new(train.slices, train.segment_bytes);
        let segments = cut.segments();
        let mut sent = 0;
        while sent < segments.len() {
            match self.trouble.retry(socket, |socket| socket.send_segments(name, &segments[sent..], mark)) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => {
                    let bytes = join(&segments[sent..]);
                    let Transmit { dscp, segment_bytes, .. } = *train;
                    self.held = Some(Held { to, dscp, segment_bytes, bytes, sent: 0 });
                    return SendOutcome::Sent;
                }
                Err(error) => return outcome(Err(error)),
            }
        }
        SendOutcome::Sent
    }

    /// Sends what is left of an earlier train; whether nothing is left. An error other than "no room" ends it as
    /// a loss on the wire would.
    pub(super) fn flush_held(&mut self) -> bool {
        let Some(held) = &mut self.held else { return true };
        let index = self.sockets.reaching(held.to);
        let data = self.sockets.get_mut(index);
        data.cut(0);
        let (socket, name, mark) = (&data.socket, data.name(held.to), data.mark(held.dscp));
        while held.sent < held.bytes.len() {
            let slices = [IoSlice::new(&held.bytes[held.sent..])];
            let cut = Cut::new(&slices, held.segment_bytes);
            let segments = cut.segments();
            match self.trouble.retry(socket, |socket| socket.send_segments(name, &segments, mark)) {
                Ok(count) => {
                    let bytes = segments[..count].iter().flat_map(|one| one.iter()).map(|slice| slice.len());
                    held.sent += bytes.sum::<usize>();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.sockets.full = index;
                    return false;
                }
                Err(_) => break,
            }
        }
        self.held = None;
        true
    }
}
