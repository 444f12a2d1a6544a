//! Where the engine is that a node's ports talk to: in this process, or in another.

use crate::attach::Attached;
use crate::engine::{Budget, Client, Work};
use crate::node::Home;
use crate::wait::Drive;
use std::cell::RefCell;
use std::sync::Arc;

pub(crate) enum Host {
    /// Here: whoever has something to do drives it.
    Own(Arc<Home>),
    /// In another process, which drives it: whoever hands something in wakes it if it sleeps.
    Other(Attached),
}

impl Host {
    /// The engine of this process, if there is one.
    #[inline]
    pub(crate) fn own(&self) -> Option<&Drive> {
        match self {
            Host::Own(home) => Some(&home.drive),
            Host::Other(_) => None,
        }
    }

    /// Whether this is a child of the process that started the node or was attached to it.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        match self {
            Host::Own(home) => home.drive.is_forked(),
            Host::Other(attached) => attached.is_forked(),
        }
    }

    /// Sees to it that what `client` has handed in is done: by a turn of this thread, if nobody else makes one.
    #[inline]
    pub(crate) fn turn(&self, client: &RefCell<Client>, now_ns: u64, budget: Budget) -> Option<Work> {
        match self {
            Host::Own(home) => home.drive.turn_at(now_ns, budget),
            Host::Other(attached) => {
                attached.call(client);
                None
            }
        }
    }

    /// Waits until whoever has the engine gives it back; where that is another process, lets others have the core.
    pub(crate) fn wait_for_engine(&self) {
        match self {
            Host::Own(home) => drop(home.drive.engine()),
            Host::Other(_) => std::thread::yield_now(),
        }
    }
}
