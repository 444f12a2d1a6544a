//! What the two ends of a ring or trunk say to each other by their line: files of buffers that are passed (`direct::passing`), and
//! news, that a program which waits on a descriptor is to look.
//!
//! So a program is told by whoever has something for it, and no third process is in the way, nor missed when it is gone. Each end takes news
//! away when it looks, and what it does not take away, where files are in front of it, with the next file.

use super::Client;
use crate::engine::guests::NEWS;
use polyrail_sys::unix::UnixSocket;
use std::os::fd::{AsRawFd, RawFd};

/// So many news are taken away at a time: more than a port is told before it looks, but by an end that scribbles.
const NEWS_MAX: usize = 64;

/// Tells the other end's program, which waits on a descriptor. Who has so much to read that there is no room for it has been told.
#[cold]
pub(super) fn tell(line: &UnixSocket) {
    let _ = line.send(&[NEWS], &[]);
}

/// Takes away the news at the front.
pub(super) fn clear(line: &UnixSocket) {
    for _ in 0..NEWS_MAX {
        match line.peek_bytes(&mut [0; 2]) {
            Ok(Some(1)) => drop(line.recv(&mut [0; 2])),
            _ => break,
        }
    }
}

impl Client {
    /// The lines of all rings and trunks.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &UnixSocket> {
        let outs = self.directs.outs().chain(self.directs.ins());
        outs.chain(self.trunks.lines())
    }

    /// Takes away the news of the line with this descriptor.
    pub(crate) fn clear_line(&self, fd: RawFd) {
        self.lines().filter(|line| line.as_raw_fd() == fd).for_each(clear);
    }
}
