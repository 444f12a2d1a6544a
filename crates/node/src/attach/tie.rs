//! A process's end of a socket to its node.

use super::words::{Answer, Ask, PACKET_BYTES_MAX, say, understand};
use crate::engine::guests::NEWS;
use polyrail_sys::eventfd::EventFd;
use polyrail_sys::poll::PollSet;
use polyrail_sys::unix::{Packet, UnixSocket};
use serde::de::DeserializeOwned;
use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a node may take to answer. It does nothing slow before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Joins one thing of this process to its node: the process itself, a port, a subscription. It ends with either of them.
#[derive(Debug)]
pub(crate) struct Tie {
    socket: UnixSocket,
    over: Cell<bool>,
    told_all: Cell<bool>,
    /// Signalled for news that were read while something else was asked for.
    put_off: OnceCell<Arc<EventFd>>,
}

impl From<UnixSocket> for Tie {
    fn from(socket: UnixSocket) -> Tie {
        Tie { socket, over: Cell::new(false), told_all: Cell::new(false), put_off: OnceCell::new() }
    }
}

impl Tie {
    /// Whether the node is gone, or has let go.
    pub(crate) fn has_ended(&self) -> bool {
        self.over.get()
    }

    /// Ends it, though there may be descriptors of it elsewhere.
    pub(super) fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// Whether nothing is to be told any more, as was said.
    pub(super) fn is_told_all(&self) -> bool {
        self.told_all.get()
    }

    pub(super) fn note_told_all(&self) {
        self.told_all.set(true);
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&self, ask: &Ask) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.ask_with(ask, &[])
    }

    /// The same with descriptors that belong to it.
    pub(super) fn ask_with(
        &self,
        ask: &Ask,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(Answer, Vec<OwnedFd>)> {
        say(&self.socket, ask, descriptors)?;
        let answer = self.await_words(Some(PATIENCE.as_nanos() as u64))?;
        if answer.is_none() {
            // One that came later would be taken for the answer to the next question.
            self.over.set(true);
        }
        answer.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// What the node has said before it let go: it may have done so before it was asked anything.
    pub(super) fn parting_words(&self) -> Option<(Answer, Vec<OwnedFd>)> {
        // The system tells first that what was asked is lost, and then what was said.
        (0..2).find_map(|_| self.next_words().ok().flatten())
    }

    /// The next words, or `None` after so many nanoseconds.
    pub(super) fn await_words<T: DeserializeOwned>(
        &self,
        timeout_ns: Option<u64>,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let until_ns = timeout_ns.map(|span| crate::clock::now_ns().saturating_add(span));
        loop {
            if let Some(words) = self.next_words()? {
                return Ok(Some(words));
            }
            let left_ns = until_ns.map(|until| until.saturating_sub(crate::clock::now_ns()));
            if left_ns == Some(0) {
                return Ok(None);
            }
            let mut set = PollSet::default();
            set.add(self.socket.as_raw_fd(), false);
            set.wait(left_ns)?;
        }
    }

    /// The next words that have come. News are put off.
    pub(super) fn next_words<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        loop {
            match self.next_packet(&mut buffer)? {
                None => return Ok(None),
                Some(packet) if buffer[..packet.bytes] == [NEWS] => {
                    self.put_off.get().into_iter().for_each(|event| event.signal());
                }
                Some(packet) => return understand(&buffer[..packet.bytes], packet.descriptors).map(Some),
            }
        }
    }

    /// Forgets the news that have come, and notices if the node is gone.
    pub(crate) fn clear_news(&self) {
        while matches!(self.next_packet(&mut [0; 16]), Ok(Some(_))) {}
    }

    fn next_packet(&self, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
        let packet = self.socket.recv(buffer);
        let ended = match &packet {
            Ok(Some(packet)) => packet.bytes == 0,
            Ok(None) => false,
            Err(_) => true,
        };
        if ended {
            self.over.set(true);
            return Err(packet.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        }
        packet
    }

    /// Signals `event` for news that are read while something else is asked for.
    pub(super) fn set_put_off(&self, event: Arc<EventFd>) {
        let _ = self.put_off.set(event);
    }

    /// Notices if the node is gone, by a system call.
    pub(crate) fn look(&self) {
        let _ = self.next_words::<Answer>();
    }
}

impl AsRawFd for Tie {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
