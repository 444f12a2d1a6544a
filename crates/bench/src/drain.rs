//! What a protocol leaves in the links' token buckets is taken out by datagrams of the instrument's own.
//!
//! Filler of a protocol ends earlier on one link than on the other, or leaves a link out; what comes in there meanwhile would let
//! a part of the next message pass at once, more of it for one protocol than for another. The datagrams go to a port at which
//! somebody listens and nobody reads, so that nothing comes back.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

use polyrail_sys::udp::UdpSocket;

use crate::buckets::Buckets;
use crate::clock::machine_ns;

/// Port of the discard protocol: where nobody reads.
const SINK_PORT: u16 = 9;
/// The most that one call sends.
const BYTES_MAX: usize = 65_507;
/// What a datagram holds, and the length of its frame: one of more goes as several, which the kernel takes for one until they
/// have passed the bucket, and that takes a tenth of the time.
const FRAME: (u16, f64) = (1_452, 1_494.0);
/// A bucket with no more than comes in in this time is left as it is: it had as much again before the message leaves.
const LEFT_S: f64 = 100e-6;
/// All buckets are to be empty so long from now, at once: what is taken from one alone has come in there again when the next
/// is empty.
const AHEAD_S: f64 = 200e-6;
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
            let socket = UdpSocket::new(from.is_ipv6())?;
            socket.bind(SocketAddr::new(*from, 0))?;
            socket.connect(SocketAddr::new(*to, SINK_PORT))?;
            Ok(socket)
        };
        let sockets = from.iter().zip(to).map(socket).collect::<io::Result<Vec<UdpSocket>>>()?;
        Ok(Self { sockets, bytes: vec![0; BYTES_MAX] })
    }

    /// Takes out what is there, as near as that goes, and waits until nothing waits any more.
    pub(crate) fn empty(&self, buckets: &mut Buckets) -> io::Result<()> {
        for look in 0..LOOKS_MAX {
            buckets.look()?;
            let begun_ns = machine_ns();
            let states = || (0..self.sockets.len()).map(|link| (buckets.state(link), buckets.rate(link)));
            let too_full = states().any(|((tokens, waiting), rate)| waiting == 0 && tokens > LEFT_S * rate);
            if too_full && look < ROUNDS_MAX {
                for (socket, ((tokens, waiting), rate)) in self.sockets.iter().zip(states()) {
                    let beyond = AHEAD_S * rate - f64::from(waiting);
                    if tokens + beyond > 0.0 {
                        let bytes = IoSlice::new(&self.bytes[..payload(tokens + beyond)]);
                        unless_full(socket.send_to(None, &[bytes], Some(FRAME.0), None))?;
                    }
                }
                while machine_ns() < begun_ns + (AHEAD_S * 1e9) as u64 {
                    std::hint::spin_loop();
                }
            } else if states().all(|((_, waiting), _)| waiting == 0) {
                break;
            }
        }
        Ok(())
    }
}

/// A socket that takes no more has left so much before the bucket that there is nothing to be taken out.
fn unless_full<T>(sent: io::Result<T>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// The payload that makes so many bytes on the wire, as near as one call can.
fn payload(wire_bytes: f64) -> usize {
    ((wire_bytes * f64::from(FRAME.0) / FRAME.1) as usize).min(BYTES_MAX)
}

/// Sockets at own addresses at which datagrams vanish.
pub(crate) fn sinks(addresses: &[IpAddr]) -> io::Result<Vec<UdpSocket>> {
    let sink = |address: &IpAddr| {
        let socket = UdpSocket::new(address.is_ipv6())?;
        socket.bind(SocketAddr::new(*address, SINK_PORT))?;
        // They are dropped as they came, without being taken apart before.
        socket.set_gro(true)?;
        // Full after one of them at most: the rest costs nothing.
        socket.set_receive_buffer(1)?;
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
        assert_eq!(payload(29_880.0), 29_040);
        assert_eq!(payload(131_072.0), 65_507);
        assert_eq!(payload(1.0), 0);
    }

    #[test]
    fn a_socket_that_is_full_spoils_nothing() {
        let failed = |kind: io::ErrorKind| unless_full::<()>(Err(kind.into()));
        assert!(failed(io::ErrorKind::WouldBlock).is_ok() && unless_full(Ok(1)).is_ok());
        assert_eq!(
            failed(io::ErrorKind::NetworkUnreachable).unwrap_err().kind(),
            io::ErrorKind::NetworkUnreachable
        );
    }

    /// As many links as are asked for, and the other end of each.
    fn links(count: usize) -> (Drain, Vec<std::net::UdpSocket>) {
        let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let pair = |_| {
            let (socket, receiver) =
                (UdpSocket::new(false).unwrap(), std::net::UdpSocket::bind(local).unwrap());
            receiver.set_nonblocking(true).unwrap();
            socket.bind(local).unwrap();
            socket.connect(receiver.local_addr().unwrap()).unwrap();
            (socket, receiver)
        };
        let (sockets, receivers) = (0..count).map(pair).unzip();
        (Drain { sockets, bytes: vec![0; BYTES_MAX] }, receivers)
    }

    /// Bytes that have come.
    fn received(receiver: &std::net::UdpSocket) -> usize {
        let mut bytes = [0; 2_000];
        std::iter::from_fn(|| receiver.recv(&mut bytes).ok()).sum()
    }

    #[test]
    fn only_what_holds_too_much_is_drained() {
        let (drain, receivers) = links(1);
        // Each look finds that 8 KB more have left, the third that something waits, and the fourth that it does not.
        let (mut passed, mut looks) = (0, 0);
        let counters = move || {
            (passed, looks) = (passed + 8_000, looks + 1);
            Ok(vec![Count { passed, waiting: if looks == 3 { 1_514 } else { 0 } }])
        };
        let shape = Shape { rate: 1e-3, burst: 40_000.0 };
        let mut buckets = Buckets::new(vec![shape], Box::new(counters));
        buckets.are_full().unwrap();
        drain.empty(&mut buckets).unwrap();
        assert_eq!(received(&receivers[0]), payload(32_000.0), "once: what waits shows that it is empty");
    }

    #[test]
    fn all_are_to_be_empty_at_the_same_moment() {
        let (drain, receivers) = links(2);
        // The first is full, and of what comes in at the second a packet waits for its last byte; then both are empty.
        let mut looks = 0;
        let counters = move || {
            looks += 1;
            let count = |passed, waiting| Count { passed, waiting };
            Ok(if looks < 3 { vec![count(0, 0), count(0, 1_514)] } else { vec![count(1 << 40, 0); 2] })
        };
        let shape = Shape { rate: 1e8, burst: 30_000.0 };
        let mut buckets = Buckets::new(vec![shape; 2], Box::new(counters));
        buckets.are_full().unwrap();
        drain.empty(&mut buckets).unwrap();
        let sent: Vec<usize> = receivers.iter().map(received).collect();
        assert_eq!(sent, [payload(30_000.0 + 20_000.0), payload(20_000.0)]);
    }
}
