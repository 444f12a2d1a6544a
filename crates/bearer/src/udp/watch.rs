//! One question to the kernel in place of one for each socket, for who looks at all of them again and again in vain.
//!
//! To read an empty socket takes half a microsecond and more; to ask whether any of several has something, a fifth. What comes
//! while a thread reads empty sockets waits for it. The kernel notes what arrives in a socket that is watched, which
//! takes its time too: so it is begun with looks in vain.

use polyrail_sys::epoll::{Epoll, Events, Interest};

use super::sockets::Sockets;

/// Looks in vain, one after the other, after which the sockets are watched.
const VAIN_LOOKS: u32 = 16;

#[derive(Default)]
pub(super) struct Watch {
    /// With the version of the sockets that are in it.
    watched: Option<(Epoll, u32)>,
    events: Option<Events>,
    vain: u32,
}

impl Watch {
    /// Whether none of `sockets` has anything, be it an error, as far as that can be known at once: else they are to be read.
    pub fn sees_nothing(&mut self, sockets: &Sockets) -> bool {
        if self.vain < VAIN_LOOKS {
            return false;
        }
        if self.watched.as_ref().is_none_or(|(_, version)| *version != sockets.version) {
            self.watched = watch(sockets).map(|epoll| (epoll, sockets.version));
        }
        let Some((epoll, _)) = &self.watched else {
            self.vain = 0;
            return false;
        };
        let events = self.events.get_or_insert_with(|| Events::new(1));
        epoll.wait(events, Some(0)).is_ok_and(|ready| ready == 0)
    }

    /// Notes how a look at all of them went that was not spared.
    pub fn note(&mut self, found: bool) {
        // Once they are watched they stay so: most that comes to a thread that looks on in vain is single packets.
        if self.watched.is_none() {
            self.vain = if found { 0 } else { self.vain + 1 };
        }
    }
}

/// All sockets; `None` where the system has no descriptor or memory for that.
fn watch(sockets: &Sockets) -> Option<Epoll> {
    let epoll = Epoll::new().ok()?;
    sockets.fds().into_iter().try_for_each(|fd| epoll.add(fd, 0, Interest::READ)).ok()?;
    Some(epoll)
}
