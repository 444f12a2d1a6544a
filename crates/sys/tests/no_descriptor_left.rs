//! A packet with a descriptor that comes to a process which has none left. In a process of its own, for the limit is the process's.

use polyrail_sys::eventfd::EventFd;
use polyrail_sys::unix::UnixSocket;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsFd;

#[test]
fn it_can_be_taken_later() {
    let (one, other) = UnixSocket::pair().unwrap();
    let event = EventFd::new().unwrap();
    one.send(b"file", &[event.as_fd()]).unwrap();
    let mut buffer = [0; 8];

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let peeked = other.peek(&mut buffer);
    setrlimit(Resource::Nofile, limit).unwrap();
    let peeked = peeked.unwrap().unwrap();
    assert!(peeked.cut && peeked.descriptors.is_empty() && peeked.bytes == 4);

    let peeked = other.peek(&mut buffer).unwrap().unwrap();
    assert!(!peeked.cut && peeked.descriptors.len() == 1);
    assert_eq!(other.recv(&mut buffer).unwrap().unwrap().descriptors.len(), 1);
    assert!(other.recv(&mut buffer).unwrap().is_none());
}
