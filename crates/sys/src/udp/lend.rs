//! Sending without a copy: the kernel takes references to the pages that the bytes lie in.
//!
//! `vmsplice` puts the pages into a pipe and `splice` moves them on into the socket, which since Linux 6.5 makes them
//! fragments of its packets (MSG_SPLICE_PAGES). What is written to those pages later is what the packets then carry,
//! until they have been received.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use super::UdpSocket;
use crate::call::{check, check_size, own};

/// Room of the pipe: the largest datagram anywhere in its pages, and to spare.
const PIPE_BYTES: libc::c_int = 128 * 1024;

/// The first kernel whose UDP takes pages by reference.
const KERNEL_MIN: (u32, u32) = (6, 5);

/// A pipe through which pages go to sockets. Empty between calls.
#[derive(Debug)]
pub struct PageLender {
    read: OwnedFd,
    write: OwnedFd,
    nowhere: File,
}

impl PageLender {
    /// A lender, or `None` where the kernel would copy all the same.
    ///
    /// # Errors
    /// Those of `pipe` and of opening `/dev/null`; EPERM when the user has too much memory in pipes already.
    pub fn new() -> io::Result<Option<PageLender>> {
        if kernel_version()? < KERNEL_MIN {
            return Ok(None);
        }
        let mut ends = [-1; 2];
        // SAFETY: the kernel writes two descriptors into the array.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        let (read, write) = (own(ends[0])?, own(ends[1])?);
        // SAFETY: the command takes an integer.
        check(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) })?;
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(Some(PageLender { read, write, nowhere }))
    }

    /// Sends `bytes` to the other end of a connected socket as one datagram, or as a train if the socket has a segment
    /// size ([`UdpSocket::set_segment`]). Never waits. What happens to the bytes before they have been received happens
    /// to the datagrams.
    ///
    /// # Errors
    /// As for [`UdpSocket::send_to`]. `WriteZero`: the kernel does not take so many pages at once; nothing was sent.
    pub fn send(&self, socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
        let result = self.load(bytes).and_then(|()| self.pass_on(socket, bytes.len()));
        if result.is_err() {
            self.empty();
        }
        result
    }

    fn load(&self, bytes: &[u8]) -> io::Result<()> {
        let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let fd = self.write.as_raw_fd();
        // SAFETY: `piece` describes `bytes`. The kernel takes references to the pages, which keep them alive for it
        // whatever becomes of the mapping, and only reads them.
        let taken = check_size(unsafe { libc::vmsplice(fd, &raw const piece, 1, libc::SPLICE_F_NONBLOCK) })?;
        if taken == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn pass_on(&self, socket: &UdpSocket, len: usize) -> io::Result<()> {
        let passed = self.splice_to(socket.raw(), len)?;
        if passed == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Drops the pages that the socket has not taken.
    fn empty(&self) {
        while self.splice_to(self.nowhere.as_raw_fd(), PIPE_BYTES as usize).is_ok_and(|dropped| dropped > 0) {
        }
    }

    fn splice_to(&self, to: libc::c_int, len: usize) -> io::Result<usize> {
        let (from, flags) = (self.read.as_raw_fd(), libc::SPLICE_F_NONBLOCK);
        // SAFETY: no offsets are given, and the call touches no memory of ours.
        check_size(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), len, flags) })
    }
}

/// Major and minor number of the running kernel; zeros where it does not say.
fn kernel_version() -> io::Result<(u32, u32)> {
    // SAFETY: the structure is plain data; zeros are a valid value of it.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is a valid place for the answer.
    check(unsafe { libc::uname(&raw mut names) })?;
    let release: Vec<u8> = names.release.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    let release = String::from_utf8_lossy(&release);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_says_who_it_is() {
        assert!(super::kernel_version().unwrap() > (2, 6));
    }
}
