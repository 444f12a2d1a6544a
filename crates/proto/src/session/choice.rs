//! By which link small messages leave: the one of least expected delay (protocol.md §5.11).

use super::rivals::Rivals;
use super::serving::{Obstacle, Serving};
use crate::flow::Class;
use crate::limits;
use crate::link::Link;
use crate::time::{Duration, Instant};
use arrayvec::ArrayVec;

/// A link must be better by this to take over small messages, lest they hop at every packet.
const GAIN_NS: u64 = 20_000;
/// One that seems worse by no more than this may be better still: what hardly anything passes by shows no short round trips.
const RIVAL_NS: u64 = 100_000;
/// While nothing is in flight by the choice, the links are held against each other again so long after the last time: that
/// takes longer than all else that is done for a small message.
const STANDS: Duration = Duration::us(100);
/// A small message is taken to be at least so long where links are compared, for others may share its packet.
const OFFER_BYTES: u64 = 1_500;

/// Links that would deliver a small message first, as far as anybody can tell. Sets have one bit for each link; one whose
/// bearer takes nothing is in none of them, unless it is the best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Near {
    best: usize,
    /// Those that seem equal.
    equal: u32,
    /// Those that may be as good: these, and what seems a little worse.
    rivals: u32,
}

// One bit for each link.
const _: () = assert!(limits::LINKS_MAX <= u32::BITS as usize);

impl Near {
    /// `None`: no link takes a message of so many bytes.
    fn of(links: &[Link], urgency: Class, bytes: u64) -> Option<Near> {
        let serving = Serving::of(links);
        let hope = serving.hope(links);
        let offers = links.iter().enumerate().filter_map(|(index, link)| {
            let Duration(delay_ns) = offer(serving, link, bytes, hope).ok()?;
            serving.trusts(link, urgency).then_some((index, delay_ns))
        });
        let offers: ArrayVec<_, { limits::LINKS_MAX }> = offers.collect();
        let &(best, least_ns) = offers.iter().min_by_key(|&&(_, delay_ns)| delay_ns)?;
        let mut near = Near { best, equal: 1 << best, rivals: 1 << best };
        for &(index, delay_ns) in offers.iter().filter(|&&(index, _)| !links[index].blocked) {
            let is_within = |worse_ns: u64| delay_ns <= least_ns + worse_ns.max(least_ns / 10);
            near.equal |= u32::from(is_within(GAIN_NS)) << index;
            near.rivals |= u32::from(is_within(RIVAL_NS)) << index;
        }
        Some(near)
    }

    /// These may all be as good, of which `best` is one.
    #[cfg(test)]
    pub(super) const fn among(best: usize, rivals: u32) -> Near {
        Near { best, equal: rivals, rivals }
    }

    /// Whether a link seems as good as any.
    fn is_equal(&self, index: usize) -> bool {
        self.equal & 1 << index != 0
    }

    /// Whether a link may be as good as any.
    pub(super) fn is_rival(&self, index: usize) -> bool {
        self.rivals & 1 << index != 0
    }

    fn is_alone(&self) -> bool {
        self.rivals == 1 << self.best
    }
}

/// The link that small messages take.
#[derive(Debug, Default)]
pub(super) struct Choice {
    link: Option<usize>,
    /// It stands until then while nothing is in flight by it.
    stands_until: Instant,
    /// That link was found out to be better than it seemed.
    proven: bool,
    /// Answers go by the link that what they answer came by, if links seem equal: of two ends, one does so.
    follows: bool,
    rivals: Rivals,
}

impl Choice {
    pub(super) fn new(follows: bool) -> Choice {
        Choice { follows, ..Choice::default() }
    }

    /// The link for a small message of `bytes` that is about to leave, which is remembered.
    pub(super) fn make(&mut self, now: Instant, links: &[Link], urgency: Class, bytes: u64) -> Option<usize> {
        if let Some(standing) = self.link.filter(|&link| self.stands(now, links, link, bytes)) {
            return Some(standing);
        }
        let near = Near::of(links, urgency, bytes);
        let Some(near) = near else {
            self.link = None;
            return None;
        };
        self.stands_until = now + STANDS;
        let (own, answer) = (self.own(&near), self.answers_by(&near, links));
        let is_open = answer.is_none() && !near.is_alone();
        let won = if is_open { self.rivals.step(now, own, &near) } else { None };
        self.proven = won.is_some() || self.proven && self.link == Some(own);
        self.link = won.or(Some(own));
        answer.or_else(|| self.tried(&near)).or(self.link)
    }

    /// The same, without a trace.
    pub(super) fn pick(&self, links: &[Link], urgency: Class, bytes: u64) -> Option<usize> {
        Near::of(links, urgency, bytes).map(|near| self.among(&near, links))
    }

    /// The link for grants, credit and notices: as for a small message, but by that which a confirmation is to leave by if it seems
    /// as good, whichever end this is: no message is ever tried for what they do.
    pub(super) fn pick_control(&self, links: &[Link], urgency: Class) -> Option<usize> {
        let near = Near::of(links, urgency, 0)?;
        Some(self.confirms_by(&near, links).unwrap_or_else(|| self.among(&near, links)))
    }

    /// A round trip by link `index` took so long.
    #[inline]
    pub(super) fn note_round_trip(&mut self, index: usize, took: Duration) {
        self.rivals.note(self.link, index, took);
    }

    /// Links came or went, or other ones are wanted.
    pub(super) fn forget(&mut self) {
        *self = Choice::new(self.follows);
    }

    /// Whether `link`, the choice, need not be held against the others for a message of `bytes`.
    #[inline]
    fn stands(&self, now: Instant, links: &[Link], link: usize, bytes: u64) -> bool {
        let is_pending = |index: usize| index != link && links[index].received.ack_pending();
        let is_free = |link: &Link| link.sent.is_empty() && !link.blocked && link.sure();
        now < self.stands_until
            && bytes <= OFFER_BYTES
            && self.rivals.tried().is_none()
            && links.get(link).is_some_and(is_free)
            && !(self.follows && (0..links.len()).any(is_pending))
    }

    fn among(&self, near: &Near, links: &[Link]) -> usize {
        self.answers_by(near, links).or_else(|| self.tried(near)).unwrap_or_else(|| self.own(near))
    }

    /// The link that is tried now, if it still seems as good as the best.
    fn tried(&self, near: &Near) -> Option<usize> {
        self.rivals.tried().filter(|&link| near.is_rival(link))
    }

    /// The last choice, while nothing is better by far.
    fn own(&self, near: &Near) -> usize {
        let stays = |&link: &usize| near.is_equal(link) || self.proven && near.is_rival(link);
        self.link.filter(stays).unwrap_or(near.best)
    }

    /// The link by which something came that waits to be confirmed: its confirmation rides along, and needs no packet.
    fn confirms_by(&self, near: &Near, links: &[Link]) -> Option<usize> {
        let confirms = |&index: &usize| near.is_rival(index) && links[index].received.ack_pending();
        if near.is_alone() {
            return None;
        }
        self.link.filter(confirms).or_else(|| (0..links.len()).find(confirms))
    }

    /// The same for a message: who answers by it needs no packet more.
    fn answers_by(&self, near: &Near, links: &[Link]) -> Option<usize> {
        if self.follows { self.confirms_by(near, links) } else { None }
    }
}

/// What a link has to offer to small messages: the delay that is expected, unless something keeps them from it. Of a large
/// one, its announcement is one.
#[inline]
pub(super) fn offer(serving: Serving, link: &Link, bytes: u64, hope: u64) -> Result<Duration, Obstacle> {
    match serving.obstacle(link) {
        Some(obstacle) => Err(obstacle),
        None if link.room() == 0 => Err(Obstacle::NoRoom),
        None => {
            let alone = if bytes > limits::SMALL_BYTES_MAX { 0 } else { bytes };
            let delay = link.delay(alone.max(OFFER_BYTES), link.hope_for(bytes, hope));
            Ok(delay + link.loss_delay(alone))
        }
    }
}

/// Whether small messages may leave by link `index`, which serves: if it is the choice, if there is none, or if the bearer
/// of the choice takes nothing.
pub(super) fn admits(choice: Option<usize>, links: &[Link], index: usize) -> bool {
    choice.is_none_or(|choice| choice == index || links[choice].blocked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::id::{Incarnation, NodeId};
    use crate::link::LinkSpec;
    use crate::link::recv::AckWish;
    use crate::link::send::NewTrain;
    use crate::link::state::LinkEvent;
    use crate::link::window::AckSample;

    const NOW: Instant = Instant(1_000_000_000);

    /// Links that are up, and known to deliver 100 MB/s at these round trips.
    fn links(rtts: &[Duration]) -> Vec<Link> {
        let now = NOW;
        let config = Config::new(NodeId(1), Incarnation(1));
        let link = |(n, rtt): (usize, &Duration)| {
            let spec = LinkSpec::to(n as u16, n as u8, n as u8, 1_472);
            let mut link = Link::new(now, spec, &config);
            link.state.handle(now, LinkEvent::Joined);
            for ms in 1..=2 {
                let at = now + Duration::us(1_024).times(ms);
                let sample =
                    AckSample { rx_bytes: ms * 102_400, rx_clock: at.stamp(), ..AckSample::default() };
                link.on_ack(at, &AckSample { inflight_before: 1 << 20, ..sample });
            }
            link.rtt.sample(now, *rtt, Duration::ZERO);
            link
        };
        rtts.iter().enumerate().map(link).collect()
    }

    /// The choice as it is made when the last one does not stand any more.
    fn anew(choice: &mut Choice, links: &[Link], urgency: Class, bytes: u64) -> Option<usize> {
        choice.stands_until = Instant::ZERO;
        choice.make(NOW, links, urgency, bytes)
    }

    #[test]
    fn the_choice_moves_only_to_a_link_that_is_better_by_far() {
        // A way takes half a round trip, and at least as long as the bytes on it.
        for (first_us, second_us, second) in [
            (300, 261, false), // By less than 20 us.
            (300, 259, true),
            (4_000, 3_640, false), // By less than a tenth.
            (4_000, 3_630, true),
        ] {
            let mut choice = Choice::default();
            let mut both = links(&[Duration::us(first_us); 2]);
            assert_eq!(anew(&mut choice, &both, Class::Normal, 1_500), Some(0), "the first of equals");
            both[1] = links(&[Duration::us(second_us); 2]).remove(1);
            assert_eq!(
                anew(&mut choice, &both, Class::Normal, 1_500),
                Some(second as usize),
                "{first_us} {second_us}"
            );
            choice.forget();
            assert_eq!(anew(&mut choice, &both, Class::Normal, 1_500), Some(1), "without a choice the best");
        }
    }

    #[test]
    fn a_link_without_room_is_not_chosen_and_one_that_is_blocked_does_not_hold_the_choice() {
        let mut choice = Choice::default();
        let mut both = links(&[Duration::us(300), Duration::us(290)]);
        assert_eq!(anew(&mut choice, &both[..1], Class::Normal, 1_500), Some(0));
        assert_eq!(anew(&mut choice, &both, Class::Normal, 1_500), Some(0));
        both[0].blocked = true;
        assert_eq!(anew(&mut choice, &both, Class::Normal, 1_500), Some(1));
        let filled = NewTrain {
            count: 64,
            packet_bytes: 2_000,
            last_bytes: 2_000,
            items: vec![],
            extent: None,
            expected: Duration::ZERO,
        };
        both[1].sent.push(Instant(1), filled);
        assert_eq!((both[1].room(), anew(&mut choice, &both, Class::Normal, 1_500)), (0, Some(0)));
        assert_eq!(anew(&mut choice, &[], Class::Normal, 1_500), None);
    }

    #[test]
    fn a_choice_stands_for_a_while_as_long_as_nothing_is_in_flight_by_it_or_known_against_it() {
        let known = || links(&[Duration::us(300), Duration::us(100), Duration::us(300)]);
        let sent = |links: &mut [Link]| {
            let train = NewTrain {
                count: 1,
                packet_bytes: 100,
                last_bytes: 100,
                items: vec![],
                extent: None,
                expected: Duration::ZERO,
            };
            links[0].sent.push(NOW, train);
        };
        type Change<'a> = (&'a str, Option<usize>, &'a dyn Fn(&mut [Link]));
        let changes: [Change<'_>; 6] = [
            ("nothing", Some(0), &|_| {}),
            ("something is in flight", Some(1), &sent),
            ("its bearer takes nothing", Some(1), &|links| links[0].blocked = true),
            ("it has no carrier", Some(1), &|links| links[0].carrier = false),
            ("something came by another", Some(2), &|links| hear(&mut links[2])),
            ("it is large", Some(1), &|_| {}),
        ];
        for (what, choice, change) in changes {
            let mut made = Choice::new(true);
            assert_eq!(anew(&mut made, &links(&[Duration::us(300); 3]), Class::Normal, 64), Some(0));
            let mut links = known();
            if choice == Some(2) {
                links[1] = self::links(&[Duration::us(300)]).remove(0);
            }
            change(&mut links);
            let bytes = if what == "it is large" { OFFER_BYTES + 1 } else { 64 };
            assert_eq!(made.make(NOW, &links, Class::Normal, bytes), choice, "{what}");
        }
        let mut made = Choice::default();
        assert_eq!(anew(&mut made, &links(&[Duration::us(300); 3]), Class::Normal, 64), Some(0));
        assert_eq!(made.make(NOW + STANDS - Duration(1), &known(), Class::Normal, 64), Some(0));
        assert_eq!(made.make(NOW + STANDS, &known(), Class::Normal, 64), Some(1));
        assert_eq!(made.make(NOW, &[], Class::Normal, 64), None, "it is gone");
    }

    /// Something came by the link that waits to be confirmed.
    fn hear(link: &mut Link) {
        // The first packets of a link are confirmed at once.
        for number in 0..20 {
            link.received.record(NOW, number, 100, 0, true, AckWish::Later, false);
        }
        assert!(link.received.ack_pending());
    }

    #[test]
    fn one_end_answers_by_the_link_that_it_was_asked_by_if_links_seem_equal() {
        let mut both = links(&[Duration::us(300); 2]);
        hear(&mut both[1]);
        for (follows, second) in [(false, false), (true, true)] {
            let mut choice = Choice::new(follows);
            assert_eq!(anew(&mut choice, &both, Class::Normal, 64), Some(second as usize));
            assert_eq!(choice.pick(&both, Class::Normal, 64), Some(second as usize));
            assert_eq!(
                choice.pick_control(&both, Class::Normal),
                Some(1),
                "what is no message goes so at both"
            );
        }
        let mut rival = links(&[Duration::us(300), Duration::us(360)]);
        hear(&mut rival[1]);
        assert_eq!(
            anew(&mut Choice::new(true), &rival, Class::Normal, 64),
            Some(1),
            "the peer may be trying it"
        );
        let mut choice = Choice::new(true);
        both[1].blocked = true;
        assert_eq!(anew(&mut choice, &both, Class::Normal, 64), Some(0), "it takes nothing");
        let mut late = links(&[Duration::us(300), Duration::us(600)]);
        hear(&mut late[1]);
        assert_eq!(anew(&mut choice, &late, Class::Normal, 64), Some(0), "it is not as good");
        both[1].blocked = false;
        hear(&mut both[0]);
        assert_eq!(anew(&mut choice, &both, Class::Normal, 64), Some(0), "both would do: no reason to move");
    }

    #[test]
    fn a_link_that_is_found_out_to_be_better_is_the_choice_although_it_seems_a_little_worse() {
        // By the half of what they differ in: more than seems equal.
        let both = links(&[Duration::us(300), Duration::us(360)]);
        let mut choice = Choice::new(false);
        choice.link = Some(0);
        let (mut now, mut by) = (NOW, [0; 2]);
        for _ in 0..2_000 {
            let link = choice.make(now, &both, Class::Normal, 64).unwrap();
            assert_eq!(choice.pick(&both, Class::Normal, 64), Some(link));
            by[link] += 1;
            choice.note_round_trip(link, Duration::us([59, 44][link]));
            now += Duration::ms(1);
        }
        assert!(by[0] < 1_250 && choice.link == Some(1), "{by:?}");
        choice.note_round_trip(1, Duration::us(44));
        assert_eq!(
            anew(&mut choice, &links(&[Duration::us(300), Duration::us(600)]), Class::Normal, 64),
            Some(0)
        );
        assert_eq!(
            (anew(&mut choice, &both, Class::Normal, 64), choice.proven),
            (Some(0), false),
            "that was another time"
        );
        choice.forget();
        assert_eq!((choice.link, choice.follows), (None, false));
    }
}
