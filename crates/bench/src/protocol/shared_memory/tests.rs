//! Both limits between two ends in one process; a pipe's end is closed there as the kernel does it for one that dies.

use super::*;
use crate::check::{number_of, stamp};
use crate::workload::setup_for_tests;

const PATIENCE: Duration = Duration::from_secs(20);
const WAITS: [WaitMode; 3] = [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block];

fn setup(size: usize, wait: WaitMode) -> Setup {
    Setup { wait, ..setup_for_tests(size) }
}

/// The receiver's hold and the sender's.
fn holds(kind: Kind, wait: WaitMode) -> [Shared; 2] {
    let meeting = Meeting::new(kind.area_bytes()).unwrap();
    let sender = Shared::join(&meeting.address(), kind.area_bytes(), wait).unwrap();
    [meeting.accept(PATIENCE, kind.area_bytes(), wait).unwrap(), sender]
}

fn pair(kind: Kind, size: usize, wait: WaitMode) -> [Box<dyn Pipe>; 2] {
    holds(kind, wait).map(|shared| kind.pipe(shared, &setup(size, wait)).unwrap())
}

/// Sends numbered messages from `first` on until no more are taken; the number after the last.
fn fill(sender: &mut dyn Pipe, size: usize, first: u64) -> u64 {
    let mut message = vec![0x5A; size];
    let mut number = first;
    loop {
        stamp(&mut message, number);
        if !sender.send(&message).unwrap() {
            return number;
        }
        number += 1;
    }
}

/// Receives until the error that ends it; what came before.
fn drain(receiver: &mut dyn Pipe, size: usize) -> (Vec<Option<u64>>, io::ErrorKind) {
    let mut got = Vec::new();
    loop {
        if let Err(error) = receiver.recv(&mut |message| got.push(number_of(message, size))) {
            return (got, error.kind());
        }
    }
}

#[test]
fn messages_that_just_fill_a_line_or_just_do_not_arrive_whole_both_ways() {
    for size in [8, 55, 56, 57, 111, 112] {
        let mut ends = pair(Kind::Mailbox, size, WaitMode::Spin);
        for _ in 0..2 {
            let [to, from] = &mut ends;
            for number in 0..200_u64 {
                let message: Vec<u8> = (0..size).map(|at| (at as u64 * 7 + number) as u8).collect();
                while !from.send(&message).unwrap() {}
                let mut got = Vec::new();
                while to.recv(&mut |message| got.push(message.to_vec())).unwrap() == 0 {}
                assert_eq!(got, [message], "{size} bytes");
            }
            ends.reverse();
        }
    }
}

#[test]
fn a_full_row_or_ring_takes_no_more_and_what_it_holds_arrives_before_the_senders_end() {
    for kind in [Kind::Mailbox, Kind::ByteRing] {
        for (wait, size) in WAITS.into_iter().flat_map(|wait| [(wait, 8), (wait, 100)]) {
            let [mut receiver, mut sender] = pair(kind, size, wait);
            let half = fill(sender.as_mut(), size, 0);
            let mut got = Vec::new();
            while (got.len() as u64) < half {
                receiver.recv(&mut |message| got.push(number_of(message, size))).unwrap();
            }
            // Round the end of the memory once more.
            let all = fill(sender.as_mut(), size, half);
            drop(sender);
            let (rest, end) = drain(receiver.as_mut(), size);
            got.extend(rest);
            assert!(half >= 64 && got.into_iter().eq((0..all).map(Some)), "{wait:?} {size}");
            assert_eq!(end, io::ErrorKind::UnexpectedEof);
        }
    }
}

#[test]
fn a_sender_whose_receiver_has_ended_is_told_however_it_waits() {
    for kind in [Kind::Mailbox, Kind::ByteRing] {
        for wait in WAITS {
            let [receiver, mut sender] = pair(kind, 64, wait);
            drop(receiver);
            let error = loop {
                match sender.send(&[0; 64]) {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{wait:?}");
        }
    }
}

/// How often this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_side_with_nothing_to_do_sleeps_unless_it_is_to_spin() {
    for kind in [Kind::Mailbox, Kind::ByteRing] {
        for (wait, sleeps_at_least) in [(WaitMode::Spin, 0), (WaitMode::Adaptive, 3), (WaitMode::Block, 3)] {
            let [mut receiver, mut sender] = pair(kind, 64, wait);
            let before = sleeps();
            assert!((0..3).all(|_| receiver.recv(&mut |_| panic!("a message")).unwrap() == 0));
            assert!(sleeps() - before >= sleeps_at_least, "{wait:?}");
            fill(sender.as_mut(), 64, 0);
            let before = sleeps();
            assert!((0..3).all(|_| !sender.send(&[0; 64]).unwrap()));
            assert!(sleeps() - before >= sleeps_at_least, "{wait:?}");
        }
    }
}

#[test]
fn a_sleeper_is_woken_by_what_it_waits_for() {
    for kind in [Kind::Mailbox, Kind::ByteRing] {
        let [mut receiver, mut sender] = pair(kind, 100, WaitMode::Block);
        // Both sleep in turn: the receiver before each message, the sender at each full row or ring.
        const MESSAGES: u64 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut message = [0x5A; 100];
                for number in 0..MESSAGES {
                    stamp(&mut message, number);
                    while !sender.send(&message).unwrap() {}
                }
            });
            let (got, end) = drain(receiver.as_mut(), 100);
            assert!(got.into_iter().eq((0..MESSAGES).map(Some)));
            assert_eq!(end, io::ErrorKind::UnexpectedEof);
        });
    }
}

#[test]
fn memory_of_another_listener_is_refused() {
    let meeting = Meeting::new(Kind::Mailbox.area_bytes()).unwrap();
    let address = meeting.address();
    let (files, token) = address.rsplit_once(',').unwrap();
    let other = u64::from_str_radix(token, 16).unwrap() ^ 1;
    for (address, area_bytes) in [
        (format!("{files},{other:x}"), Kind::Mailbox.area_bytes()),
        (address.clone(), Kind::ByteRing.area_bytes()),
    ] {
        let error = Shared::join(&address, area_bytes, WaitMode::Spin).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    }
    let nonsense = Shared::join("here", Kind::Mailbox.area_bytes(), WaitMode::Spin).err().unwrap();
    assert_eq!(nonsense.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn an_index_that_cannot_be_is_an_error_and_no_panic() {
    const WILD: u64 = u64::MAX / 2;
    for (kind, place, sends) in
        [(Kind::Mailbox, 0, true), (Kind::ByteRing, 128, true), (Kind::ByteRing, 0, false)]
    {
        let [receiver, sender] = holds(kind, WaitMode::Spin);
        let segment = sender.segment.clone();
        let area = sender.outgoing;
        let [mut receiver, mut sender] =
            [receiver, sender].map(|shared| kind.pipe(shared, &setup(64, WaitMode::Spin)).unwrap());
        Word::new(&segment, area + place).unwrap().store(WILD);
        let error = loop {
            let result = if sends {
                sender.send(&[0; 64]).map(|_| 0)
            } else {
                receiver.recv(&mut |_| panic!("a message"))
            };
            if let Err(error) = result {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(&WILD.to_string()), "{error}");
    }
}

#[test]
fn a_message_too_long_for_two_lines_is_refused_before_the_run() {
    let refused = CACHE_LINE.supports(Workload::Rate, 113).unwrap_err();
    assert!(refused.contains("112 bytes, not 113"), "{refused}");
    CACHE_LINE.supports(Workload::Rate, 112).unwrap();
    MEMCPY.supports(Workload::Stream, 16 << 20).unwrap();
    assert!(CACHE_LINE.listen(&setup(113, WaitMode::Spin)).is_ok_and(|listener| {
        let connected = CACHE_LINE.connect(&setup(113, WaitMode::Spin), &listener.address(), PATIENCE);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
    }));
}
