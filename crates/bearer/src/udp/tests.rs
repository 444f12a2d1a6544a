//! What only this bearer does, on loopback; the rest is in the conformance suite.

mod marks;

use super::*;
use std::io::IoSlice;
use std::net::Ipv4Addr;

fn config() -> UdpConfig {
    UdpConfig { beacon_port: 0, ..UdpConfig::new("lo", Ipv4Addr::LOCALHOST.into()) }
}

fn port(bearer: &UdpBearer) -> u16 {
    match bearer.local().address {
        Address::Ip(address) => address.port(),
        _ => unreachable!(),
    }
}

#[test]
fn a_taken_port_is_replaced_and_told() {
    let first = UdpBearer::open(config()).unwrap();
    assert!(!first.port_taken());
    let second = UdpBearer::open(UdpConfig { port: port(&first), ..config() }).unwrap();
    assert!(second.port_taken());
    assert_ne!(port(&first), port(&second));
}

#[test]
fn an_unknown_interface_is_not_found() {
    let wanted = UdpConfig { interface: "none-such".into(), ..config() };
    assert_eq!(UdpBearer::open(wanted).err().unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn interfaces_are_found_by_index_too() {
    let index = polyrail_sys::interface::list().unwrap().iter().find(|i| i.name == "lo").unwrap().index;
    let bearer = UdpBearer::open(UdpConfig { interface: index.to_string(), ..config() }).unwrap();
    assert_eq!((bearer.name(), bearer.device()), ("udp/lo", Some("lo")));
    assert_eq!(bearer.local().prefix_bits, 8);
}

#[test]
fn buffers_stay_below_the_given_limit() {
    let limited = UdpConfig { socket_buffer_bytes_max: Some(200_000), ..config() };
    let mut bearer = UdpBearer::open(limited).unwrap();
    assert!(bearer.capabilities().receive_buffer_bytes <= 200_000);
    assert_eq!(bearer.buffer_warning(), None);
    bearer.set_send_buffer(60_000);
    assert_eq!(bearer.capabilities().send_buffer_bytes, 60_000);
}

#[test]
fn a_foreign_address_is_refused() {
    let mut bearer = UdpBearer::open(config()).unwrap();
    for to in [Address::Memory(1), Address::Ip("[::1]:5".parse().unwrap())] {
        let transmit = Transmit {
            to,
            segment_bytes: 1,
            bytes: 1,
            slices: &[IoSlice::new(b"x")],
            express: true,
            lend: false,
            dscp: 0,
        };
        assert!(matches!(bearer.send(&transmit), SendOutcome::Failed(_)));
    }
}

#[test]
fn the_end_of_a_train_waits_for_room_and_then_goes_first() {
    let mut bearer = UdpBearer::open(config()).unwrap();
    let to = bearer.local().address;
    let Some(target) = bearer.target(&to) else { unreachable!() };
    bearer.held = Some(Held::for_test(target, 0, 2, b"aabbc"));
    assert_eq!(bearer.backlog_bytes(), 5);
    let transmit = Transmit {
        to,
        segment_bytes: 9,
        bytes: 4,
        slices: &[IoSlice::new(b"next")],
        express: true,
        lend: false,
        dscp: 0,
    };
    assert!(matches!(bearer.send(&transmit), SendOutcome::Sent));
    let mut batch = RxBatch::new(8);
    let mut got = Vec::new();
    while got.len() < 4 {
        batch.clear();
        bearer.recv(&mut batch, true).unwrap();
        got.extend(batch.iter().flat_map(|group| group.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()));
    }
    assert_eq!(got, [b"aa".to_vec(), b"bb".to_vec(), b"c".to_vec(), b"next".to_vec()]);
    assert!(bearer.held.is_none());
}

#[test]
fn a_train_goes_one_by_one_when_offload_fails() {
    let mut bearer = UdpBearer::open(config()).unwrap();
    let to = bearer.local().address;
    let (bytes, mut batch, mut notices) = ([7u8; 2_500], RxBatch::new(8), Vec::new());
    // The kernel refuses to cut what carries no checksum.
    bearer.sockets.common().set_checksums(false).unwrap();
    for segments_max in [1, 1, 64] {
        let transmit = Transmit {
            to,
            segment_bytes: 1_000,
            bytes: 2_500,
            slices: &[IoSlice::new(&bytes)],
            express: true,
            lend: false,
            dscp: 0,
        };
        if segments_max == 64 {
            bearer.sockets.common().set_checksums(true).unwrap();
            bearer.offload = Offload::Off { retry_at_ns: 0 };
        }
        assert!(matches!(bearer.send(&transmit), SendOutcome::Sent));
        assert_eq!(bearer.capabilities().segments_max, segments_max);
        let mut sizes = Vec::new();
        while sizes.len() < 3 {
            batch.clear();
            bearer.recv(&mut batch, true).unwrap();
            sizes.extend(
                batch.iter().flat_map(|group| group.datagrams().map(<[u8]>::len).collect::<Vec<_>>()),
            );
        }
        assert_eq!(sizes, [1_000, 1_000, 500]);
        bearer.notices(&mut notices);
    }
    assert_eq!(notices, [Notice::GsoOff]);
}

/// Sends the number as a datagram of its own.
fn send_number(from: &mut UdpBearer, to: Address, number: u32) {
    let bytes = number.to_be_bytes();
    let transmit = Transmit {
        to,
        segment_bytes: 4,
        bytes: 4,
        slices: &[IoSlice::new(&bytes)],
        express: true,
        lend: false,
        dscp: 0,
    };
    assert!(matches!(from.send(&transmit), SendOutcome::Sent));
}

/// The next datagram's number and sender, wherever it came in.
fn next_number(at: &mut UdpBearer) -> (u32, Address) {
    let mut batch = RxBatch::new(1);
    let until = polyrail_sys::clock::monotonic_ns() + 20_000_000_000;
    while at.recv(&mut batch, true).unwrap() == 0 {
        assert!(polyrail_sys::clock::monotonic_ns() < until, "waited in vain");
        std::thread::yield_now();
    }
    let group = batch.iter().next().unwrap();
    (u32::from_be_bytes(group.bytes.try_into().unwrap()), group.from)
}

#[test]
fn peers_that_talk_much_get_sockets_of_their_own_and_nothing_is_lost() {
    for address in ["127.0.0.1", "::1"] {
        let config = UdpConfig { beacon_port: 0, ..UdpConfig::new("lo", address.parse().unwrap()) };
        let open = || UdpBearer::open(config.clone()).unwrap();
        let (mut a, mut b, mut c) = (open(), open(), open());
        let (to_a, to_b, to_c) = (a.local().address, b.local().address, c.local().address);
        for number in 0..1_000 {
            send_number(&mut a, to_b, number);
            assert_eq!(next_number(&mut b), (number, to_a));
            send_number(&mut b, to_a, number);
            assert_eq!(next_number(&mut a), (number, to_b));
        }
        assert_eq!((a.sockets.count(), b.sockets.count()), (2, 2));
        assert_eq!((a.fds().data.len(), a.fds_version(), c.fds_version()), (2, 1, 0));
        send_number(&mut c, to_a, 7);
        assert_eq!(next_number(&mut a), (7, to_c), "strangers come by the common socket");
        send_number(&mut a, to_c, 8);
        assert_eq!(next_number(&mut c), (8, to_a), "one address, whichever socket it is sent by");

        let thief = UdpSocket::new(address.contains(':')).unwrap();
        thief.set_reuse_address(true).unwrap();
        let Address::Ip(taken) = to_a else { unreachable!() };
        assert_eq!(thief.bind(taken).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}

#[test]
fn the_connected_socket_that_is_used_least_gives_way() {
    let mut a = UdpBearer::open(config()).unwrap();
    let mut others: Vec<UdpBearer> = (0..7).map(|_| UdpBearer::open(config()).unwrap()).collect();
    let talk = |a: &mut UdpBearer, other: &mut UdpBearer, trains: u32| {
        let to = other.local().address;
        for number in 0..trains {
            send_number(a, to, number);
            assert_eq!(next_number(other).0, number);
        }
        a.sockets.reaching(a.target(&to).unwrap()) != 0
    };
    for other in &mut others[..4] {
        assert!(talk(&mut a, other, 300));
    }
    assert!(!talk(&mut a, &mut others[4], 200), "not enough yet");
    // Three of them are in use; the place of the fourth, which is not, is given to the next who needs it more.
    for other in &mut others[1..4] {
        assert!(talk(&mut a, other, 300));
    }
    assert!(talk(&mut a, &mut others[4], 600));
    assert_eq!(a.sockets.count(), 5);
    assert!(!talk(&mut a, &mut others[0], 1) && talk(&mut a, &mut others[3], 1));
    // Many peers with little to say take nobody's place.
    let version = a.fds_version();
    for _ in 0..20 {
        for other in &mut others {
            talk(&mut a, other, 5);
        }
    }
    assert_eq!(a.fds_version(), version);
}

/// Sockets on loopback, which send nothing: what counts is who they would send to.
fn idle_sockets() -> Sockets {
    let setup =
        sockets::Setup { v6: false, device: None, gro: false, receive_buffer_bytes: 100_000, dscp: 0 };
    let common = setup.socket().unwrap();
    common.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let local = common.local_address().unwrap();
    Sockets::new(setup, common, local)
}

/// Lets so many trains go to a peer; whether it has a socket of its own then.
fn trains(sockets: &mut Sockets, peer: u16, count: u32) -> bool {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, peer));
    (0..count).for_each(|_| _ = sockets.toward(to));
    sockets.reaching(to) != 0
}

#[test]
fn a_place_is_given_up_by_whoever_used_it_least_if_that_was_little() {
    let mut sockets = idle_sockets();
    for peer in 1..=4 {
        assert!(!trains(&mut sockets, peer, 255) && trains(&mut sockets, peer, 1));
    }
    for (peer, count) in [(1, 300), (2, 100), (3, 300), (4, 200)] {
        trains(&mut sockets, peer, count);
    }
    (sockets.hot, sockets.full, sockets.version) = (4, 4, 10);
    assert!(!trains(&mut sockets, 5, 255) && trains(&mut sockets, 5, 1));
    let own = |sockets: &mut Sockets| (1..=5).map(|peer| trains(sockets, peer, 0)).collect::<Vec<_>>();
    assert_eq!(own(&mut sockets), [true, false, true, true, true]);
    assert_eq!((sockets.count(), sockets.hot, sockets.full, sockets.version), (5, 0, 0, 12));

    // All of them are in use: the next has to wait, and counts begin anew, its own and those of others too.
    assert!(!trains(&mut sockets, 7, 200));
    for peer in [1, 3, 4, 5] {
        trains(&mut sockets, peer, 256);
    }
    assert!(!trains(&mut sockets, 6, 256));
    assert!(!trains(&mut sockets, 7, 200));
    assert!(!trains(&mut sockets, 6, 255) && trains(&mut sockets, 6, 1), "nobody else has sent meanwhile");
    assert_eq!(sockets.version, 14);
}

#[test]
fn one_of_many_peers_gets_ahead_on_the_count_of_the_least() {
    let mut sockets = idle_sockets();
    for peer in 1..=16 {
        trains(&mut sockets, peer, if peer == 9 { 10 } else { 20 });
    }
    // It goes on from those ten.
    assert!(!trains(&mut sockets, 17, 245));
    assert!(trains(&mut sockets, 17, 1));
}

#[test]
fn connected_sockets_share_the_send_buffer() {
    let mut sockets = idle_sockets();
    for (connected, share) in [(0, 600_000), (1, 600_000), (2, 300_000), (3, 200_000)] {
        if connected > 0 {
            assert!(trains(&mut sockets, connected, 256));
        }
        assert_eq!(sockets.set_send_buffer(600_000).unwrap(), share);
    }
    assert_eq!(sockets.set_send_buffer(120_000).unwrap(), 65_536, "a train finds room in each");
    assert_eq!(sockets.set_send_buffer(50_000).unwrap(), 50_000);
}

#[test]
fn a_connection_that_fails_leaves_the_address_to_its_owner() {
    let mut sockets = idle_sockets();
    let local = sockets.common().local_address().unwrap();
    // Nobody out there is reached from the loopback interface.
    let outside = "203.0.113.1:9".parse().unwrap();
    (0..256).for_each(|_| assert_eq!(sockets.toward(outside), 0));
    assert_eq!((sockets.count(), sockets.version), (1, 0));
    let thief = UdpSocket::new(false).unwrap();
    thief.set_reuse_address(true).unwrap();
    assert_eq!(thief.bind(local).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_socket_of_its_own_holds_as_much_of_a_burst_as_the_common_one() {
    let (mut a, mut b) = (UdpBearer::open(config()).unwrap(), UdpBearer::open(config()).unwrap());
    let (to_a, to_b) = (a.local().address, b.local().address);
    for number in 0..300 {
        send_number(&mut a, to_b, number);
        assert_eq!(next_number(&mut b).0, number);
    }
    assert_eq!(a.sockets.count(), 2);
    if a.capabilities().receive_buffer_bytes < 2 << 20 {
        // The system grants no more than a socket has anyway.
        return;
    }
    (0..1_000).for_each(|number| send_number(&mut b, to_a, number));
    (0..1_000).for_each(|number| assert_eq!(next_number(&mut a), (number, to_b)));
}

#[test]
fn what_comes_to_any_socket_is_found_after_many_looks_in_vain() {
    let [mut a, mut b, mut c] = [0; 3].map(|_| UdpBearer::open(config()).unwrap());
    let (to_a, to_b, to_c) = (a.local().address, b.local().address, c.local().address);
    let watched_in_vain = |bearer: &mut UdpBearer| {
        let mut batch = RxBatch::new(1);
        (0..40).for_each(|_| assert_eq!(bearer.recv(&mut batch, true).unwrap(), 0));
        assert!(bearer.watch.sees_nothing(&bearer.sockets));
    };
    for round in 0..2 {
        watched_in_vain(&mut a);
        send_number(&mut b, to_a, 1);
        assert_eq!(next_number(&mut a), (1, to_b), "round {round}");
        watched_in_vain(&mut a);
        send_number(&mut c, to_a, 2);
        assert_eq!(next_number(&mut a), (2, to_c), "round {round}");
        // From then on what `b` sends comes to a socket of its own.
        (0..256).for_each(|number| {
            send_number(&mut a, to_b, number);
            assert_eq!(next_number(&mut b).0, number);
        });
        assert_eq!(a.sockets.count(), 2);
    }
}
