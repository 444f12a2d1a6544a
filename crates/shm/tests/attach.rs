//! A queue pair between two processes, and what a segment refuses and costs.
#![cfg(not(loom))]

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use polyrail_shm::arena::BLOCK_BYTES;
use polyrail_shm::{Backing, Client, Engine, QueuePair, Segment, Sizes};

const MESSAGES: u64 = 2000;
/// Names the memfd to the child process.
const FILE_VARIABLE: &str = "POLYRAIL_SHM_TEST_FILE";
/// Far beyond what any wait here takes; a wake-up lost costs this and then the test goes on.
const WAIT_MAX: Option<Duration> = Some(Duration::from_secs(20));

const SIZES: Sizes =
    Sizes { sq_entries: 16, cq_entries: 16, tx_bytes: 2 * BLOCK_BYTES, rx_bytes: 2 * BLOCK_BYTES };

fn pattern(number: u64) -> Vec<u8> {
    (0..number % 5000).map(|index| (index ^ number) as u8).collect()
}

/// Sends each message, and checks that it comes back reversed.
fn client_talks(mut client: Client) {
    for number in 0..MESSAGES {
        let data = pattern(number);
        let offset = client.tx.alloc(data.len() as u64).unwrap();
        client.tx.memory().write_at(offset, &data).unwrap();
        client.sq.push(&[number, offset, data.len() as u64, 0, 0, 0, 0, 0]).unwrap();
        client.words.accepted.add(1);
        client.engine_bell.ring();
        let [answered, offset, len, ..] = loop {
            if let Some(entry) = client.cq.pop() {
                break entry;
            }
            client.client_bell.prepare();
            if client.cq.is_empty() {
                client.client_bell.wait(WAIT_MAX);
            } else {
                client.client_bell.cancel();
            }
        };
        let mut answer = client.rx.memory().bytes(offset, len as usize).unwrap().to_vec();
        assert!(client.rx.release(offset));
        answer.reverse();
        assert!(answered == number && answer == data, "message {number}");
    }
    assert_eq!(client.words.completed.load(), MESSAGES);
    client.words.client_state.store(1);
}

/// Answers each message with its bytes reversed, until all are done or `gone` says that the client is.
fn engine_answers(engine: &mut Engine, mut gone: impl FnMut() -> bool) {
    while engine.words.completed.load() < MESSAGES {
        let Some([number, offset, len, ..]) = engine.sq.pop() else {
            engine.engine_bell.prepare();
            if engine.sq.is_empty() {
                engine.engine_bell.wait(Some(Duration::from_millis(100)));
            } else {
                engine.engine_bell.cancel();
            }
            assert!(!engine.sq.is_empty() || !gone(), "the client ended early");
            continue;
        };
        let mut data = vec![0; len as usize];
        engine.tx.memory().read_at(offset, &mut data).unwrap();
        assert!(engine.tx.release(offset));
        data.reverse();
        let answer = engine.rx.alloc(len).unwrap();
        engine.rx.memory().write_at(answer, &data).unwrap();
        engine.words.completed.add(1);
        engine.cq.push(&[number, answer, len, 0, 0, 0, 0, 0]).unwrap();
        engine.client_bell.ring();
    }
}

/// The other process's part; does nothing when the test is run by itself.
#[test]
fn child_process() {
    if let Ok(path) = std::env::var(FILE_VARIABLE) {
        let file = File::options().read(true).write(true).open(path).unwrap();
        client_talks(Client::attach(file.into()).unwrap());
    }
}

#[test]
fn two_processes_talk_through_one_segment() {
    let (client, mut engine) = QueuePair::create(SIZES, Backing::Shared).unwrap();
    drop(client);
    let path = format!("/proc/{}/fd/{}", std::process::id(), engine.segment().fd().unwrap().as_raw_fd());
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process"])
        .env(FILE_VARIABLE, path)
        .spawn()
        .unwrap();
    engine_answers(&mut engine, || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
    assert_eq!(engine.words.client_state.load(), 1);
    assert_eq!(engine.words.accepted.load(), MESSAGES);
    assert_eq!(engine.rx.reclaim(), SIZES.rx_bytes);
}

#[test]
fn two_threads_talk_through_private_memory() {
    let (client, mut engine) = QueuePair::create(SIZES, Backing::Private).unwrap();
    assert!(client.segment().fd().is_none());
    let talking = std::thread::spawn(move || client_talks(client));
    engine_answers(&mut engine, || talking.is_finished());
    talking.join().unwrap();
}

#[test]
fn two_mappings_show_the_same_bytes() {
    let segment = Segment::shared(8192).unwrap();
    let second = Segment::from_fd(segment.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
    segment.write_at(5000, b"seen").unwrap();
    assert_eq!(second.bytes(5000, 4), Some(&b"seen"[..]));
    assert_eq!(second.len(), 8192);
}

#[test]
fn a_shared_segment_cannot_be_resized() {
    let segment = Segment::shared(8192).unwrap();
    let file = File::from(segment.fd().unwrap().try_clone_to_owned().unwrap());
    assert_eq!(file.set_len(4096).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.set_len(1 << 20).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_file_that_is_not_a_sealed_memfd_is_refused() {
    let plain = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    assert_eq!(Segment::from_fd(plain).unwrap_err().kind(), ErrorKind::InvalidData);
    let empty_pair = Segment::shared(4096).unwrap();
    let file = empty_pair.fd().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(Client::attach(file).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn no_range_leaves_the_segment() {
    let segment = Segment::private(4096).unwrap();
    let len = segment.len() as u64;
    let mut eight = [0; 8];
    for offset in [len - 7, len, len + 1, u64::MAX - 3, u64::MAX] {
        assert!(segment.write_at(offset, &eight).is_none(), "{offset}");
        assert!(segment.read_at(offset, &mut eight).is_none(), "{offset}");
        assert!(segment.bytes(offset, 8).is_none() && segment.io_slice(offset, 8).is_none(), "{offset}");
    }
    assert!(segment.bytes(0, usize::MAX).is_none() && segment.bytes(1, usize::MAX).is_none());
    assert!(segment.write_at(len - 8, &eight).is_some());
    assert_eq!(segment.bytes(len, 0), Some(&[][..]));
    assert!(Segment::private(0).is_err() && Segment::private(usize::MAX).is_err());
}

#[test]
fn an_idle_pair_costs_little_memory() {
    for backing in [Backing::Private, Backing::Shared] {
        let (client, mut engine) = QueuePair::create(Sizes::default(), backing).unwrap();
        let idle = client.segment().resident_bytes().unwrap();
        assert!(idle < 64 << 10, "{backing:?}: {idle}");
        // One message each way touches a page of each part and no more.
        let offset = engine.rx.alloc(100).unwrap();
        engine.rx.memory().write_at(offset, &[1; 100]).unwrap();
        engine.cq.push(&[1; 8]).unwrap();
        let used = client.segment().resident_bytes().unwrap();
        assert!(used <= idle + (16 << 10), "{backing:?}: {used}");
    }
}

#[test]
fn sizes_out_of_range_are_refused() {
    let good = Sizes::default();
    for wrong in [
        Sizes { sq_entries: 1000, ..good },
        Sizes { cq_entries: 1, ..good },
        Sizes { cq_entries: 1 << 31, ..good },
        Sizes { tx_bytes: 0, ..good },
        Sizes { tx_bytes: 1000, ..good },
        Sizes { rx_bytes: u64::MAX - 65535, ..good },
    ] {
        let error = QueuePair::create(wrong, Backing::Private).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong:?}");
    }
}
