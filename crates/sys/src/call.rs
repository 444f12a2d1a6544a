//! What all wrappers share: return values to results, and the two socket option calls.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, socklen_t};

/// -1 means: look at `errno`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a length.
pub(crate) fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The same for raw system calls.
pub(crate) fn check_long(result: c_long) -> io::Result<c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over a descriptor that a system call has just returned.
pub(crate) fn own(result: c_int) -> io::Result<OwnedFd> {
    let fd: RawFd = check(result)?;
    // SAFETY: the kernel has just created this descriptor for us and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Option values that are plain data without padding, so that any bytes of them may go to and come from the
/// kernel.
pub(crate) trait Plain: Copy + Default {}

impl Plain for c_int {}
impl Plain for [c_int; 3] {}
impl Plain for [u32; 4] {}
impl Plain for [u32; 5] {}

pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    let length = size_of::<T>() as socklen_t;
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) })?;
    Ok(())
}

pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = value.len() as socklen_t;
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) })?;
    Ok(())
}

pub(crate) fn get_option<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: the pointer and the length describe `value`, whose type admits all bytes.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut length) })?;
    Ok(value)
}
