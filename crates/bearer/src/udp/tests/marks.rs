//! The DSCP of what leaves, as a socket sees it that is no bearer.

use super::*;
use crate::{FaultBearer, Faults};

/// A bearer, and a socket that hears what it sends.
struct Ends {
    bearer: UdpBearer,
    ear: UdpSocket,
    to: Address,
}

impl Ends {
    /// Both on a loopback address, the bearer with `dscp` for what says none.
    fn new(address: &str, gso: bool, dscp: u8) -> Ends {
        let address: IpAddr = address.parse().unwrap();
        let ear = UdpSocket::new(address.is_ipv6()).unwrap();
        ear.set_receive_traffic_class().unwrap();
        ear.bind((address, 0).into()).unwrap();
        let to = Address::Ip(ear.local_address().unwrap());
        let config = UdpConfig { beacon_port: 0, gso, dscp, ..UdpConfig::new("lo", address) };
        Ends { bearer: UdpBearer::open(config).unwrap(), ear, to }
    }

    /// Sends a train; the DSCPs of its datagrams, each of which says with its ECN mark that it understands such marks.
    fn dscps(&mut self, bytes: &[u8], segment_bytes: usize, lend: bool, dscp: u8) -> Vec<u8> {
        let (to, slices) = (self.to, [IoSlice::new(bytes)]);
        let train =
            Transmit { to, segment_bytes, bytes: bytes.len(), slices: &slices, express: true, lend, dscp };
        let count = train.segments();
        assert!(matches!(self.bearer.send(&train), SendOutcome::Sent));
        self.heard(count)
    }

    /// The DSCPs of the next datagrams.
    fn heard(&self, count: usize) -> Vec<u8> {
        let (mut queue, mut buffer, mut out) = (RecvQueue::new(1), vec![0; 65_536], Vec::new());
        let until = polyrail_sys::clock::monotonic_ns() + 20_000_000_000;
        while out.len() < count {
            assert!(polyrail_sys::clock::monotonic_ns() < until, "waited in vain");
            match self.ear.recv_many(&mut queue, std::iter::once(&mut buffer[..])) {
                Ok(_) => {
                    let received = queue.get(0).unwrap();
                    assert_eq!(received.ecn, 2);
                    out.push(received.dscp);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        out
    }

    /// The socket by which trains to the other end go.
    fn data(&self) -> &sockets::Data {
        let to = self.bearer.target(&self.to).unwrap();
        self.bearer.sockets.get(self.bearer.sockets.reaching(to))
    }
}

const HOMES: [&str; 2] = ["127.0.0.1", "::1"];

#[test]
fn every_datagram_of_a_train_has_its_dscp_whichever_way_it_goes() {
    for (home, gso) in HOMES.into_iter().flat_map(|home| [(home, true), (home, false)]) {
        let mut ends = Ends::new(home, gso, 0);
        for dscp in [46, 0, 8, 63] {
            assert_eq!(ends.dscps(&[1; 100], 100, false, dscp), [dscp], "{home}");
            assert_eq!(ends.dscps(&[2; 5_500], 1_000, false, dscp), [dscp; 6], "{home}, offload: {gso}");
        }
    }
}

#[test]
fn unless_it_is_set_all_have_dscp_0_and_nothing_is_said_to_the_system() {
    for home in HOMES {
        let mut ends = Ends::new(home, true, UdpConfig::new("lo", home.parse().unwrap()).dscp);
        assert_eq!((ends.dscps(&[1; 10], 10, false, 0), ends.data().mark(0)), (vec![0], None));
    }
}

#[test]
fn what_all_have_is_said_once() {
    for home in HOMES {
        let mut ends = Ends::new(home, true, 46);
        assert_eq!((ends.dscps(&[1; 30], 10, false, 46), ends.data().mark(46)), (vec![46; 3], None));
        assert_eq!(ends.dscps(&[1; 10], 10, false, 0), [0], "the usual is said where it is not");
    }
}

#[test]
fn a_connected_socket_marks_as_the_common_one_and_lent_trains_too() {
    for home in HOMES {
        let mut ends = Ends::new(home, true, 48);
        for _ in 0..300 {
            assert_eq!(ends.dscps(&[1; 10], 10, false, 48), [48]);
        }
        assert!(ends.data().peer.is_some());
        assert_eq!((ends.dscps(&[1; 10], 10, false, 0), ends.data().mark(48)), (vec![0], None));
        for dscp in [8, 8, 48, 10] {
            assert_eq!(ends.dscps(&[3; 40_000], 10_000, true, dscp), [dscp; 4], "{home}");
            assert_eq!(ends.dscps(&[1; 10], 10, false, 48), [48], "what was lent changes no others: {home}");
            assert_eq!(ends.dscps(&[1; 10], 10, false, dscp), [dscp], "{home}");
        }
        let lends = ends.bearer.capabilities().lends_pages;
        assert_eq!(ends.data().mark(10), if lends { None } else { Some(10 << 2 | 2) });
    }
}

#[test]
fn the_end_of_a_train_has_the_dscp_of_its_beginning() {
    for home in HOMES {
        let mut ends = Ends::new(home, true, 0);
        let Some(to) = ends.bearer.target(&ends.to) else { unreachable!() };
        ends.bearer.held = Some(Held::for_test(to, 26, 2, b"aabbc"));
        assert!(ends.bearer.flush_held());
        assert_eq!(ends.heard(3), [26; 3], "{home}");
    }
}

#[test]
fn what_is_sent_again_or_late_by_a_faulty_medium_keeps_its_dscp() {
    let Ends { bearer, ear, to } = Ends::new(HOMES[0], true, 0);
    let twice = Faults { duplicate: 1.0, ..Faults::default() };
    let mut faulty = FaultBearer::new(bearer, 1, twice);
    for dscp in [46, 8] {
        let (slices, segment_bytes) = ([IoSlice::new(&[1; 20])], 10);
        let train =
            Transmit { to, segment_bytes, bytes: 20, slices: &slices, express: true, lend: false, dscp };
        assert!(matches!(faulty.send(&train), SendOutcome::Sent));
    }
    // The second copies of the first train leave before the second one does.
    let ends = Ends { bearer: UdpBearer::open(config()).unwrap(), ear, to };
    assert_eq!(ends.heard(6), [46, 46, 46, 46, 8, 8]);
}
