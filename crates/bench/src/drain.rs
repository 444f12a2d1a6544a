//! What a protocol leaves in the links' token buckets is taken out by datagrams of the instrument's own.
//!
//! Filler of a protocol ends earlier on one link than on the other, or leaves a link out; what comes in there meanwhile would let
//! a part of the next message pass at once, more of it for one protocol than for another. The datagrams go to a port at which
//! somebody listens and nobody reads, so that nothing comes back.

use std::io;
use std::net::{IpAddr, UdpSocket};

use socket2::SockRef;

use crate::buckets::Buckets;

/// Port of the discard protocol: where nobody reads.
const SINK_PORT: u16 = 9;
/// The largest payload of a datagram.
const DATAGRAM_BYTES_MAX: f64 = 65_507.0;
/// What a frame of a fragmented datagram holds, and its length.
const FRAGMENT: (f64, f64) = (1_480.0, 1_514.0);
/// A bucket with no more than comes in in this time is left as it is: it had as much again before the message leaves.
const LEFT_S: f64 = 100e-6;
/// What is sent beyond what is reckoned to be there: what waits then shows that the bucket is empty for certain.
const BEYOND_BYTES: f64 = 2.0 * FRAGMENT.1;
/// Looks until what comes in meanwhile is let be: some links fill faster than this looks, or all do on a busy machine.
const ROUNDS_MAX: u32 = 6;
/// Looks until what waits is let be, which then makes the message late.
const LOOKS_MAX: u32 = 100;

/// Takes what is left out of the buckets of some links.
pub(crate) struct Drain {
    sockets: Vec<UdpSocket>,
    bytes: Vec<u8>,
}

impl Drain {
    /// Of links from own addresses to those of [`sinks`], one by one.
    pub(crate) fn new(from: &[IpAddr], to: &[IpAddr]) -> io::Result<Self> {
        let socket = |(from, to): (&IpAddr, &IpAddr)| {
            let socket = UdpSocket::bind((*from, 0))?;
            socket.connect((*to, SINK_PORT))?;
            Ok(socket)
        };
        let sockets = from.iter().zip(to).map(socket).collect::<io::Result<Vec<UdpSocket>>>()?;
        Ok(Self { sockets, bytes: vec![0; DATAGRAM_BYTES_MAX as usize] })
    }

    /// Takes out what is there, as near as that goes, and waits until nothing waits any more.
    pub(crate) fn empty(&self, buckets: &mut Buckets) -> io::Result<()> {
        for look in 0..LOOKS_MAX {
            buckets.look_at_packets()?;
            let mut empty = true;
            for (link, socket) in self.sockets.iter().enumerate() {
                let (tokens, waiting) = buckets.state(link);
                let left = LEFT_S * buckets.rate(link);
                let too_full = look < ROUNDS_MAX && tokens > left && waiting == 0;
                if too_full {
                    socket.send(&self.bytes[..payload(tokens + BEYOND_BYTES)])?;
                }
                empty &= !too_full && waiting == 0;
            }
            if empty {
                break;
            }
        }
        Ok(())
    }
}

/// The payload of a datagram that makes so many bytes on the wire, if one can.
fn payload(wire_bytes: f64) -> usize {
    (wire_bytes * FRAGMENT.0 / FRAGMENT.1 - 8.0).clamp(0.0, DATAGRAM_BYTES_MAX) as usize
}

/// Sockets at own addresses at which datagrams vanish.
pub(crate) fn sinks(addresses: &[IpAddr]) -> io::Result<Vec<UdpSocket>> {
    let sink = |address: &IpAddr| {
        let socket = UdpSocket::bind((*address, SINK_PORT))?;
        // Full after one datagram at most: the rest costs nothing.
        SockRef::from(&socket).set_recv_buffer_size(1)?;
        Ok(socket)
    };
    addresses.iter().map(sink).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::{Count, Shape};
    use std::net::Ipv4Addr;

    #[test]
    fn a_datagram_takes_what_is_in_a_bucket_and_no_more() {
        // 20 frames.
        assert_eq!(payload(30_280.0), 29_592);
        assert_eq!(payload(131_072.0), 65_507);
        assert_eq!(payload(2.0), 0);
    }

    #[test]
    fn only_what_holds_too_much_is_drained() {
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let receiver = UdpSocket::bind((local[0], 0)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let socket = UdpSocket::bind((local[0], 0)).unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        let drain = Drain { sockets: vec![socket], bytes: vec![0; 65_507] };
        // Each look finds that 8 KB more have left, and the third that something waits.
        let (mut passed, mut looks) = (0, 0);
        let counters = move || {
            (passed, looks) = (passed + 8_000, looks + 1);
            Ok(vec![Count { passed, waiting: if looks == 3 { 1_514 } else { 0 } }])
        };
        let shape = Shape { rate: 1e-3, burst: 40_000.0 };
        let mut buckets = Buckets::new(vec![shape], Box::new(counters));
        buckets.are_full().unwrap();
        drain.empty(&mut buckets).unwrap();
        let mut bytes = vec![0; 70_000];
        let first = receiver.recv(&mut bytes).unwrap();
        assert_eq!(first, payload(32_000.0 + BEYOND_BYTES));
        assert!(receiver.recv(&mut bytes).is_err(), "what waits shows that it is empty");
    }
}
