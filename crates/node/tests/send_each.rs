//! Several messages of one call: the same as if each had been sent by itself, past the engine or by it.

mod machine;

use machine::{Machine, PATIENCE, make_ring};
use polyrail::{
    Class, Destination, ErrorCode, Message, Port, SendEachError, SendError, ServiceAddress, Wait,
};
use std::time::Duration;

const NOBODY: ServiceAddress = ServiceAddress::new(1000, 99);

/// Message `number`: most are short, some go by the arena, few by a buffer.
fn body(number: u64) -> Vec<u8> {
    let len = match number {
        _ if number % 4_001 == 4_000 => 1_500_000,
        _ if number % 97 == 96 => 5_000,
        _ => 8 + number as usize % 150,
    };
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Receives the messages up to `count`, by turns in each way.
fn receive_all(port: &Port, count: u64) {
    const WAYS: [Wait; 3] = [Wait::Spin, Wait::Block, Wait::Adaptive];
    let mut next = 0;
    while next < count {
        port.set_wait(WAYS[next as usize / 700 % 3]);
        let each = |message: &Message<'_>| {
            assert_eq!(message.bytes(), body(next), "message {next}");
            next += 1;
        };
        assert_ne!(port.recv_each(100, Some(PATIENCE), each).unwrap(), 0, "waited in vain for {next}");
    }
    assert!(port.try_recv().unwrap().is_none());
}

/// Sends so many messages by calls of all lengths, some by calls for one.
fn send_all(port: &Port, to: Destination, count: u64) {
    let mut next = 0;
    for call in 0.. {
        let most = [1, 2, 63, 64, 65, 500][call % 6];
        let messages: Vec<_> = (next..count.min(next + most)).map(body).collect();
        if messages.is_empty() {
            break;
        }
        next += messages.len() as u64;
        match &messages[..] {
            [only] if call % 12 == 0 => port.send(to, only).unwrap(),
            all => port.send_each(to, all, Some(PATIENCE)).unwrap(),
        }
    }
    port.flush(Some(PATIENCE)).unwrap();
}

#[test]
fn they_arrive_once_and_in_order_past_the_engine() {
    const COUNT: u64 = 50_000;
    let machine = Machine::new("order");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    make_ring(&sender, &receiver);
    let to = receiver.address().into();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sender = sender;
            send_all(&sender, to, COUNT);
            assert!(sender.sent_direct() > COUNT / 2, "past the engine went {}", sender.sent_direct());
        });
        receive_all(&receiver, COUNT);
    });
}

#[test]
fn they_arrive_once_and_in_order_by_the_engine() {
    const COUNT: u64 = 10_000;
    let machine = Machine::new("engine");
    let (sender, receiver) = (machine.node.port().unwrap(), machine.node.port().unwrap());
    let to = receiver.address().into();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sender = sender;
            send_all(&sender, to, COUNT);
            assert_eq!(sender.sent_direct(), 0);
        });
        receive_all(&receiver, COUNT);
    });
}

#[test]
fn a_call_without_room_tells_how_many_were_taken_and_those_arrive() {
    let machine = Machine::new("room");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    make_ring(&sender, &receiver);
    let to = receiver.address();
    let messages: Vec<_> =
        (0..60_000).map(body).map(|mut bytes| bytes.drain(..8).collect::<Vec<_>>()).collect();
    let mut sent = 0;
    let mut taken = 0;
    let mut blocked = 0;
    while sent < messages.len() {
        match sender.send_each(to, &messages[sent..], Some(Duration::ZERO)) {
            Ok(()) => sent = messages.len(),
            Err(SendEachError { taken, why }) => {
                assert_eq!(why, SendError::Blocked);
                blocked += 1;
                sent += taken;
            }
        }
        receiver
            .recv_each(usize::MAX, Some(Duration::ZERO), |message| {
                assert_eq!(message.bytes(), messages[taken]);
                taken += 1;
            })
            .unwrap();
        assert!(taken <= sent);
    }
    assert!(blocked > 0, "no ring takes so many");
    while taken < messages.len() {
        assert_eq!(
            receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain").bytes(),
            messages[taken]
        );
        taken += 1;
    }
}

#[test]
fn what_nobody_serves_is_refused_and_a_class_is_kept() {
    let machine = Machine::new("fails");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    let none: [&[u8]; 0] = [];
    sender.send_each(NOBODY, &none, None).unwrap();
    let error = sender.send_each(NOBODY, &["one", "two"], None).unwrap_err();
    assert_eq!((error.taken, error.why.code()), (0, ErrorCode::NoService));
    assert!(error.to_string().starts_with("0 messages were taken, then: service 1000:99"), "{error}");
    make_ring(&sender, &receiver);
    let urgent = sender.send_each_with(receiver.address().into(), Class::Urgent, &["one", "two"], None);
    urgent.unwrap();
    for word in ["one", "two"] {
        let message = receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
        assert_eq!((message.bytes(), message.class()), (word.as_bytes(), Class::Urgent));
    }
}

#[test]
fn a_failure_of_an_earlier_message_ends_a_call_and_each_is_told_once() {
    let machine = Machine::new("earlier");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    make_ring(&sender, &receiver);
    let gone = other.port().unwrap();
    let to_gone = gone.address();
    sender.send(to_gone, b"read").unwrap();
    sender.flush(Some(PATIENCE)).unwrap();
    drop(gone);
    // Those fail some time after they were handed in; what is told of them meanwhile is not told again.
    let mut untold = 0;
    while untold < 3 {
        untold += if sender.send(to_gone, b"in vain").is_ok() { 1 } else { -1 };
    }
    assert!(sender.flush(Some(PATIENCE)).is_err());
    untold -= 1;
    let (mut failures, mut sent) = (0, 0);
    while sent < 100 {
        let words: Vec<_> = (sent..100u64).map(u64::to_le_bytes).collect();
        match sender.send_each(receiver.address(), &words, Some(PATIENCE)) {
            Ok(()) => sent = 100,
            Err(SendEachError { taken, why: SendError::Earlier { .. } }) => {
                failures += 1;
                sent += taken as u64;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(failures, untold);
    for number in 0..100u64 {
        let message = receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
        assert_eq!(message.bytes(), number.to_le_bytes());
    }
}
