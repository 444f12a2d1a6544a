//! Which links serve: new messages leave by these and by no others (protocol.md §6.4).
//!
//! One rule for all who ask, or one would leave its messages to a link that another holds shut.

use crate::flow::Class;
use crate::link::Link;
use crate::link::state::LinkState;
use crate::wire::LinkStatus;

/// What keeps messages from leaving by a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Its bearer has no carrier.
    NoCarrier,
    /// Its state is one in which it carries none.
    State(LinkState),
    /// It is standby, and an active link is usable.
    Standby,
    /// It is drained.
    Drain,
    /// A link by shared memory serves, and this is none.
    Far,
    /// A probe time-out has passed without any confirmation, and another link is not in doubt.
    InDoubt,
    /// All that its window allows is in flight.
    NoRoom,
}

/// What the links of a session say together about each of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    /// Links that are wanted so serve: active ones, and standby ones while no active one is usable.
    status: LinkStatus,
    /// One of these is by shared memory, and no others serve.
    near: bool,
    /// One of those that serve has confirmed what it carried.
    sure: bool,
    /// One that serves is up, and not on probation.
    up: bool,
}

impl Serving {
    pub(super) fn of(links: &[Link]) -> Serving {
        let usable = |status| links.iter().filter(move |l| l.wanted() == status && l.usable());
        let active = usable(LinkStatus::Active).next().is_some();
        let status = if active { LinkStatus::Active } else { LinkStatus::Standby };
        let is_up = |l: &Link| l.state.state() == LinkState::Up;
        // One in doubt is as others are: nothing waits for a peer that is stopped.
        let near = usable(status).any(|l| l.spec.near && is_up(l) && !l.in_doubt());
        let serving = || usable(status).filter(|l| !near || l.spec.near);
        let sure = serving().any(|l| !l.in_doubt());
        let up = serving().any(|l| is_up(l) && !(sure && l.in_doubt()));
        Serving { status, near, sure, up }
    }

    /// Whether new messages may leave by `link`.
    #[inline]
    pub(super) fn includes(self, link: &Link) -> bool {
        self.obstacle(link).is_none()
    }

    /// What keeps new messages from leaving by `link`. One in doubt takes none while another is sure to serve.
    #[inline]
    pub(super) fn obstacle(self, link: &Link) -> Option<Obstacle> {
        if !link.usable() {
            return Some(if link.carrier {
                Obstacle::State(link.state.state())
            } else {
                Obstacle::NoCarrier
            });
        }
        match link.wanted() {
            wanted if wanted == self.status && self.near && !link.spec.near => Some(Obstacle::Far),
            wanted if wanted == self.status => (self.sure && link.in_doubt()).then_some(Obstacle::InDoubt),
            LinkStatus::Standby => Some(Obstacle::Standby),
            _ => Some(Obstacle::Drain),
        }
    }

    /// Whether `link`, which serves, may carry messages of `class`. Those of control and urgent are not for links on probation
    /// while one that is up serves.
    #[inline]
    pub(super) fn trusts(self, link: &Link, class: Class) -> bool {
        class > Class::Urgent || !self.up || link.state.state() == LinkState::Up
    }

    /// What to expect of links of which nothing is known ([`Link::hope`]).
    pub(super) fn hope(self, links: &[Link]) -> u64 {
        Link::hope(links.iter().filter(|link| self.includes(link)))
    }

    /// Whether some link that serves has confirmed what it carried.
    pub(super) fn has_sure_link(self) -> bool {
        self.sure
    }
}
