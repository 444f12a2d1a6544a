//! What every bearer promises, each claim a function.

use polyrail_bearer::{
    Address, Bearer, Notice, NoticeCode, RxBatch, SendOutcome, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX,
};

use crate::media::Medium;
use crate::tools::{
    Train, groups, numbered, receive, receive_now, send, send_ok, wait_beacon, wait_readable, wait_writable,
};

type Claim = fn(&dyn Medium);

/// Checks all claims on `medium`; the last name printed is the one that failed.
pub fn conforms(medium: &dyn Medium) {
    let claims: [(&str, Claim); 13] = [
        ("every_datagram_keeps_its_bounds_and_contents", every_datagram_keeps_its_bounds_and_contents),
        ("a_train_may_lie_in_many_pieces", a_train_may_lie_in_many_pieces),
        ("what_is_lent_arrives_and_nothing_else_is_cut", what_is_lent_arrives),
        ("the_largest_datagram_passes_and_a_larger_one_is_refused", the_largest_datagram_passes),
        ("a_train_beyond_its_bounds_is_refused", a_train_beyond_its_bounds_is_refused),
        ("nothing_there_is_no_error", nothing_there_is_no_error),
        ("a_full_batch_leaves_the_rest_for_later", a_full_batch_leaves_the_rest_for_later),
        ("one_bearer_talks_with_many", one_bearer_talks_with_many),
        ("an_address_read_from_the_wire_is_the_same_address", a_wire_address_is_the_same_address),
        ("beacons_are_heard_by_all_and_stay_apart_from_data", beacons_are_heard_by_all),
        ("nobody_there_is_a_notice_and_breaks_nothing", nobody_there_is_a_notice),
        ("neighbours_are_known", neighbours_are_known),
        ("a_full_queue_refuses_whole_trains_and_recovers", a_full_queue_refuses_and_recovers),
    ];
    for (name, claim) in claims {
        eprintln!("{name}");
        claim(medium);
    }
}

fn pair(medium: &dyn Medium) -> (Box<dyn Bearer>, Box<dyn Bearer>, Address) {
    let (a, b) = (medium.bearer(0), medium.bearer(1));
    let to = b.local().address;
    (a, b, to)
}

fn every_datagram_keeps_its_bounds_and_contents(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let mut salt = 0;
    for segments in [1, 2, 3, 17, 44, 64] {
        for size in [1usize, 2, 100, 1_000] {
            for last in [size, size.div_ceil(3)] {
                salt += 1;
                let bytes = numbered(size * (segments - 1) + last, salt);
                send_ok(&mut a, to, &Train::new(&bytes, size));
                let expected: Vec<&[u8]> = bytes.chunks(size).collect();
                let got = groups(&mut b, segments);
                for (from, stride, datagrams) in &got {
                    assert_eq!(*from, a.local().address);
                    // A lone shorter datagram is a group with its own length as stride.
                    let alone = datagrams.len() == 1 && *stride == datagrams[0].len();
                    assert!(*stride == size || alone, "stride {stride} of {size}");
                }
                let got: Vec<Vec<u8>> = got.into_iter().flat_map(|group| group.2).collect();
                assert_eq!(got, expected, "{segments} of {size}, last {last}");
            }
        }
    }
    send_ok(&mut a, to, &Train::new(b"", 10));
    assert_eq!(receive(&mut b, 1), [b""]);
}

fn a_train_may_lie_in_many_pieces(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let bytes = numbered(44 * 1_000, 1);
    for pieces in [2, 128, 1_024] {
        send_ok(&mut a, to, &Train::in_pieces(&bytes, 1_000, pieces));
        assert_eq!(receive(&mut b, 44).concat(), bytes, "{pieces} pieces");
    }
}

fn what_is_lent_arrives(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    // Long enough for whatever a bearer keeps for the peers that are talked to most.
    for round in 0..400 {
        let size = [1_000, 1_200, 700][round % 3];
        let bytes = numbered(40 * size + round % 50, round as u64);
        send_ok(&mut a, to, &Train::lent(&bytes, size));
        assert_eq!(receive(&mut b, bytes.len().div_ceil(size)).concat(), bytes, "round {round}");
        if round % 7 == 0 {
            // Neither a single datagram nor a train of another size is cut as the one before it was.
            send_ok(&mut a, to, &Train::new(&bytes[..1_100], 1_100));
            assert_eq!(receive(&mut b, 1), [&bytes[..1_100]]);
            send_ok(&mut a, to, &Train::in_pieces(&bytes[..3_000], 900, 8));
            let got = receive(&mut b, 4);
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [900, 900, 900, 300]);
        }
    }
}

fn the_largest_datagram_passes(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let largest = usize::from(a.capabilities().mtu_bytes);
    let bytes = numbered(largest + 1, 1);
    let outcome = send(&mut a, to, &Train::new(&bytes, largest + 1));
    assert!(matches!(outcome, SendOutcome::TooLarge), "{outcome:?}");
    send_ok(&mut a, to, &Train::new(&bytes[..largest], largest));
    assert_eq!(receive(&mut b, 1), [&bytes[..largest]]);
    let per_train = (TRAIN_BYTES_MAX / largest).min(TRAIN_SEGMENTS_MAX);
    let bytes = numbered(largest * per_train, 2);
    send_ok(&mut a, to, &Train::new(&bytes, largest));
    assert_eq!(receive(&mut b, per_train).concat(), bytes);
}

fn a_train_beyond_its_bounds_is_refused(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let many = numbered(TRAIN_SEGMENTS_MAX + 1, 1);
    assert!(matches!(send(&mut a, to, &Train::new(&many, 1)), SendOutcome::TooLarge));
    let long = numbered(TRAIN_BYTES_MAX + 1, 1);
    assert!(matches!(send(&mut a, to, &Train::new(&long, 1_400)), SendOutcome::TooLarge));
    send_ok(&mut a, to, &Train::new(b"fine", 4));
    assert_eq!(receive(&mut b, 1), [b"fine"], "nothing of the others was sent");
}

fn nothing_there_is_no_error(medium: &dyn Medium) {
    let mut a = medium.bearer(0);
    let (mut batch, mut notices) = (RxBatch::new(4), Vec::new());
    assert_eq!(a.recv(&mut batch, true).unwrap(), 0);
    a.notices(&mut notices);
    assert!(batch.is_empty() && notices.is_empty());
    assert!(a.writable());
    assert_eq!(a.backlog_bytes(), 0);
    assert_eq!(a.recv(&mut RxBatch::new(0), true).unwrap(), 0);
}

fn a_full_batch_leaves_the_rest_for_later(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let payloads: Vec<Vec<u8>> = (0..20).map(|salt| numbered(50 + salt as usize, salt)).collect();
    for bytes in &payloads {
        send_ok(&mut a, to, &Train::new(bytes, bytes.len()));
    }
    let (mut batch, mut got) = (RxBatch::new(1), Vec::new());
    while got.len() < payloads.len() {
        wait_readable(&mut b);
        batch.clear();
        assert_eq!(b.recv(&mut batch, true).unwrap(), 1);
        assert_eq!(b.recv(&mut batch, true).unwrap(), 0, "a full batch takes no more");
        got.extend(batch.iter().flat_map(|g| g.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()));
    }
    assert_eq!(got, payloads);
}

fn one_bearer_talks_with_many(medium: &dyn Medium) {
    let mut hub = medium.bearer(0);
    let mut peers: Vec<_> = (1..=8).map(|seat| medium.bearer(seat)).collect();
    let center = hub.local().address;
    for (index, peer) in peers.iter_mut().enumerate() {
        send_ok(peer, center, &Train::new(&numbered(3 * 700, index as u64), 700));
    }
    let got = groups(&mut hub, 8 * 3);
    for (index, peer) in peers.iter_mut().enumerate() {
        let own = got.iter().filter(|group| group.0 == peer.local().address);
        let bytes: Vec<u8> = own.flat_map(|group| group.2.concat()).collect();
        assert_eq!(bytes, numbered(3 * 700, index as u64));
        send_ok(&mut hub, peer.local().address, &Train::new(&bytes[..900], 500));
        assert_eq!(receive(peer, 2).concat(), bytes[..900]);
    }
}

fn a_wire_address_is_the_same_address(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let through_wire = |address: Address| {
        let (bytes, length) = address.to_bytes();
        Address::from_bytes(&bytes[..length]).unwrap()
    };
    assert_eq!(through_wire(to), to);
    send_ok(&mut a, through_wire(to), &Train::new(b"there", 5));
    let from = groups(&mut b, 1)[0].0;
    assert_eq!((from, through_wire(from)), (a.local().address, from));
    send_ok(&mut b, through_wire(from), &Train::new(b"and back", 8));
    assert_eq!(receive(&mut a, 1), [b"and back"]);
}

fn beacons_are_heard_by_all(medium: &dyn Medium) {
    let (mut a, mut b, mut c) = (medium.bearer(0), medium.bearer(1), medium.bearer(2));
    // Other tests may use the same medium: this text is ours alone.
    let beacon = format!("beacon of {} {:?}", std::process::id(), a.local().address);
    let outcome = a.broadcast(beacon.as_bytes());
    if !a.capabilities().broadcast {
        eprintln!("SKIPPED beacons_are_heard_by_all: {} has no multicast", a.name());
        assert!(matches!(outcome, SendOutcome::Failed(_)) && a.fds().beacon.is_none());
        return;
    }
    assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
    let too_large = vec![0; usize::from(a.capabilities().mtu_bytes) + 1];
    assert!(matches!(a.broadcast(&too_large), SendOutcome::TooLarge));
    for hearer in [&mut b, &mut c] {
        let mut heard = false;
        while !heard {
            let mut batch = RxBatch::new(4);
            wait_beacon(hearer);
            hearer.recv_beacons(&mut batch).unwrap();
            heard = batch.iter().any(|group| group.bytes == beacon.as_bytes());
        }
        assert!(receive_now(hearer).is_empty());
    }
}

fn nobody_there_is_a_notice(medium: &dyn Medium) {
    let (mut a, mut b, to) = pair(medium);
    let nobody = medium.nobody(&to);
    let mut notices = Vec::new();
    for _ in 0..2 {
        notices.clear();
        send_ok(&mut a, nobody, &Train::new(b"hello?", 6));
        if a.device().is_some() {
            wait_readable(&mut a);
        }
        assert!(receive_now(&mut a).is_empty());
        a.notices(&mut notices);
        assert_eq!(notices, [Notice::Unreachable { to: nobody, code: NoticeCode::Port }]);
    }
    // Errors in between concern neither a train to somebody else nor its receiver.
    for round in 0..20 {
        let bytes = numbered(3_000, round);
        send_ok(&mut a, nobody, &Train::new(b"hello?", 6));
        send_ok(&mut a, to, &Train::new(&bytes, 1_000));
        assert_eq!(receive(&mut b, 3).concat(), bytes);
    }
    assert!(receive_now(&mut a).is_empty());
}

fn neighbours_are_known(medium: &dyn Medium) {
    let (a, b, to) = pair(medium);
    assert!(a.local().reaches(&to) && b.local().reaches(&a.local().address));
    let foreign = match to {
        Address::Ip(_) => Address::Memory(1),
        Address::Memory(_) | Address::Shm { .. } => Address::Ip("10.0.0.1:1".parse().unwrap()),
    };
    assert!(!a.local().reaches(&foreign));
    assert!(!a.name().is_empty());
}

/// Last, because it leaves the medium slow.
fn a_full_queue_refuses_and_recovers(medium: &dyn Medium) {
    if !medium.narrow() {
        eprintln!("SKIPPED a_full_queue_refuses_whole_trains_and_recovers: this medium has no queue");
        return;
    }
    let (mut a, mut b, to) = pair(medium);
    a.set_send_buffer(100_000);
    let (mut sent, mut refused) = (0u64, 0);
    let train = |number: u64| numbered(20 * 1_000, number);
    let mut got = Vec::new();
    while refused < 5 {
        match send(&mut a, to, &Train::new(&train(sent), 1_000)) {
            SendOutcome::Sent => sent += 1,
            SendOutcome::WouldBlock => {
                refused += 1;
                got.extend(receive(&mut b, 1));
                // Where the queue is the kernel's, the descriptor tells when there is room again.
                while !a.writable() {
                    wait_writable(&a);
                }
            }
            other => panic!("{other:?}"),
        }
        assert!(sent < 100_000, "nothing was ever refused");
    }
    while (got.len() as u64) < sent * 20 {
        // Whoever has more to send keeps calling, and the end of a train goes out.
        a.writable();
        if receive_into(&mut b, &mut got) == 0 && a.backlog_bytes() == 0 {
            wait_readable(&mut b);
        }
    }
    assert_eq!(got.len() as u64, sent * 20, "a refused train was sent in part");
    let mut wanted: Vec<Vec<u8>> = (0..sent)
        .flat_map(|number| train(number).chunks(1_000).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    if !b.capabilities().ordered {
        // Several sockets and processors are on the way: whole trains are promised, their order is not.
        got.sort_unstable();
        wanted.sort_unstable();
    }
    assert!(got == wanted, "what arrived is not what was taken");
    assert!(a.writable());
}

fn receive_into(bearer: &mut dyn Bearer, got: &mut Vec<Vec<u8>>) -> usize {
    let more = receive_now(bearer);
    got.extend_from_slice(&more);
    more.len()
}
