//! Lines that cannot be forged, repeated, left out or turned round: each carries its number and a seal.
//!
//! `NUMBER SEAL JSON`, the seal being HMAC-SHA256 over the number (8 bytes, big end first) and the JSON, by a key that
//! belongs to this connection and this direction.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hex;
use super::key::{Digest, digest, verifies};
use super::lines::{Broken, LINE_BYTES_MAX, Lines};
use crate::clock::now_ns;

/// What is sent.
pub(super) struct Outgoing {
    stream: TcpStream,
    key: Digest,
    next: u64,
    sent_ns: u64,
}

impl Outgoing {
    pub(super) fn new(stream: TcpStream, key: Digest) -> Self {
        Self { stream, key, next: 0, sent_ns: now_ns() }
    }

    /// Sends one line; an error of the socket ends the connection, for half a line may have left.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Broken> {
        let json = serde_json::to_vec(message).map_err(|error| Broken::NotUnderstood(error.to_string()))?;
        let line = seal(&self.key, self.next, &json);
        if line.len() > LINE_BYTES_MAX + 1 {
            return Err(Broken::TooLong);
        }
        self.next += 1;
        self.sent_ns = now_ns();
        self.stream.write_all(&line).map_err(|error| {
            let _ = self.stream.shutdown(Shutdown::Both);
            Broken::Io(error)
        })
    }

    /// How long nothing has been sent, in ns.
    pub(super) fn quiet_ns(&self) -> u64 {
        now_ns() - self.sent_ns
    }

    /// Tells the other side that nothing more will come.
    pub(super) fn close(&self) {
        // It may have gone first.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// What arrives.
pub(super) struct Incoming {
    lines: Lines,
    key: Digest,
    next: u64,
    heard_ns: u64,
}

impl Incoming {
    pub(super) fn new(lines: Lines, key: Digest) -> Self {
        Self { lines, key, next: 0, heard_ns: now_ns() }
    }

    /// The next line, and when its end was here by the machine's clock; `None`: not yet.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, u64)>, Broken> {
        let Some(line) = self.lines.next(LINE_BYTES_MAX)? else { return Ok(None) };
        let json = open(&self.key, self.next, &line.bytes)?;
        self.next += 1;
        self.heard_ns = now_ns();
        let message =
            serde_json::from_slice(json).map_err(|error| Broken::NotUnderstood(error.to_string()))?;
        Ok(Some((message, line.at_ns)))
    }

    /// How long nothing with a good seal has come, in ns.
    pub(super) fn quiet_ns(&self) -> u64 {
        now_ns() - self.heard_ns
    }
}

fn seal(key: &Digest, number: u64, json: &[u8]) -> Vec<u8> {
    let seal = hex::encode(&digest(key, &[&number.to_be_bytes(), json]));
    let mut line = format!("{number} {seal} ").into_bytes();
    line.extend_from_slice(json);
    line.push(b'\n');
    line
}

/// The JSON of a line whose seal is good and whose turn it is.
fn open<'a>(key: &Digest, expected: u64, line: &'a [u8]) -> Result<&'a [u8], Broken> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let mut part = || parts.next().ok_or(Broken::Forged);
    let (number, seal, json) = (part()?, part()?, part()?);
    let number = std::str::from_utf8(number).ok().and_then(|text| text.parse::<u64>().ok());
    let (number, seal) = (number.ok_or(Broken::Forged)?, hex::decode(seal).ok_or(Broken::Forged)?);
    if !verifies(key, &[&number.to_be_bytes(), json], &seal) {
        return Err(Broken::Forged);
    }
    if number == expected { Ok(json) } else { Err(Broken::OutOfTurn) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Digest = [7; 32];

    fn line(number: u64, json: &str) -> Vec<u8> {
        let mut line = seal(&KEY, number, json.as_bytes());
        line.pop();
        line
    }

    #[test]
    fn a_line_opens_once_in_its_turn_with_its_key() {
        let sealed = line(3, "{\"a\":\"b c\"}");
        assert_eq!(open(&KEY, 3, &sealed).unwrap(), b"{\"a\":\"b c\"}");
        assert!(matches!(open(&KEY, 4, &sealed), Err(Broken::OutOfTurn)), "a second time");
        assert!(matches!(open(&KEY, 2, &sealed), Err(Broken::OutOfTurn)), "one before it left out");
        assert!(matches!(open(&[8; 32], 3, &sealed), Err(Broken::Forged)), "the other direction's key");
    }

    #[test]
    fn no_changed_byte_and_no_shorter_line_passes() {
        let sealed = line(12, "{\"order\":\"go\"}");
        for at in 0..sealed.len() {
            for change in [1, 0x20, 0x80] {
                let mut changed = sealed.clone();
                changed[at] ^= change;
                assert!(open(&KEY, 12, &changed).is_err(), "byte {at} by {change}");
            }
            assert!(open(&KEY, 12, &sealed[..at]).is_err(), "cut at {at}");
        }
        for garbage in
            [&b""[..], b" ", b"  ", b"1", b"1 2", b"1 2 3", b"99999999999999999999 0 {}", b"\xff \xff \xff"]
        {
            assert!(matches!(open(&KEY, 1, garbage), Err(Broken::Forged)), "{garbage:?}");
        }
    }
}
