//! The words of `why`: each decision of the scheduler as a sentence that names what it compared.

use super::super::find::link_name;
use super::super::show::us;
use super::percent;
use crate::config::Policy;
use crate::engine::Engine;
use crate::moment::Moment;
use polyrail_proto::flow::Class;
use polyrail_proto::id::LinkId;
use polyrail_proto::limits::{SMALL_BYTES_MAX, SMALL_OVERDRAFT_BYTES, UNASKED_BYTES_MAX};
use polyrail_proto::link::Link;
use polyrail_proto::link::pace::Known;
use polyrail_proto::link::state::LinkState;
use polyrail_proto::session::{LinkOutlook, Obstacle, Outlook, Part, Session, Way};
use polyrail_proto::time::Duration;
use polyrail_proto::wire::LinkStatus;
use std::cmp::Ordering;

/// A message that is not sent, and all that is asked about it.
pub(super) struct Scene<'a> {
    pub engine: &'a Engine,
    pub session: &'a Session,
    pub outlook: &'a Outlook,
    pub bytes: u64,
    pub moment: &'a Moment,
}

impl Scene<'_> {
    /// Why the message goes as it does.
    pub(super) fn of_message(&self) -> String {
        let rule = match self.outlook.way {
            Way::Small => {
                format!("messages of up to {SMALL_BYTES_MAX} bytes take the link of least expected delay")
            }
            Way::Pieces => {
                format!(
                    "messages of more than {SMALL_BYTES_MAX} bytes go in pieces, which every link with room pulls"
                )
            }
            Way::Announced => format!(
                "messages of more than {UNASKED_BYTES_MAX} bytes are announced; when the receiver has memory for one, every \
                 link with room pulls pieces of it"
            ),
        };
        let policy = self.engine.core().config().policy_of(Class::Normal);
        let rule = match policy {
            Policy::Adaptive => rule,
            _ => format!(
                "the policy is {}: it decides by which link a message goes before any of it leaves; what is told here is what \
                 adaptive would do: {rule}",
                policy.name()
            ),
        };
        match self.takers().is_empty() {
            true => format!("{rule}; it would wait, for no link takes messages"),
            false => rule,
        }
    }

    /// What the time until it has arrived is made of: with its terms, where they are known.
    pub(super) fn formula(&self) -> String {
        let links = self.session.links.iter().zip(&self.outlook.links);
        let takers: Vec<&Link> = links.filter(|(_, told)| told.part.takes()).map(|(link, _)| link).collect();
        let announced = if self.outlook.way == Way::Announced { "announcement and answer + " } else { "" };
        match (self.outlook.way, self.outlook.arrival, &takers[..]) {
            (Way::Small, Some(_), [link]) => self.small_formula(link),
            (Way::Small, ..) => {
                "max(in flight / rate, least round trip / 2) + size / rate + 1 ms for each probe time-out"
                    .to_owned()
            }
            (_, Some(_), _) => {
                let told = self.outlook.links.iter().filter(|told| told.part.takes());
                let term = |(link, told): (&&Link, &LinkOutlook)| {
                    let begins = told.expected.delay() + told.loss;
                    format!("{} * (T - {})", link.rate(self.session.hope()), span(begins))
                };
                let terms: Vec<String> = takers.iter().zip(told).map(term).collect();
                let terms = terms.join(" + ");
                format!(
                    "{announced}T, where {} bytes = {terms}: rates in bytes/s, and when each link can begin",
                    self.bytes
                )
            }
            _ => format!(
                "{announced}T, where size = the sum of rate * (T - begin) of the links that pull, and begin = max(in flight / \
                 rate, least round trip / 2) + 1 ms for each probe time-out + what losses cost"
            ),
        }
    }

    fn small_formula(&self, link: &Link) -> String {
        let terms = link.expect(self.bytes, self.session.hope());
        format!(
            "the larger of {} ({} bytes in flight, at {} bytes/s) and {} (half the least round trip), + {} for {} bytes of its \
             own, + {} for probe time-outs",
            span(terms.queue),
            link.sent.inflight_bytes(),
            link.rate(self.session.hope()),
            span(terms.trip),
            span(terms.own),
            self.bytes,
            span(terms.doubt)
        )
    }

    /// How the time until it has arrived is meant.
    pub(super) fn certainty(&self) -> &'static str {
        let takers = self.takers();
        match self.outlook.arrival {
            None => "unknown",
            Some(_) if !takers.iter().all(|link| link.has_measured_rate()) => "assumed",
            Some(_) if self.outlook.way == Way::Small && takers.len() > 1 => "at-most",
            Some(_) if takers.iter().all(|link| link.rate_known() == Known::Measured) => "about",
            Some(_) => "roughly",
        }
    }

    /// The links that carry the message, or some of it.
    fn takers(&self) -> Vec<&Link> {
        let links = self.session.links.iter().zip(&self.outlook.links);
        links.filter(|(_, told)| told.part.takes()).map(|(link, _)| link).collect()
    }

    /// Why a link takes the message, or does not.
    pub(super) fn of_link(&self, link: &Link, told: &LinkOutlook) -> String {
        let mut text = match told.part {
            Part::Chosen => self.chosen(told),
            Part::Admitted => self.admitted(link),
            Part::Behind => self.behind(told),
            Part::Pulls => self.pulls(link),
            Part::Late => late(told),
            Part::Spared => "spared: the machines hold up what passes and not the links, for another link delivers as much as all did"
                .to_owned(),
            Part::Barred(obstacle) => self.barred(link, obstacle),
        };
        if told.offer.is_some() && self.outlook.way == Way::Small && !link.has_measured_rate() {
            let rate = link.rate(link.hope_for(self.bytes, self.session.hope()));
            text += &format!("; reckoned with {rate} bytes/s, as for a link of which nothing is known");
        }
        if told.part.takes() && link.state.state() == LinkState::Probation {
            text += "; it is back from the dead, and on probation with a small window";
        }
        if link.pressed {
            text += "; it is damped, but no other link is left";
        }
        text
    }

    fn chosen(&self, told: &LinkOutlook) -> String {
        let rivals =
            self.outlook.links.iter().filter(|other| other.link != told.link && other.offer.is_some());
        let fastest = rivals.min_by_key(|other| other.offer);
        let own = told.offer.unwrap_or_default();
        let text = match fastest.and_then(|rival| Some((rival.link, rival.offer?))) {
            None => format!("the only link that may; expected delay {}", span(own)),
            Some((_, offer)) if own <= offer => format!("least expected delay, {}", span(own)),
            Some((link, offer)) => format!(
                "has been the choice of late and stays it: expected delay {}; {} is faster by {} only (the choice moves for 20 \
                 us and a tenth)",
                span(own),
                self.name(link),
                span(own - offer)
            ),
        };
        let full = self.session.links.iter().any(|link| link.spec.id == told.link && link.blocked);
        if full { text + "; but its bearer took nothing at the last try" } else { text }
    }

    fn admitted(&self, link: &Link) -> String {
        match self.outlook.choice {
            Some(choice) => format!(
                "takes it if it is asked first: the bearer of {} took nothing at the last try",
                self.name(choice)
            ),
            None => format!(
                "takes it if it is asked first: no link has room in its window, of which small messages may exceed this by \
                 {SMALL_OVERDRAFT_BYTES} bytes ({} are left)",
                link.small_room()
            ),
        }
    }

    fn behind(&self, told: &LinkOutlook) -> String {
        let choice = self.outlook.links.iter().find(|link| Some(link.link) == self.outlook.choice);
        let Some((choice, own)) = choice.zip(told.offer) else {
            return "another link has the choice".to_owned();
        };
        let (name, other) = (self.name(choice.link), choice.offer.unwrap_or_default());
        let own_words = span(own);
        match own.cmp(&other) {
            Ordering::Less => format!(
                "expected delay {own_words}: faster than {name} by {}, which is not enough for the choice to move",
                span(other - own)
            ),
            Ordering::Equal => {
                format!("expected delay {own_words}: the same as that of {name}, which has the choice")
            }
            Ordering::Greater => {
                format!("expected delay {own_words}: slower than {name} by {}", span(own - other))
            }
        }
    }

    fn pulls(&self, link: &Link) -> String {
        let told = self.outlook.links.iter().find(|told| told.link == link.spec.id);
        let text = match told.and_then(|told| told.share_bytes) {
            Some(0) => {
                "may pull pieces, though the others could have delivered all of the message before".to_owned()
            }
            Some(bytes) => format!("pulls pieces, about {bytes} bytes of it"),
            None => {
                let sent = self.sent_percent(link).map_or_else(String::new, |percent| {
                    format!("; {percent:.1} % of what was sent to the peer so far went by it")
                });
                format!("pulls pieces; how many is unknown, for {}{sent}", unknown_share(link))
            }
        };
        match link.room() {
            0 => text + "; its window is full now",
            _ => text,
        }
    }

    /// The share of a link of all that was sent.
    fn sent_percent(&self, link: &Link) -> Option<f64> {
        percent(link.stats.bytes_sent, self.session.links.iter().map(|link| link.stats.bytes_sent).sum())
    }

    fn barred(&self, link: &Link, obstacle: Obstacle) -> String {
        match obstacle {
            Obstacle::NoCarrier => {
                format!("{} has no carrier{}", self.engine.bearer_name(link.spec.bearer.0), self.since(link))
            }
            Obstacle::State(LinkState::New) => "new: the peer has not answered by it yet".to_owned(),
            Obstacle::State(LinkState::Damped) => {
                format!(
                    "damped: it failed too often of late, and rests until that is forgotten{}",
                    self.since(link)
                )
            }
            Obstacle::State(state) => format!("{}{}", state.name(), self.since(link)),
            Obstacle::Standby => {
                format!("standby{}: an active link is usable", by_whom(link, LinkStatus::Standby))
            }
            Obstacle::Drain => format!("drained{}: takes nothing new", by_whom(link, LinkStatus::Drain)),
            Obstacle::Far => "a link by shared memory serves: no other is as quick".to_owned(),
            Obstacle::InDoubt => format!(
                "in doubt: nothing was confirmed for {} probe time-out(s), and another link is not in doubt",
                link.pto_count
            ),
            Obstacle::NoRoom => format!(
                "no room: {} bytes are in flight, and its window is {} bytes",
                link.sent.inflight_bytes(),
                link.window.cwnd()
            ),
        }
    }

    /// What brought a link into its state, and when.
    fn since(&self, link: &Link) -> String {
        let past = self.engine.history().of(self.session.peer.node);
        let last = past.and_then(|past| past.link(link.spec.id).last());
        last.map_or_else(String::new, |change| {
            format!(", by {:?} {} s ago", change.why.to_string(), self.moment.ago_s(change.at))
        })
    }

    fn name(&self, link: LinkId) -> String {
        link_name(&self.session.peer.name, link)
    }
}

/// Why nothing can be said of shares.
fn late(told: &LinkOutlook) -> String {
    let mut text = format!(
        "would pull pieces, but before the others have delivered all of the message it would deliver half a packet at most (its \
         expected delay is {}",
        span(told.expected.delay() + told.loss)
    );
    if told.loss > Duration::ZERO {
        text += &format!(", {} of it for packets that it loses", span(told.loss));
    }
    text + ")"
}

fn unknown_share(link: &Link) -> &'static str {
    match link.rate_known() {
        Known::Nothing => "what it can deliver was not measured yet",
        Known::Seen => "its rate is only the largest that was seen of late",
        Known::Measured => "what another link can deliver is",
    }
}

/// Whose word it is.
fn by_whom(link: &Link, status: LinkStatus) -> &'static str {
    if link.status == status { "" } else { " by the peer" }
}

fn span(span: Duration) -> String {
    format!("{:.1} us", us(span))
}
