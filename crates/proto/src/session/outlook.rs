//! What would become of a message that was sent now, and why: the scheduler's own decisions, asked for without taking
//! them, and a prediction made of what they are made of.

use super::Session;
use super::choice::{admits, offer};
use super::division::{Candidate, level_ns, part_loss};
use super::serving::{Obstacle, Serving};
use crate::id::LinkId;
use crate::limits;
use crate::link::pace::Known;
use crate::link::{Expected, Link};
use crate::time::Duration;

/// How a message of some size goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the link of least expected delay.
    Small,
    /// In pieces that links with room pull, without asking.
    Pieces,
    /// The same, when the receiver has answered its announcement.
    Announced,
}

/// What a link has to do with the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Small messages choose it.
    Chosen,
    /// It takes small messages as well, for there is no choice, or the bearer of the choice takes nothing.
    Admitted,
    /// It could take small messages, but another has their choice.
    Behind,
    /// It pulls pieces when it has room.
    Pulls,
    /// It would pull pieces, but deliver less than half a packet before the others, which are far faster, are done.
    Late,
    /// It is left out of large messages, for another delivers as much as all did.
    Spared,
    /// Something keeps it from messages.
    Barred(Obstacle),
}

/// A link in the outlook of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOutlook {
    /// Its number.
    pub link: LinkId,
    /// What it has to do with the message.
    pub part: Part,
    /// The delay by which links compete for small messages, of a link that may.
    pub offer: Option<Duration>,
    /// What the delay of the message's first byte is made of.
    pub expected: Expected,
    /// How much later the message, or its part of it, arrives on the average for what the link loses.
    pub loss: Duration,
    /// Bytes of the message that are predicted to go by it; `None` while that is unknown.
    pub share_bytes: Option<u64>,
}

/// What would become of a message that was sent now, if nothing else waited to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// How it goes.
    pub way: Way,
    /// The links of the session, in order.
    pub links: Vec<LinkOutlook>,
    /// The link that small messages choose; `None`: no link that serves has room in its window.
    pub choice: Option<LinkId>,
    /// For its announcement to arrive and the answer to be back, if it is announced and that is known.
    pub announcement: Option<Duration>,
    /// Until its last byte has arrived, and by the slowest if several links may take the whole of it; `None` while that is
    /// unknown.
    pub arrival: Option<Duration>,
}

impl Way {
    fn of(bytes: u64) -> Way {
        match bytes {
            _ if bytes <= limits::SMALL_BYTES_MAX => Way::Small,
            _ if bytes <= limits::UNASKED_BYTES_MAX => Way::Pieces,
            _ => Way::Announced,
        }
    }
}

impl Part {
    /// Whether the link carries the message, or some of it.
    pub fn takes(self) -> bool {
        matches!(self, Part::Chosen | Part::Admitted | Part::Pulls)
    }
}

impl Session {
    /// The rate that is expected of links of which none is known, bytes per second ([`Link::hope`]).
    pub fn hope(&self) -> u64 {
        Serving::of(&self.links).hope(&self.links)
    }

    /// What would become of a message of `bytes` to the peer. Asking decides nothing.
    pub fn outlook(&self, bytes: u64) -> Outlook {
        let way = Way::of(bytes);
        let choice = self.choice.pick(&self.links, self.schedule.urgency(), bytes);
        // An announcement goes along with the pieces, if these go by one link.
        let taker = if way == Way::Small { choice } else { self.kept_of_late().or(choice) };
        let small: Vec<Part> =
            (0..self.links.len()).map(|index| self.small_part(taker, index, bytes)).collect();
        let large = || (0..self.links.len()).map(|index| self.large_part(index, bytes)).collect();
        let parts = if way == Way::Small { small.clone() } else { large() };
        let (shares, sending) = match way {
            Way::Small => self.go_alone(&parts, bytes),
            Way::Pieces | Way::Announced => self.go_together(&parts, bytes),
        };
        let announcement = if way == Way::Announced { self.announcement(&small) } else { None };
        let arrival = match way {
            Way::Announced => sending.zip(announcement).map(|(sending, before)| before + sending),
            _ => sending,
        };
        let (serving, hope) = (Serving::of(&self.links), self.hope());
        let sum = self.rate_together(&parts);
        let links = self.links.iter().zip(parts).zip(shares).map(|((link, part), share_bytes)| LinkOutlook {
            link: link.spec.id,
            part,
            offer: offer(serving, link, bytes, hope).ok(),
            expected: link.expect(0, hope),
            loss: if way == Way::Small {
                link.loss_delay(bytes)
            } else {
                part_loss(link, bytes, link.rate(hope), sum)
            },
            share_bytes,
        });
        let choice = choice.map(|index| self.links[index].spec.id);
        Outlook { way, links: links.collect(), choice, announcement, arrival }
    }

    /// What link `index` has to do with a small message: `Session::fill` decides by the same functions.
    fn small_part(&self, choice: Option<usize>, index: usize, bytes: u64) -> Part {
        let link = &self.links[index];
        let serving = Serving::of(&self.links);
        if serving.includes(link) && admits(choice, &self.links, index) && link.small_room() > 0 {
            return if choice == Some(index) { Part::Chosen } else { Part::Admitted };
        }
        offer(serving, link, bytes, self.hope()).map_or_else(Part::Barred, |_| Part::Behind)
    }

    /// What a link has to do with a large one. A window that is full has room again soon.
    fn large_part(&self, index: usize, bytes: u64) -> Part {
        match Serving::of(&self.links).obstacle(&self.links[index]) {
            Some(obstacle) => Part::Barred(obstacle),
            None if self.kept_of_late().is_some_and(|kept| kept != index) => Part::Spared,
            None if self.is_late_for(index, bytes) => Part::Late,
            None => Part::Pulls,
        }
    }

    /// A message that goes by one link. If several would take it, it is the one that is asked first: then it takes no longer
    /// than by the slowest of them.
    fn go_alone(&self, parts: &[Part], bytes: u64) -> (Vec<Option<u64>>, Option<Duration>) {
        let takers = || self.links.iter().zip(parts).filter(|(_, part)| part.takes()).map(|(link, _)| link);
        let share = |part: &Part| match (part.takes(), takers().count()) {
            (false, _) => Some(0),
            (true, 1) => Some(bytes),
            (true, _) => None,
        };
        let known = takers().all(|link| link.rtt.has_sample());
        let slowest = takers().map(|link| link.delay(bytes, self.hope())).max();
        (parts.iter().map(share).collect(), slowest.filter(|_| known))
    }

    /// A message of which each link pulls what it can deliver: all are done at the same time. The rate of a link that is
    /// starting is the largest that was seen, maybe of a burst: good for a rough time, and too little for shares.
    fn go_together(&self, parts: &[Part], bytes: u64) -> (Vec<Option<u64>>, Option<Duration>) {
        let pulling = || self.links.iter().zip(parts).filter(|(_, part)| part.takes()).map(|(link, _)| link);
        let unknown = || parts.iter().map(|part| if part.takes() { None } else { Some(0) }).collect();
        if pulling().next().is_none() || !pulling().all(is_measured) {
            return (unknown(), None);
        }
        let sum = self.rate_together(parts);
        let candidate = |link: &Link| Candidate::of(link, self.hope()).losing(link, bytes, sum);
        let candidates: Vec<Candidate> = pulling().map(candidate).collect();
        let done_ns = level_ns(&candidates, bytes);
        let done = Some(Duration(done_ns));
        if pulling().count() > 1 && pulling().any(|link| link.rate_known() != Known::Measured) {
            return (unknown(), done);
        }
        let share = |own: Candidate| own.moves(done_ns.saturating_sub(own.delay_ns)).min(bytes);
        let mut shares = candidates.into_iter().map(share);
        let of_part = |part: &Part| Some(if part.takes() { shares.next().unwrap_or(0) } else { 0 });
        (parts.iter().map(of_part).collect(), done)
    }

    /// What the links deliver together that carry the message, bytes per second.
    fn rate_together(&self, parts: &[Part]) -> u64 {
        let takers = self.links.iter().zip(parts).filter(|(_, part)| part.takes());
        takers.map(|(link, _)| link.rate(self.hope())).sum()
    }

    /// There by the link that small messages take, and back by the same, as far as it is for us to know.
    fn announcement(&self, small: &[Part]) -> Option<Duration> {
        let takers =
            self.links.iter().zip(small).filter(|(link, part)| part.takes() && link.rtt.has_sample());
        takers.map(|(link, _)| link.delay(0, self.hope()) + link.expect(0, self.hope()).trip).min()
    }
}

/// Whether both the way and the rate that its delay is reckoned with were measured: a message of many packets would take
/// any time else.
fn is_measured(link: &Link) -> bool {
    link.rtt.has_sample() && link.has_measured_rate()
}
