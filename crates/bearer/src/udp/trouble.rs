//! What the network says about datagrams sent earlier, turned from errors into notices.
//!
//! The kernel reports an ICMP message twice: as an entry in the socket's error queue, and as the result of
//! whatever call comes next, although that call has nothing to do with it. So a call that fails that way is
//! simply made again, after the queue was read; and the queue must be read, or waiting on the socket never
//! sleeps again.

use std::io;

use polyrail_sys::errno;
use polyrail_sys::udp::{ErrorOrigin, QueuedError, UdpSocket};

use super::{header_bytes, plain};
use crate::{Notice, NoticeCode};

/// Notices kept until somebody asks; more are dropped, they are hints only.
const NOTICES_MAX: usize = 64;

/// Errors taken off the queue per call, so that a flood of ICMP cannot hold the caller.
const ERRORS_PER_DRAIN: usize = 32;

/// Attempts to receive while errors keep coming.
pub(super) const ROUNDS_MAX: usize = 16;

/// Attempts to send: one error can be pending from before, one can come in between.
const SENDS_MAX: usize = 3;

/// Whether an error is one of the socket itself, which trying again cannot cure.
pub(super) fn is_fatal(error: &io::Error) -> bool {
    let fatal = [errno::EBADF, errno::ENOMEM, errno::EFAULT, errno::EINVAL, errno::ENOTSOCK];
    error.raw_os_error().is_none_or(|number| fatal.contains(&number))
}

#[derive(Default)]
pub(super) struct Trouble {
    pub notices: Vec<Notice>,
}

impl Trouble {
    /// Makes a send call, again if it failed for what may have been an earlier datagram's error.
    pub fn retry(
        &mut self,
        socket: &UdpSocket,
        mut call: impl FnMut(&UdpSocket) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut result = call(socket);
        for _ in 1..SENDS_MAX {
            match &result {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(errno::ENOBUFS) || is_fatal(error) => break,
                Err(_) => self.drain(socket),
            }
            result = call(socket);
        }
        if result.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            self.drain(socket);
        }
        result
    }

    /// Empties the socket's error queue.
    pub fn drain(&mut self, socket: &UdpSocket) {
        for _ in 0..ERRORS_PER_DRAIN {
            match socket.take_error() {
                Ok(Some(error)) => {
                    if let Some(notice) = notice(&error) {
                        self.push(notice);
                    }
                }
                Ok(None) => return,
                // The pending error itself: reported, and thereby gone.
                Err(error) if !is_fatal(&error) || error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return,
            }
        }
    }

    pub fn push(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX && self.notices.last() != Some(&notice) {
            self.notices.push(notice);
        }
    }
}

fn notice(error: &QueuedError) -> Option<Notice> {
    // What this machine itself objects to, the send call has said already (and here without the port).
    let to = error.to.filter(|_| error.origin != ErrorOrigin::Local)?;
    if error.errno == errno::EMSGSIZE {
        let payload = error.info.saturating_sub(header_bytes(to.ip()).into()).min(u16::MAX.into());
        return Some(Notice::MtuHint { to: plain(to), mtu_bytes: payload as u16 });
    }
    let code = match (error.origin, error.icmp_type, error.icmp_code) {
        (ErrorOrigin::Icmp, 3, 3) | (ErrorOrigin::Icmp6, 1, 4) => NoticeCode::Port,
        (ErrorOrigin::Icmp, 3, 1 | 7) | (ErrorOrigin::Icmp6, 1, 3) => NoticeCode::Host,
        (ErrorOrigin::Icmp, 3, 0 | 6) | (ErrorOrigin::Icmp6, 1, 0) => NoticeCode::Net,
        (ErrorOrigin::Icmp | ErrorOrigin::Icmp6, ..) => NoticeCode::Other,
        _ => return None,
    };
    Some(Notice::Unreachable { to: plain(to), code })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn error(origin: ErrorOrigin, icmp_type: u8, icmp_code: u8) -> QueuedError {
        let to = Some("10.0.0.9:7".parse().unwrap());
        QueuedError { to, offender: None, errno: errno::ECONNREFUSED, origin, icmp_type, icmp_code, info: 0 }
    }

    #[test]
    fn icmp_becomes_a_notice_about_the_destination() {
        let to = Address::Ip("10.0.0.9:7".parse().unwrap());
        let cases = [
            (ErrorOrigin::Icmp, 3, 3, NoticeCode::Port),
            (ErrorOrigin::Icmp, 3, 1, NoticeCode::Host),
            (ErrorOrigin::Icmp, 3, 0, NoticeCode::Net),
            (ErrorOrigin::Icmp, 3, 13, NoticeCode::Other),
            (ErrorOrigin::Icmp, 11, 0, NoticeCode::Other),
            (ErrorOrigin::Icmp6, 1, 4, NoticeCode::Port),
            (ErrorOrigin::Icmp6, 1, 3, NoticeCode::Host),
            (ErrorOrigin::Icmp6, 1, 0, NoticeCode::Net),
        ];
        for (origin, icmp_type, icmp_code, code) in cases {
            let expected = Notice::Unreachable { to, code };
            assert_eq!(notice(&error(origin, icmp_type, icmp_code)), Some(expected));
        }
        let too_large = QueuedError { errno: errno::EMSGSIZE, info: 1_400, ..error(ErrorOrigin::Icmp, 3, 4) };
        assert_eq!(notice(&too_large), Some(Notice::MtuHint { to, mtu_bytes: 1_372 }));
        assert_eq!(notice(&QueuedError { origin: ErrorOrigin::Local, ..too_large }), None);
    }

    #[test]
    fn notices_are_bounded_and_not_repeated() {
        let mut trouble = Trouble::default();
        for port in 0..1_000u16 {
            for _ in 0..2 {
                let to = Address::Ip(([10, 0, 0, 1], port).into());
                trouble.push(Notice::Unreachable { to, code: NoticeCode::Port });
            }
        }
        assert_eq!(trouble.notices.len(), NOTICES_MAX);
        assert_ne!(trouble.notices[0], trouble.notices[1]);
    }
}
