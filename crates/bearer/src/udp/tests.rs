//! What only this bearer does, on loopback; the rest is in the conformance suite.

use super::*;
use std::io::IoSlice;
use std::net::Ipv4Addr;

fn config() -> UdpConfig {
    UdpConfig { beacon_port: 0, ..UdpConfig::new("lo", Ipv4Addr::LOCALHOST.into()) }
}

fn port(bearer: &UdpBearer) -> u16 {
    match bearer.local().address {
        Address::Ip(address) => address.port(),
        Address::Memory(_) => unreachable!(),
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
        let transmit = Transmit { to, segment_bytes: 1, bytes: 1, slices: &[IoSlice::new(b"x")] };
        assert!(matches!(bearer.send(&transmit), SendOutcome::Failed(_)));
    }
}

#[test]
fn the_end_of_a_train_waits_for_room_and_then_goes_first() {
    let mut bearer = UdpBearer::open(config()).unwrap();
    let to = bearer.local().address;
    let Some(target) = bearer.target(&to) else { unreachable!() };
    bearer.held = Some(Held::for_test(target, 2, b"aabbc"));
    assert_eq!(bearer.backlog_bytes(), 5);
    let transmit = Transmit { to, segment_bytes: 9, bytes: 4, slices: &[IoSlice::new(b"next")] };
    assert!(matches!(bearer.send(&transmit), SendOutcome::Sent));
    let mut batch = RxBatch::new(8);
    let mut got = Vec::new();
    while got.len() < 4 {
        batch.clear();
        bearer.recv(&mut batch).unwrap();
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
    bearer.data.set_checksums(false).unwrap();
    for segments_max in [1, 1, 64] {
        let transmit = Transmit { to, segment_bytes: 1_000, bytes: 2_500, slices: &[IoSlice::new(&bytes)] };
        if segments_max == 64 {
            bearer.data.set_checksums(true).unwrap();
            bearer.offload = Offload::Off { retry_at_ns: 0 };
        }
        assert!(matches!(bearer.send(&transmit), SendOutcome::Sent));
        assert_eq!(bearer.capabilities().segments_max, segments_max);
        let mut sizes = Vec::new();
        while sizes.len() < 3 {
            batch.clear();
            bearer.recv(&mut batch).unwrap();
            sizes.extend(
                batch.iter().flat_map(|group| group.datagrams().map(<[u8]>::len).collect::<Vec<_>>()),
            );
        }
        assert_eq!(sizes, [1_000, 1_000, 500]);
        bearer.notices(&mut notices);
    }
    assert_eq!(notices, [Notice::GsoOff]);
}
