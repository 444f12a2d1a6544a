//! Sending, waiting and receiving for the claims.

use std::io::IoSlice;

use polyrail_bearer::{Address, Bearer, RxBatch, SendOutcome, Transmit};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::epoll::{Epoll, Events, Interest};

/// Nothing on one machine takes so long; a test that waits longer has lost something.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Bytes that differ by place and by `salt`, so that none can be mistaken for another.
pub fn numbered(bytes: usize, salt: u64) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// A train whose bytes lie in one piece or in many.
pub struct Train<'a> {
    slices: Vec<IoSlice<'a>>,
    bytes: usize,
    segment_bytes: usize,
    lend: bool,
}

impl<'a> Train<'a> {
    pub fn new(bytes: &'a [u8], segment_bytes: usize) -> Train<'a> {
        Train { slices: vec![IoSlice::new(bytes)], bytes: bytes.len(), segment_bytes, lend: false }
    }

    /// The same, to be left as it is until it has been received.
    pub fn lent(bytes: &'a [u8], segment_bytes: usize) -> Train<'a> {
        Train { lend: true, ..Train::new(bytes, segment_bytes) }
    }

    /// The same in slices of 0, 1, 2... bytes, over and over.
    pub fn in_pieces(bytes: &'a [u8], segment_bytes: usize, pieces_max: usize) -> Train<'a> {
        let (mut slices, mut rest) = (Vec::new(), bytes);
        while slices.len() + 1 < pieces_max && !rest.is_empty() {
            let (head, tail) = rest.split_at((slices.len() % 97).min(rest.len()));
            slices.push(IoSlice::new(head));
            rest = tail;
        }
        slices.push(IoSlice::new(rest));
        Train { slices, bytes: bytes.len(), segment_bytes, lend: false }
    }
}

pub fn send(bearer: &mut dyn Bearer, to: Address, train: &Train<'_>) -> SendOutcome {
    let &Train { ref slices, bytes, segment_bytes, lend } = train;
    bearer.send(&Transmit { to, segment_bytes, bytes, slices, express: true, lend, dscp: 0 })
}

#[track_caller]
pub fn send_ok(bearer: &mut dyn Bearer, to: Address, train: &Train<'_>) {
    let outcome = send(bearer, to, train);
    assert!(matches!(outcome, SendOutcome::Sent), "{outcome:?}");
}

fn wait(fds: &[i32], interest: Interest) {
    let (epoll, mut events) = (Epoll::new().unwrap(), Events::new(1));
    for fd in fds {
        epoll.add(*fd, 0, interest).unwrap();
    }
    let until = monotonic_ns() + PATIENCE_NS;
    // A stopped and continued process, for one, ends the wait early.
    while epoll.wait(&mut events, Some(PATIENCE_NS)).unwrap() == 0 {
        assert!(monotonic_ns() < until, "waited in vain");
    }
}

/// Waits until data has arrived, as whoever sleeps for a bearer does.
pub fn wait_readable(bearer: &mut dyn Bearer) {
    if !bearer.doze(true) {
        let fds = bearer.fds().data;
        wait(&fds, Interest::READ);
        for fd in fds {
            bearer.prefer(fd);
        }
    }
    bearer.rouse();
}

/// Waits until a beacon has arrived.
pub fn wait_beacon(bearer: &dyn Bearer) {
    wait(bearer.fds().beacon.as_slice(), Interest::READ);
}

/// Waits until there is room for what was refused.
pub fn wait_writable(bearer: &dyn Bearer) {
    wait(bearer.fds().room.as_slice(), Interest::WRITE);
}

/// A group as received: sender, stride, datagrams.
pub type Group = (Address, usize, Vec<Vec<u8>>);

/// Whatever is there now, by group.
pub fn groups_now(bearer: &mut dyn Bearer) -> Vec<Group> {
    let (mut batch, mut out) = (RxBatch::new(32), Vec::new());
    loop {
        batch.clear();
        let count = bearer.recv(&mut batch, true).unwrap();
        assert_eq!(count, batch.len());
        if count == 0 {
            return out;
        }
        let copy = |d: &[u8]| d.to_vec();
        out.extend(batch.iter().map(|g| (g.from, g.stride, g.datagrams().map(copy).collect::<Vec<_>>())));
    }
}

/// Waits for at least `datagrams` datagrams, by group.
pub fn groups(bearer: &mut dyn Bearer, datagrams: usize) -> Vec<Group> {
    let mut out: Vec<Group> = Vec::new();
    while out.iter().map(|group| group.2.len()).sum::<usize>() < datagrams {
        wait_readable(bearer);
        out.extend(groups_now(bearer));
    }
    out
}

/// Whatever is there now.
pub fn receive_now(bearer: &mut dyn Bearer) -> Vec<Vec<u8>> {
    groups_now(bearer).into_iter().flat_map(|group| group.2).collect()
}

/// Waits for at least `datagrams` datagrams.
pub fn receive(bearer: &mut dyn Bearer, datagrams: usize) -> Vec<Vec<u8>> {
    groups(bearer, datagrams).into_iter().flat_map(|group| group.2).collect()
}
