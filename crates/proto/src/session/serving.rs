//! Which links serve: new messages leave by these and by no others (protocol.md §6.4).
//!
//! One rule for all who ask, or one would leave its messages to a link that another holds shut.

use crate::link::Link;
use crate::wire::LinkStatus;

/// What the links of a session say together about each of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    /// Links that are wanted so serve: active ones, and standby ones while no active one is usable.
    status: LinkStatus,
    /// One of these has confirmed what it carried.
    sure: bool,
}

impl Serving {
    pub(super) fn of(links: &[Link]) -> Serving {
        let usable = |status| links.iter().filter(move |l| l.wanted() == status && l.usable());
        let active = usable(LinkStatus::Active).next().is_some();
        let status = if active { LinkStatus::Active } else { LinkStatus::Standby };
        Serving { status, sure: usable(status).any(|l| !l.in_doubt()) }
    }

    /// Whether new messages may leave by `link`. One in doubt takes none while another is sure to serve.
    pub(super) fn includes(self, link: &Link) -> bool {
        link.wanted() == self.status && link.usable() && !(self.sure && link.in_doubt())
    }

    /// Whether some link that serves has confirmed what it carried.
    pub(super) fn has_sure_link(self) -> bool {
        self.sure
    }
}
