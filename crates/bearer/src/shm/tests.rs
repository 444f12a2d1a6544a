use std::io::IoSlice;
use std::os::fd::AsFd;

use polyrail_shm::{Direct, DirectSender, Label};
use polyrail_sys::poll::PollSet;
use polyrail_sys::unix::UnixSocket;

use super::*;

/// A machine of the test's own.
fn machine() -> u64 {
    let mut bytes = [0; 8];
    polyrail_sys::process::random_bytes(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

fn send(from: &mut ShmBearer, to: &ShmBearer, bytes: &[u8]) -> SendOutcome {
    let (slices, to) = ([IoSlice::new(bytes)], to.local().address);
    let segment_bytes = bytes.len().max(1);
    let (bytes, express, lend, dscp) = (bytes.len(), true, false, 0);
    from.send(&Transmit { to, segment_bytes, bytes, slices: &slices, express, lend, dscp })
}

fn send_ok(from: &mut ShmBearer, to: &ShmBearer, bytes: &[u8]) {
    assert!(matches!(send(from, to, bytes), SendOutcome::Sent));
}

/// Everything that has come, after a look at who has.
fn received(bearer: &mut ShmBearer) -> Vec<Vec<u8>> {
    let (mut batch, mut all) = (RxBatch::new(8), Vec::new());
    bearer.attend();
    while bearer.recv(&mut batch, true).unwrap() > 0 {
        all.extend(batch.iter().flat_map(|group| group.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()));
        batch.clear();
    }
    all
}

fn is_told(bearer: &ShmBearer) -> bool {
    let mut set = PollSet::default();
    set.add(bearer.fds().data[0], false);
    let _ = set.wait(Some(0));
    set.is_ready(0)
}

/// Sends until there is no room; how many went.
fn fill(from: &mut ShmBearer, to: &ShmBearer) -> u32 {
    let mut sent = 0;
    while matches!(send(from, to, &[7; 60_000]), SendOutcome::Sent) {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    sent
}

/// Two nodes of a machine of their own, of which the first has sent to the second.
fn met() -> [ShmBearer; 2] {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    send_ok(&mut a, &b, b"hello");
    assert_eq!(received(&mut b).len(), 1);
    [a, b]
}

#[test]
fn nobody_is_woken_who_looks_by_itself() {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    send_ok(&mut a, &b, b"who knocks is told of");
    assert!(is_told(&b));
    assert_eq!(received(&mut b).len(), 1);
    assert!(!is_told(&b), "that is all");
    for round in 0..5u8 {
        send_ok(&mut a, &b, &[round]);
        assert!(!is_told(&b), "it looks by itself");
        assert!(b.doze(true), "what had come before is found");
        assert_eq!(received(&mut b), [[round]]);
        assert!(!b.doze(true));
        send_ok(&mut a, &b, b"first");
        send_ok(&mut a, &b, b"second");
        assert!(is_told(&b));
        b.rouse();
        assert_eq!(received(&mut b), [&b"first"[..], b"second"]);
        assert!(!is_told(&b), "one call for both");
        assert!(!b.doze(true));
        b.rouse();
        send_ok(&mut a, &b, b"third");
        assert!(!is_told(&b), "it has said that it sleeps no more");
        assert_eq!(received(&mut b).len(), 1);
    }
}

#[test]
fn what_ended_a_sleep_is_heard_though_nobody_says_what_it_was() {
    let [mut a, mut b] = met();
    let mut batch = RxBatch::new(8);
    for _ in 0..3 {
        assert!(!b.doze(false));
        send_ok(&mut a, &b, b"there?");
        assert!(is_told(&b));
        batch.clear();
        assert_eq!(b.recv(&mut batch, false).unwrap(), 1);
        assert!(!is_told(&b), "it would wake for that again and again");
    }
}

#[test]
fn a_sender_without_room_is_told_when_there_is_some() {
    let [mut a, mut b] = met();
    // It was asked whether it sits where it said.
    a.attend();
    assert!(!is_told(&a));
    let sent = fill(&mut a, &b);
    assert!(sent as usize * 60_000 >= 2 << 20, "a window of half of what it says that it takes");
    assert!(!a.writable() && !is_told(&a));
    assert_eq!(received(&mut b).len() as u32, sent);
    assert!(is_told(&a) && a.writable());
    a.attend();
    assert!(!is_told(&a));
    send_ok(&mut a, &b, b"again");
    assert_eq!(received(&mut b).len(), 1);
    assert!(!is_told(&a), "nobody waits for room");
}

#[test]
fn who_is_stopped_does_not_hold_up_the_others() {
    let machine = machine();
    let [mut a, mut stopped, mut other] = [0; 3].map(|_| ShmBearer::open(machine).unwrap());
    let sent = fill(&mut a, &stopped);
    send_ok(&mut a, &other, b"beside it");
    assert!(a.writable(), "the last one was taken");
    assert!(matches!(send(&mut a, &stopped, &[7; 60_000]), SendOutcome::WouldBlock));
    std::thread::sleep(std::time::Duration::from_millis(11));
    assert!(a.writable(), "it waits for it no longer");
    send_ok(&mut a, &stopped, b"lost, as at any socket that is full of what nobody reads");
    assert_eq!(received(&mut other).len(), 1);
    assert_eq!(received(&mut stopped).len() as u32, sent + 1, "short ones need no room in the arena");
    send_ok(&mut a, &stopped, &[8; 60_000]);
    assert_eq!(received(&mut stopped), [[8; 60_000]], "it goes on");
}

#[test]
fn what_a_sender_had_put_in_is_read_though_it_is_gone_and_nothing_is_left_of_it() {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    send_ok(&mut a, &b, b"first");
    assert_eq!(received(&mut b).len(), 1);
    send_ok(&mut a, &b, b"last");
    send_ok(&mut b, &a, b"who is that?");
    let gone = Notice::Gone { to: a.local().address };
    drop(a);
    assert!(is_told(&b));
    let mut notices = Vec::new();
    b.attend();
    b.part();
    b.notices(&mut notices);
    assert_eq!((notices.len(), b.ins.len()), (0, 1), "it has left something");
    assert_eq!(received(&mut b), [b"last"]);
    assert!(b.ins.is_empty() && b.outs.is_empty() && !is_told(&b));
    b.notices(&mut notices);
    assert_eq!(notices, [gone]);
}

/// Whoever is killed loses its sockets one by one, the youngest first.
#[test]
fn who_loses_its_connection_before_its_door_is_gone_with_the_door() {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    send_ok(&mut a, &b, b"last");
    let gone = Notice::Gone { to: a.local().address };
    a.outs.clear();
    assert_eq!(received(&mut b), [b"last"]);
    assert!(received(&mut b).is_empty() && b.ins.is_empty());
    let mut notices = Vec::new();
    b.notices(&mut notices);
    assert_eq!(notices, [], "it may live");
    drop(a);
    assert!(is_told(&b), "it need not ask");
    assert!(received(&mut b).is_empty());
    b.notices(&mut notices);
    assert_eq!(notices, [gone]);
    assert!(b.doubts.is_empty() && !is_told(&b));
}

#[test]
fn who_ends_a_connection_for_want_of_room_is_not_gone() {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    for round in 0..3 {
        send_ok(&mut a, &b, &[round]);
        a.outs.clear();
        assert_eq!(received(&mut b), [[round]]);
        assert!(received(&mut b).is_empty(), "nor is it let in twice");
        let mut notices = Vec::new();
        b.notices(&mut notices);
        assert!(b.ins.is_empty() && notices.is_empty());
    }
}

#[test]
fn who_says_nonsense_is_shown_out_and_nobody_takes_all_seats() {
    let machine = machine();
    let mut b = ShmBearer::open(machine).unwrap();
    let knock = || door::knock(machine, b.seat).unwrap();
    let ring = Direct::create().unwrap();
    let file = ring.segment().fd().unwrap();
    let nonsense: [(&[u8], bool); 4] = [
        (b"polyshm", true),
        (b"polyshm2\0\0\0\0\0\0\0\0", true),
        (&[b'x'; 40], true),
        (&door::hello(7), false),
    ];
    let sockets: Vec<UnixSocket> = nonsense
        .iter()
        .map(|(word, with_ring)| {
            let socket = knock();
            socket.send(word, if *with_ring { std::slice::from_ref(&file) } else { &[] }).unwrap();
            socket
        })
        .collect();
    let (no_ring, no_file) = (knock(), std::fs::File::open("/dev/null").unwrap());
    let _seat = Door::open(machine, 7).unwrap();
    no_ring.send(&door::hello(7), &[no_file.as_fd()]).unwrap();
    let nobody = knock();
    nobody.send(&door::hello(8), &[file]).unwrap();
    b.attend();
    assert!(b.ins.is_empty());
    for socket in sockets.iter().chain([&no_ring, &nobody]) {
        assert!(matches!(socket.recv(&mut [0; 8]), Ok(Some(packet)) if packet.bytes == 0), "it is over");
    }
    let silent: Vec<UnixSocket> = (0..PEERS_MAX).map(|_| door::knock(machine, b.seat).unwrap()).collect();
    b.attend();
    assert_eq!(b.ins.len(), PEERS_MAX);
    let mut late = ShmBearer::open(machine).unwrap();
    send_ok(&mut late, &b, b"no seat");
    assert!(received(&mut b).is_empty());
    late.attend();
    assert!(late.outs.is_empty(), "it knows");
    drop(silent);
    assert!(received(&mut b).is_empty());
    send_ok(&mut late, &b, b"now there is one");
    assert_eq!(received(&mut b).len(), 1);
}

#[test]
fn a_sender_that_scribbles_spoils_its_own_packets_only() {
    let machine = machine();
    let [mut a, mut b] = [0; 2].map(|_| ShmBearer::open(machine).unwrap());
    let made = Direct::create().unwrap();
    let file = made.segment().fd().unwrap();
    let (_seat, socket) = (Door::open(machine, 99).unwrap(), door::knock(machine, b.seat).unwrap());
    socket.send(&door::hello(99), &[file]).unwrap();
    let mut ring = DirectSender::attach(file.try_clone_to_owned().unwrap()).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut strange = 0;
    for round in 0..20_000u64 {
        let front = (128 + 4_096 + 32_768 * 128 + 8_192) / 8;
        let value = if next() % 2 == 0 { next() } else { ((round % 1_100) << 32) | (next() % 70_000) };
        made.segment().write_at(next() % front * 8, &value.to_ne_bytes());
        let _ =
            ring.push(Label { note: next() as u32 % 80_000, meta: next() % 70_000 }, &value.to_ne_bytes());
        if round % 64 == 0 {
            send_ok(&mut a, &b, &round.to_ne_bytes());
            let got = received(&mut b);
            assert_eq!(got.iter().filter(|bytes| bytes[..] == round.to_ne_bytes()).count(), 1);
            strange += got.len() - 1;
        }
    }
    assert!(strange > 0, "nothing of it arrived at all");
}

#[test]
fn a_user_that_is_not_ones_own_has_few_seats_and_leaves_the_others_theirs() {
    let mut b = ShmBearer::open(machine()).unwrap();
    let own = Credentials { pid: 1, uid: b.door.uid(), gid: 0 };
    let strangers = [1, 2].map(|more| Credentials { uid: own.uid + more, ..own });
    for who in strangers {
        for seats in 0..STRANGERS_MAX {
            assert!(b.has_seat_for(who), "after {seats}");
            b.ins.push(Inward::new(UnixSocket::pair().unwrap().0, who, 1));
        }
        assert!(!b.has_seat_for(who) && b.has_seat_for(own));
    }
    while b.ins.len() < PEERS_MAX {
        b.ins.push(Inward::new(UnixSocket::pair().unwrap().0, own, 1));
    }
    assert!(!b.has_seat_for(own));
}
