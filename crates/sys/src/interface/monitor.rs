//! Hears when links and addresses change.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};

use super::list::link_head;
use super::netlink::{messages, open};

/// What a link message said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// Which interface.
    pub index: u32,
    /// Whether it can carry data; false too when it is gone.
    pub running: bool,
}

/// A socket that becomes readable when a link or an address has changed. The kernel may delay its messages by
/// about 600 ms when they follow each other closely.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: File,
    buffer: Vec<u8>,
}

impl LinkMonitor {
    /// Listens in the calling thread's network name space.
    pub fn open() -> io::Result<LinkMonitor> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let socket = open(groups as u32, libc::SOCK_NONBLOCK)?;
        Ok(LinkMonitor { socket, buffer: vec![0; 65_536] })
    }

    /// Reads all that is there. Link messages are appended to `changes`; the answer is whether anything at all
    /// has changed (also when messages were lost, so that the list should be read anew).
    pub fn drain(&mut self, changes: &mut Vec<LinkChange>) -> io::Result<bool> {
        let mut changed = false;
        loop {
            let count = match self.socket.read(&mut self.buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changed = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            for message in messages(&self.buffer[..count]) {
                changed = true;
                let Some((index, flags)) = link_head(message.body) else { continue };
                match message.kind {
                    libc::RTM_NEWLINK => {
                        changes.push(LinkChange { index, running: flags & libc::IFF_RUNNING != 0 });
                    }
                    libc::RTM_DELLINK => changes.push(LinkChange { index, running: false }),
                    _ => {}
                }
            }
        }
    }
}

impl AsRawFd for LinkMonitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Epoll, Events, Interest};
    use crate::process::unshare_netns;

    #[test]
    fn a_link_that_goes_up_is_told() {
        let there = std::thread::spawn(|| {
            if let Err(error) = unshare_netns() {
                eprintln!("SKIPPED a_link_that_goes_up_is_told: {error}");
                return;
            }
            let (mut monitor, epoll) = (LinkMonitor::open().unwrap(), Epoll::new().unwrap());
            let (mut events, mut changes) = (Events::new(1), Vec::new());
            epoll.add(monitor.as_raw_fd(), 1, Interest::READ).unwrap();
            assert!(!monitor.drain(&mut changes).unwrap());
            let done = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            assert!(done.success());
            while !changes.contains(&LinkChange { index: 1, running: true }) {
                epoll.wait(&mut events, None).unwrap();
                assert!(monitor.drain(&mut changes).unwrap());
            }
        });
        there.join().unwrap();
    }
}
