//! Sequenced-packet sockets of the Unix domain: each packet arrives whole, with the descriptors that belong to it, and says
//! who sent it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use crate::call::get_option;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Most descriptors that one packet brings.
pub const DESCRIPTORS_MAX: usize = 8;

/// Where a socket of this machine is.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A file, which whoever may write to it may connect to.
    Path(&'a Path),
    /// A name of the network namespace, without a file: it ends with its socket, and everyone may connect.
    Abstract(&'a str),
}

impl Place<'_> {
    fn address(self) -> io::Result<SocketAddrUnix> {
        Ok(match self {
            Place::Path(path) => SocketAddrUnix::new(path)?,
            Place::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        })
    }
}

/// Who is at the other end, as it was when the connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its process, as numbered in our namespace; 0 if it is in none of those that we see.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A socket that others connect to.
#[derive(Debug)]
pub struct UnixListener(OwnedFd);

impl UnixListener {
    /// Listens at `place`, without waiting in any of its calls. A file of that name is not replaced.
    pub fn bind(place: Place<'_>, backlog: i32) -> io::Result<UnixListener> {
        let fd = socket()?;
        rustix::net::bind(&fd, &place.address()?)?;
        rustix::net::listen(&fd, backlog)?;
        Ok(UnixListener(fd))
    }

    /// The next who has connected; `None` if nobody has.
    pub fn accept(&self) -> io::Result<Option<UnixSocket>> {
        let accepted = rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        match accepted {
            Ok(fd) => Ok(Some(UnixSocket(fd))),
            Err(error) => nothing_yet(error),
        }
    }
}

/// One end of a connection. No call waits.
#[derive(Debug)]
pub struct UnixSocket(OwnedFd);

/// A packet that has come.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes: so many are at the front of the buffer. None: the other end is closed.
    pub bytes: usize,
    /// It was longer than the buffer, or had more descriptors than [`DESCRIPTORS_MAX`]: some is lost.
    pub cut: bool,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

impl UnixSocket {
    /// Connects to who listens at `place`.
    pub fn connect(place: Place<'_>) -> io::Result<UnixSocket> {
        let fd = socket()?;
        rustix::net::connect(&fd, &place.address()?)?;
        Ok(UnixSocket(fd))
    }

    /// Two ends of one connection.
    pub fn pair() -> io::Result<(UnixSocket, UnixSocket)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((UnixSocket(one), UnixSocket(other)))
    }

    /// Who is at the other end.
    pub fn peer(&self) -> io::Result<Credentials> {
        // Not by the library: it takes the number of a process for one that is never 0, which undefined behaviour follows from.
        let [pid, uid, gid] =
            get_option::<[libc::c_int; 3]>(self.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
        Ok(Credentials { pid: pid.cast_unsigned(), uid: uid.cast_unsigned(), gid: gid.cast_unsigned() })
    }

    /// Whether the other end is closed, though there may be packets of its left to read.
    pub fn has_ended(&self) -> bool {
        let mut ends = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let told = rustix::event::poll(&mut ends, Some(&now));
        told.is_ok_and(|count| count > 0) && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Ends the connection, though others may have descriptors of this end.
    pub fn shut_down(&self) {
        // The only failure is that there is none any more.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// Sends one packet with at most [`DESCRIPTORS_MAX`] descriptors. `WouldBlock`: the other end has too much to read.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fits = descriptors.len() <= DESCRIPTORS_MAX
            && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
        if !fits {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one packet"));
        }
        // Who is gone makes an error and no signal. Each call says that it does not wait, for a descriptor's flags are shared with
        // whoever has been passed it.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// The next packet, if there is one.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
        self.recv_by(buffer, RecvFlags::empty())
    }

    /// The same, and the packet stays the next: for whoever may have no descriptor left for one of its. It comes with others of the
    /// same files each time.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<Option<Packet>> {
        self.recv_by(buffer, RecvFlags::PEEK)
    }

    /// How many bytes the next packet has, of which the front is put into `buffer`; `None`: there is none. The packet stays the next, and what
    /// comes with it stays there.
    pub fn peek_bytes(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
        match rustix::net::recv(&self.0, buffer, flags) {
            Ok((_, bytes)) => Ok(Some(bytes)),
            Err(error) => nothing_yet(error),
        }
    }

    fn recv_by(&self, buffer: &mut [u8], how: RecvFlags) -> io::Result<Option<Packet>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | how;
        let got = match rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(got) => got,
            Err(error) => return nothing_yet(error),
        };
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = rights.flatten().collect();
        let cut = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Some(Packet { bytes: got.bytes, cut, descriptors }))
    }
}

/// An end that was passed by another process.
impl From<OwnedFd> for UnixSocket {
    fn from(fd: OwnedFd) -> UnixSocket {
        UnixSocket(fd)
    }
}

impl From<UnixSocket> for OwnedFd {
    fn from(socket: UnixSocket) -> OwnedFd {
        socket.0
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for UnixListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for UnixSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn nothing_yet<T>(error: rustix::io::Errno) -> io::Result<Option<T>> {
    match error {
        rustix::io::Errno::WOULDBLOCK => Ok(None),
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn packets_keep_their_bounds_and_bring_their_descriptors() {
        let (one, other) = UnixSocket::pair().unwrap();
        let event = EventFd::new().unwrap();
        one.send(b"first", &[event.as_fd(), event.as_fd()]).unwrap();
        one.send(b"second", &[]).unwrap();
        let mut buffer = [0; 64];
        let packet = other.recv(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (&buffer[..packet.bytes], packet.descriptors.len(), packet.cut),
            (&b"first"[..], 2, false)
        );
        // It is the same event, by another number.
        event.signal();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&packet.descriptors[1], &mut count).unwrap(), 8);
        assert_eq!(event.clear(), 0);
        assert_eq!(other.peek_bytes(&mut buffer[..2]).unwrap(), Some(6));
        let packet = other.recv(&mut buffer).unwrap().unwrap();
        assert_eq!((&buffer[..packet.bytes], packet.descriptors.len()), (&b"second"[..], 0));
        assert_eq!(other.peek_bytes(&mut buffer).unwrap(), None);
        assert!(other.recv(&mut buffer).unwrap().is_none());
        one.send(b"last", &[]).unwrap();
        assert!(!other.has_ended());
        drop(one);
        assert!(other.has_ended());
        assert_eq!(other.recv(&mut buffer).unwrap().unwrap().bytes, 4);
        assert_eq!(other.recv(&mut buffer).unwrap().unwrap().bytes, 0);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let (one, other) = UnixSocket::pair().unwrap();
        one.send(&[1; 100], &[]).unwrap();
        let packet = other.recv(&mut [0; 10]).unwrap().unwrap();
        assert!(packet.bytes == 10 && packet.cut);
        let many = vec![one.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(one.send(b"x", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(one.send(b"x", &many[1..]).is_ok());
        assert_eq!(other.recv(&mut [0; 10]).unwrap().unwrap().descriptors.len(), DESCRIPTORS_MAX);
    }

    #[test]
    fn who_listens_learns_who_connects() {
        let name = format!("polyrail-test-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        for place in [Place::Abstract(&name), Place::Path(&path)] {
            let listener = UnixListener::bind(place, 4).unwrap();
            assert!(listener.accept().unwrap().is_none());
            let client = UnixSocket::connect(place).unwrap();
            let server = listener.accept().unwrap().unwrap();
            let (peer, own) = (server.peer().unwrap(), std::fs::metadata("/proc/self").unwrap().uid());
            assert_eq!((peer.pid, peer.uid), (std::process::id(), own));
            client.send(b"hello", &[]).unwrap();
            let mut buffer = [0; 8];
            assert_eq!(server.recv(&mut buffer).unwrap().unwrap().bytes, 5);
            assert_eq!(UnixListener::bind(place, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_packet_for_nobody_is_an_error_and_no_signal() {
        let (one, other) = UnixSocket::pair().unwrap();
        drop(other);
        assert_eq!(one.send(b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
