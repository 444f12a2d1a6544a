//! The kernel's route messages, as bytes: a header, a fixed part, then attributes, each padded to 4 bytes.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use crate::call::{check, own};

/// Length of a message header.
const HEADER_BYTES: usize = 16;

/// One message: its type and everything behind its header.
pub(super) struct Message<'a> {
    pub kind: u16,
    pub body: &'a [u8],
}

/// A route socket that hears the given groups (0: none).
pub(super) fn open(groups: u32, flags: i32) -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the call takes no pointers.
    let fd = own(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the structure is plain integers; zeros are a valid value of it.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups;
    let length = size_of::<libc::sockaddr_nl>() as u32;
    // SAFETY: the pointer and the length describe `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd.into())
}

/// The request for all objects of message type `kind`, with a fixed part of `body_bytes` zeros.
pub(super) fn dump_request(kind: u16, body_bytes: usize) -> Vec<u8> {
    let length = HEADER_BYTES + body_bytes;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut request = Vec::with_capacity(length);
    request.extend_from_slice(&(length as u32).to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.resize(length, 0);
    request
}

/// The request of message type `kind` about one thing, with a fixed part and attributes behind it.
pub(super) fn request(kind: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut request = vec![0; HEADER_BYTES];
    request.extend_from_slice(fixed);
    for (name, value) in attributes {
        request.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        request.extend_from_slice(&name.to_ne_bytes());
        request.extend_from_slice(value);
        request.resize(request.len().next_multiple_of(4), 0);
    }
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request
}

/// Cuts what one read gave into messages; stops at the first that does not fit.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let body = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

/// Cuts the part behind a fixed part into attributes: type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back_as_it_was_written() {
        let written = request(26, &[2, 32, 0, 0], &[(1, &[10, 0, 0, 1]), (4, &[7])]);
        let read: Vec<Message<'_>> = messages(&written).collect();
        assert_eq!((read.len(), read[0].kind, written.len()), (1, 26, 16 + 4 + 8 + 8));
        let found: Vec<(u16, &[u8])> = attributes(&read[0].body[4..]).collect();
        assert_eq!(found, [(1, &[10, 0, 0, 1][..]), (4, &[7][..])]);
    }

    #[test]
    fn a_broken_message_ends_the_walk() {
        let good = dump_request(7, 4);
        let mut two = good.clone();
        two.extend_from_slice(&good);
        assert_eq!(messages(&two).map(|m| (m.kind, m.body.len())).collect::<Vec<_>>(), [(7, 4), (7, 4)]);
        assert_eq!(messages(&two[..39]).count(), 1);
        assert_eq!(messages(&[3, 0, 0, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[6, 0, 1, 0, 8, 9, 0, 0, 4, 0, 2, 0]).count(), 2);
        assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
    }
}
