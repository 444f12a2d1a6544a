//! A descriptor for programs with an event loop of their own.
//!
//! What a port waits for may be done by any thread that drives the engine: the descriptor must become readable when
//! there is something for the engine to do, and also when another thread has done it. So it joins two: the engine's, and
//! one that is signalled when something is put where the owner takes it from.

use polyrail_sys::epoll::{Epoll, Events, Interest};
use polyrail_sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// What was joined at first.
const OWN: u64 = u64::MAX;

pub(crate) struct Readiness {
    epoll: Epoll,
    told: Arc<EventFd>,
}

impl Readiness {
    /// Joins the engine's descriptor with a new one.
    pub(crate) fn new(engine_fd: RawFd) -> io::Result<Readiness> {
        Readiness::with(engine_fd, Arc::new(EventFd::new()?))
    }

    /// Joins the engine's descriptor with one that is signalled already.
    pub(crate) fn with(engine_fd: RawFd, told: Arc<EventFd>) -> io::Result<Readiness> {
        let epoll = Epoll::new()?;
        epoll.add(engine_fd, OWN, Interest::READ)?;
        epoll.add(told.as_raw_fd(), OWN, Interest::READ)?;
        Ok(Readiness { epoll, told })
    }

    /// Joins a node's socket with what is signalled for news of it that were put off. Sockets count once for each packet and for their
    /// end, so that one that has ended makes nothing readable for ever.
    pub(crate) fn of_guest(node_fd: RawFd, told: Arc<EventFd>) -> io::Result<Readiness> {
        let epoll = Epoll::new()?;
        epoll.add(node_fd, OWN, Interest::NEWS)?;
        epoll.add(told.as_raw_fd(), OWN, Interest::READ)?;
        Ok(Readiness { epoll, told })
    }

    /// Joins one more socket, by which others tell of news. It leaves when it is closed.
    pub(crate) fn join(&self, fd: RawFd) -> io::Result<()> {
        self.epoll.add(fd, fd as u64, Interest::NEWS)
    }

    /// Which of these have news, each once: as many as there is room for, of so many that there are.
    pub(crate) fn joined<'a>(&self, room: &'a mut Events) -> (impl Iterator<Item = RawFd> + 'a, usize) {
        let count = self.epoll.wait(room, Some(0)).unwrap_or(0);
        let joined = room.iter().filter(|event| event.token != OWN).map(|event| event.token as RawFd);
        (joined, count)
    }

    /// What the engine signals.
    pub(crate) fn told(&self) -> Arc<EventFd> {
        self.told.clone()
    }

    /// Forgets signals. Whoever calls it must look again afterwards: something may have come just before.
    pub(crate) fn clear(&self) {
        self.told.clear();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
