//! What would become of a message that was sent now, and why: the scheduler's own decisions, asked for without taking
//! them, and a prediction made of what they are made of.

use super::Session;
use super::schedule::{admits, offer};
use super::serving::{Obstacle, Serving};
use crate::id::LinkId;
use crate::limits;
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
            _ if bytes <= limits::EAGER_BYTES_MAX => Way::Pieces,
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
        let choice = self.schedule.pick(&self.links, bytes);
        let small: Vec<Part> =
            (0..self.links.len()).map(|index| self.small_part(choice, index, bytes)).collect();
        let large = || self.links.iter().map(|link| self.large_part(link)).collect();
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
        let links = self.links.iter().zip(parts).zip(shares).map(|((link, part), share_bytes)| LinkOutlook {
            link: link.spec.id,
            part,
            offer: offer(serving, link, bytes, hope).ok(),
            expected: link.expect(0, hope),
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
    fn large_part(&self, link: &Link) -> Part {
        Serving::of(&self.links).obstacle(link).map_or(Part::Pulls, Part::Barred)
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
        let racer = |(link, part): (&Link, &Part)| {
            let rate = if part.takes() { link.rate(self.hope()) } else { 0 };
            (link.delay(0, self.hope()), rate)
        };
        let racers: Vec<(Duration, u64)> = self.links.iter().zip(parts).map(racer).collect();
        let done = finish(&racers, bytes);
        if pulling().count() > 1 && pulling().any(|link| link.window.is_starting()) {
            return (unknown(), Some(done));
        }
        let share = |&(begin, rate): &(Duration, u64)| Some(bytes_in(done - begin, rate).min(bytes));
        (racers.iter().map(share).collect(), Some(done))
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

/// Bytes that a rate moves in a span.
fn bytes_in(span: Duration, rate_bytes_per_s: u64) -> u64 {
    (span.0 as u128 * rate_bytes_per_s as u128 / 1_000_000_000) as u64
}

/// When links that begin to deliver at some time, each at its rate, are done together: those that begin before the end
/// have a share.
fn finish(racers: &[(Duration, u64)], bytes: u64) -> Duration {
    let mut by_begin: Vec<(Duration, u64)> = racers.iter().copied().filter(|(_, rate)| *rate > 0).collect();
    by_begin.sort_unstable();
    let (mut rates, mut late, mut done) = (0u128, 0u128, Duration(u64::MAX));
    for (begin, rate) in by_begin {
        if begin >= done {
            break;
        }
        rates += rate as u128;
        late += rate as u128 * begin.0 as u128;
        let done_ns = (bytes as u128 * 1_000_000_000 + late) / rates;
        done = Duration(u64::try_from(done_ns).unwrap_or(u64::MAX));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn links_that_begin_before_the_end_share_by_their_rates() {
        let ms = Duration::ms;
        let finish = |racers: &[(Duration, u64)], bytes| finish(racers, bytes);
        assert_eq!(finish(&[(ms(0), 100 * MB)], MB), ms(10));
        assert_eq!(finish(&[(ms(2), 100 * MB)], MB), ms(12));
        assert_eq!(finish(&[(ms(0), 100 * MB), (ms(0), 300 * MB)], 4 * MB), ms(10));
        // 1.5 MB and 0.5 MB.
        assert_eq!(finish(&[(ms(10), 100 * MB), (ms(0), 100 * MB)], 2 * MB), ms(15));
        assert_eq!(finish(&[(ms(10), 100 * MB), (ms(0), 100 * MB)], MB), ms(10), "the other begins too late");
        assert_eq!(finish(&[(ms(0), 0), (ms(1), 100 * MB)], MB), ms(11), "one that takes no part");
    }

    #[test]
    fn shares_are_what_each_moves_until_the_end() {
        assert_eq!(bytes_in(Duration::ms(5), 100 * MB), 500_000);
        assert_eq!(bytes_in(Duration(u64::MAX), 100), 1_844_674_407_370);
    }
}
