//! Where other nodes of the machine knock, and what they say.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use polyrail_sys::unix::{Credentials, Place, UnixListener, UnixSocket};

/// The first word of who connects: this, then its seat. With it comes the ring.
const MAGIC: [u8; 8] = *b"polyshm1";
/// Newcomers that wait until this end looks.
const BACKLOG: i32 = 64;

/// Bytes of the first word.
pub(super) const HELLO_BYTES: usize = 16;

/// Who sits in `seat`, to whom they connect.
pub(super) fn hello(seat: u64) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&seat.to_be_bytes());
    bytes
}

/// Who says so, if it is such a word.
pub(super) fn seat_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.strip_prefix(&MAGIC)?.try_into().ok()?))
}

/// Connects to who sits in `seat`.
pub(super) fn knock(machine: u64, seat: u64) -> io::Result<UnixSocket> {
    UnixSocket::connect(Place::Abstract(&name(machine, seat)))
}

/// Whether that process sits in `seat`: nobody is to speak for another.
pub(super) fn sits(machine: u64, seat: u64, who: Credentials) -> bool {
    knock(machine, seat)
        .and_then(|socket| socket.peer())
        .is_ok_and(|sits| (sits.pid, sits.uid) == (who.pid, who.uid))
}

/// The seats of a machine at which somebody listens: the system lists its sockets, once and again for each connection.
///
/// # Errors
/// The system does not tell.
pub(super) fn seats(machine: u64) -> io::Result<Vec<u64>> {
    let list = std::fs::read("/proc/thread-self/net/unix")?;
    let mut seats = seats_in(&String::from_utf8_lossy(&list), machine);
    seats.sort_unstable();
    seats.dedup();
    Ok(seats)
}

fn seats_in(list: &str, machine: u64) -> Vec<u64> {
    let prefix = format!("@{}/", folder(machine));
    let seat = |line: &str| {
        u64::from_str_radix(line.split_ascii_whitespace().last()?.strip_prefix(&prefix)?, 16).ok()
    };
    list.lines().filter_map(seat).collect()
}

fn folder(machine: u64) -> String {
    format!("polyrail/shm/{machine:016x}")
}

fn name(machine: u64, seat: u64) -> String {
    format!("{}/{seat:016x}", folder(machine))
}

/// A node's own.
pub(super) struct Door {
    listener: UnixListener,
    uid: u32,
}

impl Door {
    pub fn open(machine: u64, seat: u64) -> io::Result<Door> {
        let name = name(machine, seat);
        let listener = UnixListener::bind(Place::Abstract(&name), BACKLOG)?;
        // What others will see of this process when it connects.
        let (one, _other) = UnixSocket::pair()?;
        Ok(Door { listener, uid: one.peer()?.uid })
    }

    /// The user that this process runs as.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The next who has come, and who that is.
    pub fn next(&self) -> Option<(UnixSocket, Credentials)> {
        loop {
            // An error is of one that has gone again, or of this process, which has no descriptor left.
            let socket = self.listener.accept().ok()??;
            if let Ok(peer) = socket.peer() {
                return Some((socket, peer));
            }
        }
    }
}

impl AsRawFd for Door {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_found_in_what_the_system_lists() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 20 @polyrail/shm/00000000000000ab/000000000000000f\n\
            0000000000000000: 00000003 00000000 00000000 0005 03 21 @polyrail/shm/00000000000000ab/000000000000000f\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 22 @polyrail/shm/00000000000000ac/0000000000000001\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 23 @polyrail/shm/00000000000000ab/nobody\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 24 /run/a file with blanks\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 25\n";
        assert_eq!(seats_in(list, 0xab), [15, 15]);
        assert_eq!(seats_in("", 0xab), [0; 0]);
        let (one, other) =
            (Door::open(0xdead_0000_0000_0001, 3).unwrap(), Door::open(0xdead_0000_0000_0001, 1).unwrap());
        let _visitor = knock(0xdead_0000_0000_0001, 1).unwrap();
        assert_eq!(seats(0xdead_0000_0000_0001).unwrap(), [1, 3]);
        drop((one, other));
        assert_eq!(seats(0xdead_0000_0000_0001).unwrap(), [0; 0]);
    }

    #[test]
    fn only_the_process_that_listens_at_a_seat_sits_there() {
        let machine = 0xdead_0000_0000_0002;
        let _door = Door::open(machine, 5).unwrap();
        let own = knock(machine, 5).unwrap().peer().unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(sits(machine, 5, own) && !sits(machine, 6, own), "nobody is there");
        assert!(!sits(machine, 5, Credentials { pid: own.pid + 1, ..own }));
        assert!(!sits(machine, 5, Credentials { uid: own.uid + 1, ..own }));
    }
}
