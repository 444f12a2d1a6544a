//! A descriptor for programs with an event loop of their own.
//!
//! What a port waits for may be done by any thread that drives the engine: the descriptor must become readable when
//! there is something for the engine to do, and also when another thread has done it. So it joins two: the engine's, and
//! one that is signalled when something is put where the owner takes it from.

use polyrail_sys::epoll::{Epoll, Interest};
use polyrail_sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

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
        epoll.add(engine_fd, 0, Interest::READ)?;
        epoll.add(told.as_raw_fd(), 1, Interest::READ)?;
        Ok(Readiness { epoll, told })
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
