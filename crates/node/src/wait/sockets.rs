//! The sockets that carry data, and how a sleep is ended by them: by the near ones directly, by the far ones through the
//! descriptor of the rare events. Each descriptor that a sleep watches costs it twice, when it begins and when it ends,
//! and a node has several that are silent for long; but what comes through the rare events costs two calls more.

use crate::engine::Engine;
use polyrail_bearer::Descriptors;
use polyrail_sys::epoll::{Epoll, Interest};
use std::io;
use std::os::fd::RawFd;

/// Set in the tokens of data sockets, beside the descriptor.
const SOCKET: u64 = 1 << 62;
/// A socket is far after so many sleeps in a row that others ended,
const SLEEPS_MAX: u32 = 32;
/// and after so many if twice as many as that had passed before the last that it ended: what comes by it comes seldom.
const SLEEPS_SELDOM: u32 = 8;

/// The descriptor of a data socket's event, if it is one.
pub(super) fn socket_of(token: u64) -> Option<RawFd> {
    (token & !0xffff_ffff == SOCKET).then_some(token as RawFd)
}

fn token_of(fd: RawFd) -> u64 {
    SOCKET | fd as u64
}

struct Socket {
    /// Number of its bearer.
    bearer: usize,
    fd: RawFd,
    /// Sleeps that others ended since it ended one.
    sleeps: u32,
    /// It is far after so many.
    sleeps_max: u32,
    far: bool,
}

impl Socket {
    fn new(bearer: usize, fd: RawFd) -> Socket {
        Socket { bearer, fd, sleeps: 0, sleeps_max: SLEEPS_MAX, far: false }
    }
}

/// The sockets as of the last look. `joined` says that a program waits on the descriptor of the rare events: everything is
/// to end its sleep, so all sockets are in that set then, and else the far ones.
pub(super) struct DataSockets {
    version: u64,
    all: Vec<Socket>,
    /// What beacons come by, each with the number of its bearer: always among the rare events.
    beacons: Vec<(usize, RawFd)>,
}

impl DataSockets {
    /// Those of the engine; its beacons become rare events.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn of(engine: &Engine, epoll: &Epoll) -> io::Result<DataSockets> {
        let beacons: Vec<(usize, RawFd)> = beacons(engine).collect();
        beacons.iter().try_for_each(|&(bearer, fd)| epoll.add(fd, bearer as u64, Interest::READ))?;
        Ok(DataSockets { version: engine.fds_version(), all: sockets(engine).collect(), beacons })
    }

    /// Takes notice of sockets that came and went; whether there were any. They are all near then. A bearer that is closed
    /// has its sockets until this has been called: the number of one that was closed before may be another's already.
    pub fn refresh(&mut self, engine: &Engine, epoll: &Epoll, joined: bool) -> bool {
        if self.version == engine.fds_version() {
            return false;
        }
        if !joined {
            self.all.iter().filter(|socket| socket.far).for_each(|socket| leave(epoll, socket.fd));
        }
        let beacons: Vec<(usize, RawFd)> = beacons(engine).collect();
        let gone = self.beacons.iter().filter(|beacon| !beacons.contains(beacon));
        gone.for_each(|&(_, fd)| leave(epoll, fd));
        for &(bearer, fd) in beacons.iter().filter(|beacon| !self.beacons.contains(beacon)) {
            // It fails for want of kernel memory only: beacons are then found by turns that look everywhere.
            let _ = epoll.add(fd, bearer as u64, Interest::READ);
        }
        self.beacons = beacons;
        self.all.clear();
        self.all.extend(sockets(engine));
        self.version = engine.fds_version();
        if joined {
            // It fails for want of kernel memory only: what the new socket gets is then found by other events.
            let _ = self.join(epoll);
        }
        true
    }

    /// Lets all of them make the descriptor of the rare events readable. What has entered before one fails stays, which
    /// costs sleeps only.
    pub fn join(&self, epoll: &Epoll) -> io::Result<()> {
        self.all.iter().try_for_each(|socket| enter(epoll, socket.fd))
    }

    /// Those that a sleep watches itself, with the numbers of their bearers, and whether it waits for room there: the near
    /// ones, and those of `full`, for no rare event tells of room.
    pub fn near(&self, full: &[RawFd]) -> impl Iterator<Item = (usize, RawFd, bool)> {
        let all = self.all.iter().map(|socket| (socket, full.contains(&socket.fd)));
        all.filter(|(socket, room)| !socket.far || *room)
            .map(|(socket, room)| (socket.bearer, socket.fd, room))
    }

    /// Takes notice of those that ended a sleep.
    pub fn note_sleep(&mut self, epoll: &Epoll, ended_by: &[RawFd], joined: bool) {
        if ended_by.is_empty() {
            return;
        }
        for socket in &mut self.all {
            if ended_by.contains(&socket.fd) {
                let is_seldom = std::mem::take(&mut socket.sleeps) >= 2 * SLEEPS_MAX;
                socket.sleeps_max = if is_seldom { SLEEPS_SELDOM } else { SLEEPS_MAX };
                if std::mem::take(&mut socket.far) && !joined {
                    leave(epoll, socket.fd);
                }
            } else {
                socket.sleeps = socket.sleeps.saturating_add(1);
                // Whoever can't be far, for want of kernel memory, stays near.
                socket.far =
                    socket.far || socket.sleeps >= socket.sleeps_max && enter(epoll, socket.fd).is_ok();
            }
        }
    }
}

fn sockets(engine: &Engine) -> impl Iterator<Item = Socket> {
    let of = |(bearer, fds): (usize, Descriptors)| fds.data.into_iter().map(move |fd| (bearer, fd));
    engine.fds().flat_map(of).map(|(bearer, fd)| Socket::new(bearer, fd))
}

fn beacons(engine: &Engine) -> impl Iterator<Item = (usize, RawFd)> {
    engine.fds().filter_map(|(bearer, fds)| Some((bearer, fds.beacon?)))
}

fn enter(epoll: &Epoll, fd: RawFd) -> io::Result<()> {
    match epoll.add(fd, token_of(fd), Interest::READ) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A socket that was closed has left by itself.
fn leave(epoll: &Epoll, fd: RawFd) {
    let _ = epoll.remove(fd);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_sys::epoll::Events;
    use polyrail_sys::eventfd::EventFd;
    use std::os::fd::AsRawFd;

    struct World {
        epoll: Epoll,
        sockets: DataSockets,
        busy: EventFd,
        silent: EventFd,
    }

    impl World {
        /// Two sockets, one of which has ended `sleeps` sleeps.
        fn after(sleeps: u32) -> World {
            let (epoll, busy, silent) =
                (Epoll::new().unwrap(), EventFd::new().unwrap(), EventFd::new().unwrap());
            let fds = [busy.as_raw_fd(), silent.as_raw_fd()];
            let all = fds.map(|fd| Socket::new(7, fd)).into();
            let mut sockets = DataSockets { version: 0, all, beacons: Vec::new() };
            (0..sleeps).for_each(|_| sockets.note_sleep(&epoll, &fds[..1], false));
            World { epoll, sockets, busy, silent }
        }

        fn near(&self, full: &[RawFd]) -> Vec<RawFd> {
            self.sockets.near(full).map(|(_, fd, _)| fd).collect()
        }

        /// The sockets that make the descriptor of the rare events readable.
        fn told(&self) -> Vec<Option<RawFd>> {
            let mut events = Events::new(4);
            self.epoll.wait(&mut events, Some(0)).unwrap();
            events.iter().map(|event| socket_of(event.token)).collect()
        }
    }

    #[test]
    fn one_that_ends_no_sleep_for_long_is_far_until_it_ends_one() {
        let mut world = World::after(SLEEPS_MAX - 1);
        let (busy, silent) = (world.busy.as_raw_fd(), world.silent.as_raw_fd());
        assert_eq!(world.near(&[]), [busy, silent]);
        world.sockets.note_sleep(&world.epoll, &[], false);
        assert_eq!(world.near(&[]), [busy, silent], "nobody has ended that one");
        world.sockets.note_sleep(&world.epoll, &[busy], false);
        assert_eq!(world.near(&[]), [busy]);
        assert_eq!(world.near(&[silent]), [busy, silent], "it waits for room");
        assert!(world.sockets.near(&[silent]).all(|(_, fd, room)| room == (fd == silent)));
        world.busy.signal();
        assert_eq!(world.told(), []);
        world.silent.signal();
        assert_eq!(world.told(), [Some(silent)]);
        world.sockets.note_sleep(&world.epoll, &[silent], false);
        assert_eq!(world.near(&[]), [busy, silent]);
        assert_eq!(world.told(), []);
        (0..SLEEPS_MAX - 1).for_each(|_| world.sockets.note_sleep(&world.epoll, &[busy], false));
        assert_eq!(world.near(&[]), [busy, silent], "its silence is counted from there");
    }

    #[test]
    fn one_that_ends_a_sleep_seldom_is_far_again_soon() {
        for (sleeps, again) in [(2 * SLEEPS_MAX - 1, SLEEPS_MAX), (2 * SLEEPS_MAX, SLEEPS_SELDOM)] {
            let mut world = World::after(sleeps);
            let (busy, silent) = (world.busy.as_raw_fd(), world.silent.as_raw_fd());
            world.sockets.note_sleep(&world.epoll, &[silent], false);
            (0..again - 1).for_each(|_| world.sockets.note_sleep(&world.epoll, &[busy], false));
            assert_eq!(world.near(&[]), [busy, silent]);
            world.sockets.note_sleep(&world.epoll, &[busy], false);
            assert_eq!(world.near(&[]), [busy], "after {again}");
        }
    }

    #[test]
    fn a_program_is_told_of_all_wherever_they_are() {
        let mut world = World::after(SLEEPS_MAX);
        let (busy, silent) = (world.busy.as_raw_fd(), world.silent.as_raw_fd());
        world.sockets.join(&world.epoll).unwrap();
        world.busy.signal();
        world.silent.signal();
        assert_eq!(world.told().len(), 2);
        world.sockets.note_sleep(&world.epoll, &[silent], true);
        assert_eq!(world.near(&[]), [busy, silent]);
        assert_eq!(world.told().len(), 2, "one that is near again has not left");
    }

    #[test]
    fn tokens_of_others_are_no_sockets() {
        for token in [u64::MAX, u64::MAX - 1, 0, 5] {
            assert_eq!(socket_of(token), None);
        }
    }
}
