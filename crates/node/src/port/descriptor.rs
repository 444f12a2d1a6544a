//! The descriptor by which a program with an event loop of its own learns that there is something for a port.

use super::Port;
use crate::readiness::Readiness;
use polyrail_shm::PortBell;
use polyrail_sys::epoll::Events;
use polyrail_sys::unix::UnixSocket;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Lines of which one call tells that they have news.
const NEWS_MAX: usize = 64;

/// A port's descriptor.
pub(crate) struct Descriptor {
    readiness: Readiness,
    /// Of a port that others tell by lines.
    news: Option<News>,
}

struct News {
    room: RefCell<Events>,
    /// Somebody's line could not be joined, so that there may be news at any time: the program looks all the time.
    always: Cell<bool>,
}

impl Descriptor {
    fn of_guest(readiness: Readiness) -> Descriptor {
        let news = News { room: RefCell::new(Events::new(NEWS_MAX)), always: Cell::new(false) };
        Descriptor { readiness, news: Some(news) }
    }

    fn join(&self, line: &UnixSocket) {
        if let Some(news) = &self.news
            && self.readiness.join(line.as_raw_fd()).is_err()
        {
            // The system watches no more of them.
            news.always.set(true);
            self.readiness.told().signal();
        }
    }

    /// Forgets signals and news, which `clear_line` takes away.
    fn clear(&self, clear_line: impl Fn(RawFd)) {
        let Some(news) = &self.news else { return self.readiness.clear() };
        if !news.always.get() {
            self.readiness.clear();
        }
        loop {
            let mut room = news.room.borrow_mut();
            let (lines, count) = self.readiness.joined(&mut room);
            lines.for_each(&clear_line);
            if count < NEWS_MAX {
                break;
            }
        }
    }
}

impl Port {
    /// A descriptor that becomes readable when there may be a message, or work for the engine: then call `try_recv`
    /// until it gives `None`. Wait for it to be readable, but do not read from it. It is the port's and is closed with
    /// it.
    ///
    /// Where the node is another process's it serves on when that is gone, as long as anybody lives that the port talks to past it; that the
    /// node is gone, or one of those, makes it readable once. If nobody is left it stays readable, and `try_recv` says why
    /// ([`crate::RecvError::Closed`]).
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn fd(&self) -> io::Result<RawFd> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.readiness.fd());
        }
        let descriptor = match (self.shared.host.own(), &self.tie) {
            (Some(drive), _) => {
                let readiness = Readiness::new(drive.fd()?)?;
                drive.engine().watch_port(self.address.port, readiness.told());
                Descriptor { readiness, news: None }
            }
            (_, Some(tie)) => {
                let descriptor = Descriptor::of_guest(tie.watch()?);
                self.note_sleepy();
                let client = self.client.borrow();
                client.lines().for_each(|line| descriptor.join(line));
                client.bell.iter().for_each(PortBell::arm);
                descriptor
            }
            (None, None) => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(self.descriptor.get_or_init(|| descriptor).readiness.fd())
    }

    /// Forgets that the descriptor was readable. Look again afterwards.
    pub(crate) fn clear_readiness(&self, descriptor: &Descriptor) {
        let client = self.client.borrow();
        descriptor.clear(|line| client.clear_line(line));
        client.bell.iter().for_each(PortBell::arm);
        self.tie.iter().for_each(|tie| tie.clear_news());
    }

    /// A way past the engine is there from now on: whoever is at its other end tells by its line, and how long waits were before says
    /// nothing any more.
    pub(super) fn begin_way(&self, line: &UnixSocket) {
        self.patience.borrow_mut().forget();
        self.descriptor.get().into_iter().for_each(|descriptor| descriptor.join(line));
    }

    /// If nothing comes any more, the descriptor says so whenever it is asked.
    pub(super) fn tell_cut_off(&self) {
        if let Some(descriptor) = self.descriptor.get()
            && self.is_cut_off()
        {
            descriptor.readiness.told().signal();
        }
    }
}
