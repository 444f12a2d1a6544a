//! Lines from a socket, of bounded length, read without ever waiting longer than the socket's own timeout.

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;

use crate::clock::machine_ns;

/// What is wrong with the control connection, or with what came over it.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It ended, and nobody had said that it would.
    Closed,
    /// It ended in the middle of a line.
    Truncated,
    /// A line without end.
    TooLong,
    /// A seal that only somebody without the key can have made.
    Forged,
    /// A line out of its turn: left out, or sent a second time.
    OutOfTurn,
    /// A sealed line that makes no sense here.
    NotUnderstood(String),
    /// Nothing came for so many seconds.
    Silent(f64),
    /// The system says so.
    Io(io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the control connection ended without a word"),
            Self::Truncated => write!(f, "the control connection ended in the middle of a line"),
            Self::TooLong => write!(f, "a control line longer than {LINE_BYTES_MAX} bytes"),
            Self::Forged => {
                write!(f, "a control line with a wrong seal: somebody changes what is said on the way")
            }
            Self::OutOfTurn => {
                write!(
                    f,
                    "a control line out of its turn: somebody repeats or leaves out what is said on the way"
                )
            }
            Self::NotUnderstood(what) => write!(f, "a control line that was not understood: {what}"),
            Self::Silent(silence_s) => write!(f, "no sign of life for {silence_s:.1} s"),
            Self::Io(error) => write!(f, "control connection: {error}"),
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Longest line of a session, its end not counted.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;
/// What is read at once.
const READ_BYTES: usize = 8 << 10;

/// One line without its end.
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// When its end was here, by the machine's clock, in ns.
    pub(super) at_ns: u64,
}

/// Cuts what a socket gives into lines.
pub(super) struct Lines<S = TcpStream> {
    source: S,
    held: Vec<u8>,
    /// How much of that is known to hold no end of a line.
    searched: usize,
    read_ns: u64,
}

impl<S: Read> Lines<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source, held: Vec::new(), searched: 0, read_ns: 0 }
    }

    /// The next line of at most `bytes_max`; `None`: not here yet. Reads once at most, so that whoever trickles bytes
    /// cannot keep the caller from looking at the time.
    pub(super) fn next(&mut self, bytes_max: usize) -> Result<Option<Line>, Broken> {
        if let Some(line) = self.take(bytes_max)? {
            return Ok(Some(line));
        }
        let mut room = [0; READ_BYTES];
        match self.source.read(&mut room) {
            Ok(0) if self.held.is_empty() => Err(Broken::Closed),
            Ok(0) => Err(Broken::Truncated),
            Ok(length) => {
                self.read_ns = machine_ns();
                self.held.extend_from_slice(&room[..length]);
                self.take(bytes_max)
            }
            Err(error) if is_patience(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(Broken::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, bytes_max: usize) -> Result<Option<Line>, Broken> {
        let end = self.held[self.searched..].iter().position(|&byte| byte == b'\n');
        let Some(end) = end.map(|end| end + self.searched) else {
            self.searched = self.held.len();
            return if self.searched > bytes_max { Err(Broken::TooLong) } else { Ok(None) };
        };
        if end > bytes_max {
            return Err(Broken::TooLong);
        }
        let mut bytes: Vec<u8> = self.held.drain(..=end).collect();
        bytes.pop();
        self.searched = 0;
        Ok(Some(Line { bytes, at_ns: self.read_ns }))
    }
}

fn is_patience(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one read after the other; an empty one is a timeout.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            match self.0.remove(0) {
                [] => Err(io::ErrorKind::WouldBlock.into()),
                piece => {
                    room[..piece.len()].copy_from_slice(piece);
                    Ok(piece.len())
                }
            }
        }
    }

    fn lines(pieces: &[&'static [u8]]) -> Lines<Pieces> {
        Lines::new(Pieces(pieces.to_vec()))
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let mut lines = lines(&[b"on", b"", b"e\ntw", b"o\n\nthree\nfo"]);
        let mut found = Vec::new();
        let end = loop {
            match lines.next(5) {
                Ok(Some(line)) => found.push(String::from_utf8(line.bytes).unwrap()),
                Ok(None) => {}
                Err(broken) => break broken,
            }
        };
        assert_eq!(found, ["one", "two", "", "three"]);
        assert!(matches!(end, Broken::Truncated), "{end:?}");
    }

    #[test]
    fn a_line_without_end_is_given_up_at_its_limit() {
        let mut short = lines(&[b"12345\n", b"12345", b"6"]);
        assert_eq!(short.next(5).unwrap().unwrap().bytes, b"12345");
        assert!(short.next(5).unwrap().is_none());
        assert!(matches!(short.next(5), Err(Broken::TooLong)));
        assert!(matches!(lines(&[b"123456\n"]).next(5), Err(Broken::TooLong)));
        assert!(matches!(lines(&[]).next(5), Err(Broken::Closed)));
    }
}
