//! What only this bearer does; the rest is in the conformance suite.

use super::*;
use polyrail_sys::epoll::{Epoll, Events, Interest};
use std::io::IoSlice;

fn send(from: &mut MemoryBearer, to: u32, bytes: &[u8]) -> SendOutcome {
    let (to, slices) = (Address::Memory(to), [IoSlice::new(bytes)]);
    from.send(&Transmit {
        to,
        segment_bytes: bytes.len().max(1),
        bytes: bytes.len(),
        slices: &slices,
        express: true,
        lend: false,
        dscp: 0,
    })
}

#[test]
fn a_train_keeps_its_slot_and_slots_come_back() {
    let hub = MemoryHub::new();
    let (mut a, mut batch) = (hub.bearer(1), RxBatch::new(1));
    let mut places = std::collections::BTreeSet::new();
    for round in 0..50u8 {
        assert!(matches!(send(&mut a, 1, &[round; 100]), SendOutcome::Sent));
        batch.clear();
        assert_eq!(a.recv(&mut batch, true).unwrap(), 1);
        let group = batch.iter().next().unwrap();
        assert_eq!((group.bytes, group.from), (&[round; 100][..], Address::Memory(1)));
        places.insert(group.bytes.as_ptr() as usize);
    }
    assert!(places.len() <= 3, "slots are used again: {}", places.len());
}

#[test]
fn the_descriptor_is_readable_exactly_while_something_waits() {
    let hub = MemoryHub::new();
    let (mut a, mut b) = (hub.bearer(1), hub.bearer(2));
    let (epoll, mut events, mut batch) = (Epoll::new().unwrap(), Events::new(2), RxBatch::new(1));
    send(&mut a, 2, b"before anybody watched");
    epoll.add(b.fds().data[0], 0, Interest::READ).unwrap();
    send(&mut a, 2, b"after");
    for waiting in [1, 1, 0] {
        assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), waiting);
        batch.clear();
        assert_eq!(b.recv(&mut batch, true).unwrap(), waiting);
    }
}

#[test]
fn a_refused_sender_is_woken_when_there_is_room() {
    let config = MemoryConfig { inbox_trains_max: 2, ..MemoryConfig::default() };
    let hub = MemoryHub::with_config(config);
    let (mut a, mut b) = (hub.bearer(1), hub.bearer(2));
    let (epoll, mut events, mut batch) = (Epoll::new().unwrap(), Events::new(2), RxBatch::new(1));
    epoll.add(a.fds().data[0], 0, Interest::READ).unwrap();
    assert!(matches!(send(&mut a, 2, b"1"), SendOutcome::Sent));
    assert!(matches!(send(&mut a, 2, b"2"), SendOutcome::Sent));
    assert!(matches!(send(&mut a, 2, b"3"), SendOutcome::WouldBlock));
    assert!(!a.writable());
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
    b.recv(&mut batch, true).unwrap();
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 1);
    assert!(a.writable());
    batch.clear();
    assert_eq!(a.recv(&mut batch, true).unwrap(), 0);
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0, "the wake-up is taken by looking");
    assert!(matches!(send(&mut a, 2, b"3"), SendOutcome::Sent));
}

#[test]
fn a_seat_can_be_left_and_taken_again() {
    let hub = MemoryHub::new();
    let (mut a, b) = (hub.bearer(1), hub.bearer(2));
    send(&mut a, 2, b"lost");
    drop(b);
    send(&mut a, 2, b"nobody there");
    let mut notices = Vec::new();
    a.notices(&mut notices);
    assert_eq!(notices, [Notice::Unreachable { to: Address::Memory(2), code: NoticeCode::Port }]);
    let (mut b, mut batch) = (hub.bearer(2), RxBatch::new(4));
    send(&mut a, 2, b"hello");
    b.recv(&mut batch, true).unwrap();
    assert_eq!(batch.iter().map(|g| g.bytes).collect::<Vec<_>>(), [b"hello"]);
}
