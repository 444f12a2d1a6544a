//! Messages between programs of one machine that go past the engine: the same order, blocking and ends as by it.

mod machine;

use machine::{Machine, PATIENCE, make_ring, until_direct};
use polyrail::{Class, Destination, Port, Scope, SendError, SendOptions, ServiceAddress, Wait};
use std::time::{Duration, Instant};

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 1);

fn number_of(port: &Port) -> u64 {
    let message = port.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
    u64::from_le_bytes(message.bytes()[..8].try_into().unwrap())
}

#[test]
fn whatever_way_each_message_goes_they_arrive_once_and_in_order() {
    let machine = Machine::new("order");
    let (program, other) = (machine.attach(), machine.attach());
    let receiver = other.port().unwrap();
    receiver.bind(SERVICE, Scope::Node).unwrap();
    let to = receiver.address();
    const COUNT: u64 = 60_000;
    let sending = std::thread::spawn(move || {
        let sender = program.port().unwrap();
        let returns = SendOptions { returns: true, ..SendOptions::default() };
        let mut seed = 7u64;
        for number in 0..COUNT {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = seed >> 33;
            let len = match random % 10_000 {
                0 => 5 << 20,
                1..10 => 1_500_000,
                10..200 => 100_000,
                200..1_000 => 3_000,
                _ => 8 + random as usize % 120,
            };
            let mut bytes = vec![number as u8; len];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            // For long stretches to the same.
            match (number / 2_000 % 3, random % 2_000) {
                (_, 500..700) if len > 1_000 => {
                    let mut buffer = sender.alloc(len).unwrap();
                    buffer.copy_from_slice(&bytes);
                    sender.send_buffer(to, buffer).unwrap();
                }
                (_, 1_998) if random.is_multiple_of(3) => drop(sender.send_as(to, &bytes, &returns).unwrap()),
                (0, _) => sender.send(SERVICE, &bytes).unwrap(),
                (1, 0..1_000) => {
                    sender.send_with(to.into(), Class::Normal, Some(number), &bytes, None).unwrap();
                }
                _ => sender.send(to, &bytes).unwrap(),
            }
        }
        sender.flush(Some(PATIENCE)).unwrap();
        sender.sent_direct()
    });
    let mut held = Vec::new();
    for number in 0..COUNT {
        let message = receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
        let bytes = message.bytes();
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), number);
        assert!(bytes[8..].iter().all(|&byte| byte == number as u8), "{number}");
        assert!(message.tag().is_none_or(|tag| tag == number));
        // Some are kept for a while, and given back in any order.
        if number % 97 == 0 {
            held.push((number, message));
            if held.len() > 8 {
                let (number, kept) = held.swap_remove(number as usize % 8);
                assert!(kept.bytes()[8..].iter().all(|&byte| byte == number as u8));
            }
        }
    }
    drop(held);
    assert!(receiver.recv_timeout(Duration::from_millis(50)).unwrap().is_none(), "one came twice");
    let direct = sending.join().unwrap();
    // How many is a matter of how busy the machine is.
    assert!((COUNT / 100..COUNT).contains(&direct), "{direct} of {COUNT} went past the engine");
}

/// Sends a buffer that says which it is, and what is in the rest of it.
fn send_buffer(sender: &Port, to: impl Into<Destination>, len: usize, number: u64) {
    let mut buffer = sender.alloc(len).unwrap();
    buffer.fill(number as u8);
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    sender.send_buffer(to, buffer).unwrap();
}

#[test]
fn buffers_of_any_length_go_past_the_engine_and_come_back_when_they_were_read() {
    let machine = Machine::new("buffers");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    receiver.bind(SERVICE, Scope::Node).unwrap();
    let mut number = 0u64;
    let receive = |number: u64, len: usize| {
        let message = receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
        assert_eq!(message.len(), len);
        assert!(message.bytes()[8..].iter().all(|&byte| byte == number as u8), "{number}");
        assert_eq!(u64::from_le_bytes(message.bytes()[..8].try_into().unwrap()), number);
    };
    // The first go by the engine, however long they are.
    while sender.sent_direct() == 0 {
        number += 1;
        send_buffer(&sender, SERVICE, 3 << 20, number);
        receive(number, 3 << 20);
        assert!(number < 100_000, "no ring");
    }
    let (before, first) = (sender.sent_direct(), number);
    for len in [100, 2_049, 65_536, (1 << 20) + 1, 10 << 20, 16 << 20, 5_000, 200_000].repeat(12) {
        number += 1;
        send_buffer(&sender, SERVICE, len, number);
        receive(number, len);
        number += 1;
        // What is copied is copied to where it is passed from.
        let mut bytes = vec![number as u8; len];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        sender.send(SERVICE, &bytes).unwrap();
        receive(number, len);
    }
    assert_eq!(sender.sent_direct() - before, number - first);
    sender.flush(Some(PATIENCE)).unwrap();
}

#[test]
fn what_the_receiver_holds_is_not_written_again() {
    let machine = Machine::new("held");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    let to = receiver.address();
    make_ring(&sender, &receiver);
    let mut held = std::collections::VecDeque::new();
    for number in 0..500u64 {
        // At last more than can be passed at a time: others are copied.
        let (held_max, long_too) = if number < 250 { (60, true) } else { (80, false) };
        let len = if long_too && number % 10 == 0 { (1 << 20) + 1 } else { 10_000 };
        send_buffer(&sender, to, len, number);
        held.push_back((number, receiver.recv_timeout(PATIENCE).unwrap().expect("waited in vain")));
        if held.len() > held_max {
            let (number, message) = held.remove(number as usize % held_max).unwrap();
            assert!(message.bytes()[8..].iter().all(|&byte| byte == number as u8), "{number}");
        }
    }
    assert!(
        held.iter().all(|(number, message)| message.bytes()[8..].iter().all(|&byte| byte == *number as u8))
    );
}

#[test]
fn who_has_all_buffers_out_waits_until_one_comes_back() {
    let machine = Machine::new("out");
    let (program, other) = (machine.attach(), machine.attach());
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
        let to = receiver.address();
        sender.set_wait(wait);
        make_ring(&sender, &receiver);
        // Half of them lie in the ring.
        for number in 0..64 {
            send_buffer(&sender, to, (1 << 20) + 1, number);
        }
        let mut held: Vec<_> = (0..32).map(|_| receiver.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
        let sending = std::thread::spawn(move || {
            (64..80).for_each(|number| send_buffer(&sender, to, (1 << 20) + 1, number));
            sender
        });
        while !sending.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            held.pop();
        }
        let sender = sending.join().unwrap();
        assert!(held.len() <= 16);
        drop(held);
        for number in 32..80 {
            assert_eq!(number_of(&receiver), number);
        }
        assert!(sender.sent_direct() > 80);
    }
}

#[test]
fn what_a_sender_that_has_ended_passed_is_read_all_the_same() {
    let machine = Machine::new("ended-buffers");
    let (program, other) = (machine.attach(), machine.attach());
    let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
    let to = receiver.address();
    make_ring(&sender, &receiver);
    for number in 0..40 {
        send_buffer(&sender, to, 100_000, number);
    }
    let first = receiver.recv_timeout(PATIENCE).unwrap().unwrap();
    drop(sender);
    // The program's memory is used again, but not that.
    let again = program.port().unwrap();
    let others: Vec<_> =
        (0..60).map(|_| again.alloc(100_000).unwrap()).map(|mut buffer| buffer.fill(255)).collect();
    assert_eq!((others.len(), first.bytes()[8]), (60, 0));
    drop(first);
    for number in 1..40u64 {
        let message = receiver.recv_timeout(PATIENCE).unwrap().unwrap();
        assert!(message.bytes()[8..].iter().all(|&byte| byte == number as u8), "{number}");
    }
}

#[test]
fn a_ring_that_is_full_blocks_until_its_receiver_reads() {
    let machine = Machine::new("full");
    let (program, other) = (machine.attach(), machine.attach());
    for wait in [Wait::Block, Wait::Adaptive] {
        let (sender, receiver) = (program.port().unwrap(), other.port().unwrap());
        let to = receiver.address();
        sender.set_wait(wait);
        receiver.set_wait(wait);
        let mut sent = 0u64;
        let mut next = || {
            sent += 1;
            sent.to_le_bytes().to_vec()
        };
        until_direct(&sender, to, &mut next);
        let mut full = false;
        while !full {
            let message = next();
            match sender.try_send(to, &message) {
                Ok(()) => {}
                Err(SendError::Blocked) => full = true,
                Err(other) => panic!("{other}"),
            }
        }
        let more = 5_000;
        let sending = std::thread::spawn(move || {
            // The one that found no room goes now.
            for number in sent..=sent + more {
                sender.send(to, &number.to_le_bytes()).unwrap();
            }
        });
        for number in 1..=sent + more {
            assert_eq!(number_of(&receiver), number);
        }
        sending.join().unwrap();
    }
}

#[test]
fn who_sends_to_a_port_that_is_closed_or_gone_learns_of_it() {
    let machine = Machine::new("closed");
    let program = machine.attach();
    let sender = program.port().unwrap();
    for whole_program in [false, true] {
        let other = machine.attach();
        let receiver = other.port().unwrap();
        let to = receiver.address();
        until_direct(&sender, to, || b"hello".to_vec());
        drop(receiver);
        if whole_program {
            drop(other);
        }
        let began = Instant::now();
        let failed = loop {
            match sender.send(to, b"anybody?") {
                Ok(()) => assert!(began.elapsed() < PATIENCE),
                Err(error) => break error,
            }
            if let Some((_, why)) = sender.take_failure() {
                break SendError::Earlier { number: 0, why };
            }
        };
        assert!(matches!(failed, SendError::Earlier { .. }), "{failed}");
        while sender.take_failure().is_some() {}
    }
}

#[test]
fn what_a_sender_that_ends_has_sent_is_read() {
    let machine = Machine::new("ended");
    let (program, other) = (machine.attach(), machine.attach());
    let receiver = other.port().unwrap();
    let to = receiver.address();
    let mut sent = 0u64;
    let sender = program.port().unwrap();
    until_direct(&sender, to, || {
        sent += 1;
        sent.to_le_bytes().to_vec()
    });
    for _ in 0..500 {
        sent += 1;
        sender.send(to, &sent.to_le_bytes()).unwrap();
    }
    drop(sender);
    drop(program);
    std::thread::sleep(Duration::from_millis(20));
    for number in 1..=sent {
        assert_eq!(number_of(&receiver), number);
    }
}

#[test]
fn a_program_that_waits_on_a_descriptor_is_told() {
    let machine = Machine::new("descriptor");
    let (program, other) = (machine.attach(), machine.attach());
    let receiver = other.port().unwrap();
    let (to, fd) = (receiver.address(), receiver.fd().unwrap());
    const COUNT: u64 = 3_000;
    let sending = std::thread::spawn(move || {
        let sender = program.port().unwrap();
        for number in 0..COUNT {
            sender.send(to, &number.to_le_bytes()).unwrap();
            if number % 50 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        sender.sent_direct()
    });
    let mut next = 0;
    while next < COUNT {
        let mut set = polyrail_sys::poll::PollSet::default();
        set.add(fd, false);
        assert!(set.wait(Some(PATIENCE.as_nanos() as u64)).unwrap() > 0, "it was not told of {next}");
        while let Some(message) = receiver.try_recv().unwrap() {
            assert_eq!(u64::from_le_bytes(message.bytes().try_into().unwrap()), next);
            next += 1;
        }
    }
    assert!(sending.join().unwrap() > COUNT / 2);
}

#[test]
fn a_server_that_waits_on_a_descriptor_is_told_of_connections_that_go_past_the_engine() {
    let machine = Machine::new("descriptor-connections");
    let (program, other) = (machine.attach(), machine.attach());
    let server = other.port().unwrap();
    server.listen(8).unwrap();
    let (to, fd) = (server.address(), server.fd().unwrap());
    const COUNT: u64 = 500;
    let asking = std::thread::spawn(move || {
        let client = program.port().unwrap();
        for number in 0..COUNT {
            let asking = client.ask(to, &number.to_le_bytes()).unwrap();
            let answer = asking.recv_timeout(PATIENCE).unwrap().expect("an answer");
            assert_eq!(answer.bytes(), number.to_le_bytes());
        }
        client.sent_direct()
    });
    let mut answered = 0;
    while answered < COUNT {
        let mut set = polyrail_sys::poll::PollSet::default();
        set.add(fd, false);
        assert!(set.wait(Some(PATIENCE.as_nanos() as u64)).unwrap() > 0, "it was not told of {answered}");
        assert!(server.try_recv().unwrap().is_none());
        while let Ok(answering) = server.accept_timeout(Duration::ZERO) {
            let question = answering.recv_timeout(PATIENCE).unwrap().expect("it came with the question");
            answering.send_last(question.bytes()).unwrap();
            answered += 1;
        }
    }
    assert!(asking.join().unwrap() > COUNT / 2);
}

#[test]
fn what_leaves_the_machine_or_goes_to_the_nodes_own_program_is_never_held_up_for_a_ring() {
    let machine = Machine::new("embedded");
    let program = machine.attach();
    let (sender, receiver) = (program.port().unwrap(), machine.node.port().unwrap());
    receiver.bind(SERVICE, Scope::Node).unwrap();
    for number in 0..2_000u64 {
        if number % 3 == 0 {
            sender.send(SERVICE, &number.to_le_bytes()).unwrap();
        } else {
            sender.send(receiver.address(), &number.to_le_bytes()).unwrap();
        }
    }
    for number in 0..2_000 {
        assert_eq!(number_of(&receiver), number);
    }
    assert_eq!(sender.sent_direct(), 0);
}

#[test]
fn what_is_urgent_is_read_before_bulk_that_came_first_and_senders_take_turns() {
    let machine = Machine::new("classes");
    let (program, other) = (machine.attach(), machine.attach());
    let receiver = other.port().unwrap();
    let to = Destination::Port(receiver.address());
    let senders = [program.port().unwrap(), program.port().unwrap()];
    let send = |sender: usize, class: Class| {
        let direct = senders[sender].sent_direct();
        senders[sender].send_with(to, class, Some(sender as u64), b"x", None).unwrap();
        senders[sender].sent_direct() > direct
    };
    let flows = [(0, Class::Bulk), (1, Class::Bulk), (1, Class::Urgent)];
    // Each has a ring, and all of these were read.
    for (sender, class) in flows {
        let began = Instant::now();
        while !send(sender, class) {
            assert!(began.elapsed() < PATIENCE, "no ring");
        }
    }
    while receiver.recv_timeout(Duration::from_millis(50)).unwrap().is_some() {}
    for (sender, class) in flows {
        assert!((0..3).all(|_| send(sender, class)));
    }
    let read: Vec<_> = (0..9)
        .map(|_| {
            let message = receiver.recv_timeout(PATIENCE).unwrap().unwrap();
            (message.class(), message.tag().unwrap())
        })
        .collect();
    assert_eq!(read[..3], [(Class::Urgent, 1); 3]);
    assert!(read[3..].iter().all(|(class, _)| *class == Class::Bulk));
    assert!(read[3..].windows(2).all(|pair| pair[0].1 != pair[1].1), "{read:?}");
}

#[test]
fn who_answers_many_one_after_the_other_has_a_ring_to_each_of_them() {
    let machine = Machine::new("many");
    let (program, other) = (machine.attach(), machine.attach());
    let server = other.port().unwrap();
    let clients: Vec<Port> = (0..40).map(|_| program.port().unwrap()).collect();
    let round = || {
        let before = server.sent_direct();
        clients.iter().for_each(|client| client.send(server.address(), b"question").unwrap());
        for _ in &clients {
            let question = server.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
            server.send(question.from(), question.bytes()).unwrap();
        }
        clients.iter().for_each(|client| assert!(client.recv_timeout(PATIENCE).unwrap().is_some()));
        server.sent_direct() - before
    };
    let began = Instant::now();
    let mut direct = 0;
    while direct < clients.len() as u64 {
        assert!(began.elapsed() < PATIENCE, "{direct} of {} answers go past the engine", clients.len());
        direct = round();
    }
}

#[test]
fn messages_that_are_handed_over_where_they_lie_are_the_same_and_can_be_answered_at_once() {
    let machine = Machine::new("each");
    let (program, other) = (machine.attach(), machine.attach());
    let receiver = other.port().unwrap();
    let to = receiver.address();
    const COUNT: u64 = 20_000;
    const WAYS: [Wait; 3] = [Wait::Spin, Wait::Block, Wait::Adaptive];
    let sending = std::thread::spawn(move || {
        let sender = program.port().unwrap();
        until_direct(&sender, to, Vec::new);
        let mut answered = 0;
        for number in 0..COUNT {
            let len = if number % 100 == 0 { 70_000 } else { 8 + number as usize % 200 };
            let mut message = vec![number as u8; len];
            message[..8].copy_from_slice(&number.to_le_bytes());
            sender.send(to, &message).unwrap();
            if number % 1_000 == 999 {
                // It falls asleep where it does that.
                std::thread::sleep(Duration::from_millis(2));
                sender.set_wait(WAYS[number as usize / 1_000 % 3]);
            }
            let each = |answer: &polyrail::Message<'_>| {
                assert_eq!(answer.bytes(), u64::to_le_bytes(answered));
                answered += 1;
            };
            sender.recv_each(usize::MAX, Some(Duration::ZERO), each).unwrap();
        }
        while answered < COUNT {
            let message = sender.recv_timeout(PATIENCE).unwrap().expect("waited in vain");
            assert_eq!(message.bytes(), u64::to_le_bytes(answered));
            answered += 1;
        }
        assert!(sender.sent_direct() > COUNT / 2, "past the engine went {}", sender.sent_direct());
    });
    let mut expected = 0;
    while expected < COUNT {
        receiver.set_wait(WAYS[expected as usize / 512 % 3]);
        let each = |message: &polyrail::Message<'_>| {
            if message.is_empty() {
                return;
            }
            let (number, rest) = message.bytes().split_at(8);
            assert_eq!(number, expected.to_le_bytes());
            assert!(rest.iter().all(|&byte| byte == expected as u8), "message {expected}");
            receiver.send(message.from(), number).unwrap();
            expected += 1;
        };
        let count = receiver.recv_each(100, Some(PATIENCE), each).unwrap();
        assert!((1..=100).contains(&count), "{count} at once");
    }
    sending.join().unwrap();
    assert_eq!(receiver.recv_each(0, None, |_| ()).unwrap(), 0, "none was asked for");
    assert_eq!(receiver.recv_each(9, Some(Duration::ZERO), |_| ()).unwrap(), 0, "there is none");
}

#[test]
fn nobody_gives_up_before_its_time_whatever_clock_it_looked_at() {
    let machine = Machine::new("time");
    let (program, embedded) = (machine.attach(), machine.node.port().unwrap());
    let attached = program.port().unwrap();
    for wait in [Wait::Block, Wait::Adaptive, Wait::Spin] {
        for span in [0, 1, 9, 39, 41, 99, 101, 150].map(Duration::from_millis) {
            for port in [&attached, &embedded] {
                port.set_wait(wait);
                let began = Instant::now();
                assert!(port.recv_timeout(span).unwrap().is_none());
                assert!(began.elapsed() >= span, "{wait:?}: {span:?}, but {:?}", began.elapsed());
            }
        }
    }
}

#[test]
fn who_is_woken_for_something_else_waits_on_for_all_of_its_time() {
    let machine = Machine::new("woken");
    let program = machine.attach();
    let (attached, embedded) = (program.port().unwrap(), machine.node.port().unwrap());
    attached.set_wait(Wait::Block);
    let (to, span) = (attached.address(), Duration::from_millis(60));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..20 {
                embedded.send(to, b"not what it waits for").unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let began = Instant::now();
        assert!(attached.wait_for(SERVICE, Some(span)).is_err());
        assert!(began.elapsed() >= span, "{:?}", began.elapsed());
    });
}
