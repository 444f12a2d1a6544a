//! Every protocol that needs no links, between two threads of this machine.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use super::*;
use crate::check::{number_of, stamp};
use crate::wait::WaitMode;
use crate::workload::setup_for_tests;

const PATIENCE: Duration = Duration::from_secs(20);
const MESSAGES: u64 = 2_000;
const CALLS: u64 = 500;

/// Those that run on every machine.
fn local() -> Vec<&'static dyn Protocol> {
    let list: Vec<_> =
        all().into_iter().filter(|p| p.reach() == Reach::Machine && p.name() != "polyrail-hosted").collect();
    let names: Vec<&str> = list.iter().map(|p| p.name()).collect();
    assert_eq!(names, ["unix-stream", "unix-seqpacket", "unix-dgram", "pipe", "cacheline", "memcpy"]);
    let ip = ["tcp-nodelay", "udp", "udp-addressed", "udp-gso"].map(|name| find(name).unwrap());
    list.into_iter().chain(ip).chain(of_some_kernels()).collect()
}

/// Those of them that this kernel has. What it has not is told aloud, once.
fn of_some_kernels() -> Vec<&'static dyn Protocol> {
    static TOLD: Once = Once::new();
    let names = ["sctp", "tipc-stream", "tipc-seqpacket", "tipc-rdm", "tipc-dgram"];
    let (present, absent): (Vec<_>, Vec<_>) =
        names.map(|name| find(name).unwrap()).into_iter().partition(|p| p.available().is_ok());
    TOLD.call_once(|| {
        for protocol in absent {
            let reason = protocol.available().unwrap_err();
            let _ = writeln!(std::io::stderr(), "SKIPPED {}: {reason}", protocol.name());
        }
    });
    present
}

fn setup(size: usize, wait: WaitMode) -> Setup {
    let local = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    Setup { local, wait, both_ways: true, ..setup_for_tests(size) }
}

/// The receiver's end and the sender's.
fn pair(protocol: &dyn Protocol, setup: &Setup) -> [Box<dyn Pipe>; 2] {
    let listener = protocol.listen(setup).unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| protocol.connect(setup, &address, PATIENCE).unwrap());
        let receiver = listener.accept(PATIENCE).unwrap();
        [receiver, sender.join().unwrap()]
    })
}

/// Has one end send numbered messages, each when the other has the one before, so that none may be lost.
fn carry([receiver, sender]: &mut [Box<dyn Pipe>; 2], size: usize) {
    let mut message = vec![0x5A; size];
    for number in 0..MESSAGES {
        stamp(&mut message, number);
        while !sender.send(&message).unwrap() {}
        let mut got = Vec::new();
        while got.is_empty() {
            receiver.recv(&mut |message| got.push(number_of(message, size))).unwrap();
        }
        assert_eq!(got, [Some(number)]);
    }
}

#[test]
fn messages_go_both_ways_whole_and_in_order_however_one_waits() {
    for protocol in local() {
        for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block] {
            // Not every protocol carries the largest.
            for size in [8, 64, 1_400].into_iter().filter(|&s| protocol.supports(Workload::Rate, s).is_ok()) {
                let mut pipes = pair(protocol, &setup(size, wait));
                carry(&mut pipes, size);
                pipes.reverse();
                carry(&mut pipes, size);
            }
        }
    }
}

#[test]
fn datagrams_sent_together_arrive_one_by_one_and_the_last_few_are_not_forgotten() {
    let setup = Setup { both_ways: false, ..setup(1_000, WaitMode::Block) };
    let [mut receiver, mut sender] = pair(find("udp-gso").unwrap(), &setup);
    let mut message = vec![0x5A; 1_000];
    for number in 0..100 {
        stamp(&mut message, number);
        while !sender.send(&message).unwrap() {}
    }
    while !sender.flush().unwrap() {}
    let mut got = Vec::new();
    while got.len() < 100 {
        receiver.recv(&mut |message| got.push(number_of(message, 1_000))).unwrap();
    }
    assert!(got.iter().copied().eq((0..100).map(Some)), "{got:?}");
}

#[test]
fn a_message_larger_than_the_buffers_arrives_in_pieces() {
    let size = 3 << 20;
    for name in ["unix-stream", "pipe", "memcpy", "tcp-nodelay"] {
        let [mut receiver, mut sender] = pair(find(name).unwrap(), &setup(size, WaitMode::Block));
        let mut message = vec![0x5A; size];
        stamp(&mut message, 7);
        std::thread::scope(|scope| {
            scope.spawn(|| while !sender.send(&message).unwrap() {});
            let mut got = Vec::new();
            while got.is_empty() {
                receiver.recv(&mut |message| got.push(number_of(message, size))).unwrap();
            }
            assert_eq!(got, [Some(7)], "{name}");
        });
    }
}

#[test]
fn a_packet_that_no_buffer_holds_is_refused_before_the_run() {
    for name in ["unix-seqpacket", "unix-dgram"] {
        let refused = find(name).unwrap().supports(Workload::Stream, 1 << 30).unwrap_err();
        assert!(refused.contains("wmem_default"), "{refused}");
        find(name).unwrap().supports(Workload::Stream, 64 << 10).unwrap();
    }
}

#[test]
fn a_protocol_that_this_kernel_lacks_says_how_to_get_it() {
    for protocol in all() {
        if let Err(reason) = protocol.available() {
            let way = ["modprobe", "sysctl", "CONFIG_"].iter().any(|word| reason.contains(word));
            assert!(way, "{}: {reason}", protocol.name());
        }
    }
}

#[test]
fn a_message_of_the_largest_size_that_a_protocol_takes_arrives_whole() {
    for protocol in of_some_kernels() {
        let size = 66_000;
        let mut pipes = pair(protocol, &setup(size, WaitMode::Block));
        carry(&mut pipes, size);
    }
}

#[test]
fn the_end_of_the_other_side_is_an_error_and_not_silence() {
    let connected = |p: &&dyn Protocol| p.reliable();
    let of_some_kernels = of_some_kernels().into_iter().filter(connected).map(|p| p.name());
    for name in ["unix-stream", "unix-seqpacket", "pipe", "tcp-nodelay"].into_iter().chain(of_some_kernels) {
        let [mut receiver, sender] = pair(find(name).unwrap(), &setup(64, WaitMode::Block));
        drop(sender);
        let ended = loop {
            match receiver.recv(&mut |_| panic!("a message")) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        // TIPC's connections end by a reset.
        let tipc = name.starts_with("tipc");
        let end = if tipc { io::ErrorKind::ConnectionReset } else { io::ErrorKind::UnexpectedEof };
        assert_eq!(ended.kind(), end, "{name}");
    }
}

#[test]
fn a_sender_that_finds_nobody_says_so_in_time() {
    let of_some_kernels = of_some_kernels().into_iter().map(|p| p.name());
    let local = ["unix-stream", "unix-seqpacket", "unix-dgram", "pipe", "cacheline", "memcpy"];
    for name in local.into_iter().chain(of_some_kernels) {
        let protocol = find(name).unwrap();
        let listener = protocol.listen(&setup(64, WaitMode::Block)).unwrap();
        let address = listener.address();
        drop(listener);
        let nobody = protocol.connect(&setup(64, WaitMode::Block), &address, Duration::from_millis(20));
        assert!(nobody.is_err(), "{name}");
    }
}

/// Those that make transactions on every machine.
fn transactors() -> Vec<(&'static str, &'static dyn Transactor)> {
    let mut list: Vec<_> = all().into_iter().filter_map(|p| Some((p.name(), p.transactor()?))).collect();
    // Their nodes would meet those of the tests beside, or are in a process of their own; they make their transactions elsewhere.
    for ours in ["polyrail", "polyrail-attached", "polyrail-hosted"] {
        let at = list.iter().position(|(name, _)| *name == ours).unwrap();
        list.remove(at);
    }
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    let tcp = ["tcp-cubic", "tcp-bbr", "tcp-nodelay", "mptcp", "mptcp-bbr"];
    let of_some_kernels = ["sctp", "tipc-stream", "tipc-seqpacket"];
    let expected = [tcp.as_slice(), &of_some_kernels, &["unix-stream", "unix-seqpacket"]].concat();
    assert_eq!(names, expected);
    list.into_iter().filter(|(name, _)| find(name).unwrap().available().is_ok()).collect()
}

/// Ends whoever looks at it, also when the test fails.
struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` while somebody answers; how often that was.
fn answered(transactor: &dyn Transactor, setup: &Setup, work: impl FnOnce(&str)) -> u64 {
    let ended = AtomicBool::new(false);
    let (say, said) = channel();
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut answerer = transactor.answerer(setup).unwrap();
            say.send(answerer.address()).unwrap();
            let mut count = 0;
            while !ended.load(Ordering::Relaxed) {
                count += u64::from(answerer.answer().unwrap());
            }
            count
        });
        let end = EndsAtDrop(&ended);
        work(&said.recv().unwrap());
        drop(end);
        answering.join().unwrap()
    })
}

#[test]
fn each_call_is_answered_by_its_own_message_however_one_waits() {
    for (name, transactor) in transactors() {
        for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block] {
            for size in [8, 128, 60_000, 150_000] {
                if find(name).unwrap().supports(Workload::Transact, size).is_err() {
                    continue;
                }
                let setup = setup(size, wait);
                let count = answered(transactor, &setup, |address| {
                    let mut caller = transactor.caller(&setup, address).unwrap();
                    let (mut message, mut answer) = (vec![0x5A; size], vec![0; size]);
                    for number in 0..CALLS {
                        stamp(&mut message, number);
                        caller.call(&message, &mut answer).unwrap();
                        assert_eq!(answer, message, "{name}, {size} bytes, {wait:?}");
                    }
                });
                assert_eq!(count, CALLS, "{name}");
            }
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
fn an_answerer_whom_nobody_calls_sleeps_unless_it_is_to_spin() {
    for (name, transactor) in transactors() {
        for (wait, sleeps_at_least) in [(WaitMode::Spin, 0), (WaitMode::Adaptive, 3), (WaitMode::Block, 3)] {
            let mut answerer = transactor.answerer(&setup(128, wait)).unwrap();
            let before = sleeps();
            assert!((0..3).all(|_| !answerer.answer().unwrap()), "{name}");
            assert!(sleeps() - before >= sleeps_at_least, "{name}, {wait:?}");
        }
    }
}

#[test]
fn a_caller_that_finds_nobody_or_is_hung_up_on_says_so() {
    for (name, transactor) in transactors() {
        let setup = setup(128, WaitMode::Block);
        let address = transactor.answerer(&setup).unwrap().address();
        let mut caller = transactor.caller(&setup, &address).unwrap();
        let error = caller.call(&[0; 128], &mut [0; 128]).unwrap_err();
        // TIPC knows no address without a listener, only names that nobody bears.
        let tipc = name.starts_with("tipc");
        let refusal = if tipc { io::ErrorKind::HostUnreachable } else { io::ErrorKind::ConnectionRefused };
        assert_eq!(error.kind(), refusal, "{name}");
        // An answer of fewer bytes than were asked for, and its end.
        answered(transactor, &setup, |address| {
            let mut caller = transactor.caller(&setup, address).unwrap();
            let error = caller.call(&[0; 128], &mut [0; 129]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{name}");
        });
    }
}

/// Lets `clients` ask one server at the same time; each must get its own answers, in order.
fn ask_one_server(protocol: &dyn Protocol, setup: &Setup, clients: u64) {
    let mut server = protocol.hub().unwrap().server(setup, clients as u32).unwrap();
    let address = server.address();
    std::thread::scope(|scope| {
        let ask = |client: u64| {
            let mut pipe = protocol.connect(setup, &address, PATIENCE).unwrap();
            let mut message = vec![0x5A; setup.size];
            for count in 0..CALLS {
                let number = (client << 32) + count;
                stamp(&mut message, number);
                while !pipe.send(&message).unwrap() {}
                let mut got = Vec::new();
                while got.is_empty() {
                    pipe.recv(&mut |answer| got.push(number_of(answer, setup.size))).unwrap();
                }
                assert_eq!(got, [Some(number)], "{} {client}", protocol.name());
            }
            // None closes before all have their answers: the server takes that for an error.
            pipe
        };
        let asking: Vec<_> = (0..clients).map(|client| scope.spawn(move || ask(client))).collect();
        server.accept(PATIENCE).unwrap();
        let mut served = vec![0; clients as usize];
        while served.iter().sum::<u64>() < clients * CALLS {
            let take = &mut |message: &[u8]| {
                served[(number_of(message, setup.size).unwrap() >> 32) as usize] += 1;
                true
            };
            server.serve(take).unwrap();
        }
        assert!(served.iter().all(|&count| count == CALLS), "{served:?}");
        asking.into_iter().for_each(|client| drop(client.join().unwrap()));
    });
}

#[test]
fn clients_of_one_server_get_their_own_answers_however_one_waits() {
    for name in ["unix-stream", "tcp-nodelay", "polyrail-hosted"] {
        for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block] {
            ask_one_server(find(name).unwrap(), &setup(64, wait), 5);
        }
        // Longer than what a socket holds.
        ask_one_server(find(name).unwrap(), &setup(300_000, WaitMode::Block), 3);
    }
}

#[test]
fn a_client_that_ends_is_an_error_of_its_server() {
    let protocol = find("unix-stream").unwrap();
    let setup = setup(64, WaitMode::Block);
    let mut server = protocol.hub().unwrap().server(&setup, 2).unwrap();
    let address = server.address();
    let pipes = [(); 2].map(|()| protocol.connect(&setup, &address, PATIENCE).unwrap());
    server.accept(PATIENCE).unwrap();
    drop(pipes);
    let ended = loop {
        match server.serve(&mut |_| true) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => break error,
        }
    };
    assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
}
