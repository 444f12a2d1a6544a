//! What became of links and peers of late: for the question why one went down, which is asked when it is over.
//!
//! Everything is bounded, for a link that flaps for a year must cost no more than one that never did.

use polyrail_proto::Event;
use polyrail_proto::id::{BearerId, Incarnation, LinkId, NodeId};
use polyrail_proto::limits::LINKS_MAX;
use polyrail_proto::link::state::{LinkEvent, LinkState};
use polyrail_proto::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Changes of state that are remembered of each link, and comings and goings of each node.
pub(crate) const CHANGES_MAX: usize = 16;
/// Links that are remembered of each node: those that changed last.
const LINKS_REMEMBERED_MAX: usize = LINKS_MAX;
/// Nodes that are remembered: those of which something changed last.
const NODES_REMEMBERED_MAX: usize = 256;
/// Lost nodes that are told of, the last ones, and how long.
const LOST_MAX: usize = 64;
const LOST_SPAN: Duration = Duration::s(3_600);

/// A link's change of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkChange {
    pub at: Instant,
    pub bearer: BearerId,
    pub from: LinkState,
    pub to: LinkState,
    pub why: LinkEvent,
}

/// A node came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerChange {
    pub at: Instant,
    pub incarnation: Incarnation,
    pub what: PeerNews,
}

/// What happened to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerNews {
    /// A session with it opened.
    Up,
    /// It said that it leaves.
    Left,
    /// It was silent for too long, or another life of it came.
    Lost,
}

/// What is remembered of a node.
#[derive(Debug)]
pub(crate) struct Past {
    pub name: String,
    pub changes: VecDeque<PeerChange>,
    links: BTreeMap<LinkId, VecDeque<LinkChange>>,
    changed_at: Instant,
}

/// What is remembered of all nodes.
#[derive(Debug, Default)]
pub(crate) struct History(BTreeMap<NodeId, Past>);

impl History {
    /// Takes in what the core tells. `name` finds the name of a node that has a session.
    pub(crate) fn note(&mut self, now: Instant, event: &Event, name: impl FnOnce(NodeId) -> Option<String>) {
        match *event {
            Event::Link { node, link, bearer, from, to, why } => {
                let past = self.past_of(now, node, name);
                if !past.links.contains_key(&link) && past.links.len() >= LINKS_REMEMBERED_MAX {
                    let last = |changes: &VecDeque<LinkChange>| changes.back().map(|change| change.at);
                    let oldest = past.links.iter().min_by_key(|(id, changes)| (last(changes), **id));
                    let oldest = oldest.map(|(id, _)| *id);
                    oldest.map(|id| past.links.remove(&id));
                }
                remember(past.links.entry(link).or_default(), LinkChange { at: now, bearer, from, to, why });
            }
            Event::PeerUp { node, incarnation, name: ref called } => {
                let past = self.past_of(now, node, |_| Some(called.to_string()));
                remember(&mut past.changes, PeerChange { at: now, incarnation, what: PeerNews::Up });
            }
            Event::PeerDown { node, incarnation, left } => {
                let what = if left { PeerNews::Left } else { PeerNews::Lost };
                let past = self.past_of(now, node, name);
                remember(&mut past.changes, PeerChange { at: now, incarnation, what });
            }
            _ => {}
        }
    }

    fn past_of(
        &mut self,
        now: Instant,
        node: NodeId,
        name: impl FnOnce(NodeId) -> Option<String>,
    ) -> &mut Past {
        if !self.0.contains_key(&node) && self.0.len() >= NODES_REMEMBERED_MAX {
            let oldest = self.0.iter().min_by_key(|(id, past)| (past.changed_at, **id)).map(|(id, _)| *id);
            oldest.map(|id| self.0.remove(&id));
        }
        let past = self.0.entry(node).or_insert_with(|| Past {
            name: String::new(),
            changes: VecDeque::new(),
            links: BTreeMap::new(),
            changed_at: now,
        });
        past.changed_at = now;
        if let Some(name) = name(node) {
            past.name = name;
        }
        past
    }

    /// The nodes that are remembered.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Past)> {
        self.0.iter().map(|(node, past)| (*node, past))
    }

    /// The nodes that were lost of late and have not come back, the last one first, with the loss.
    pub(crate) fn lost(&self, now: Instant) -> impl Iterator<Item = (NodeId, &Past, &PeerChange)> {
        let last = self.nodes().filter_map(|(node, past)| Some((node, past, past.changes.back()?)));
        let is_lost = |change: &PeerChange| change.what == PeerNews::Lost && now.since(change.at) < LOST_SPAN;
        let mut lost: Vec<_> = last.filter(|(.., change)| is_lost(change)).collect();
        lost.sort_by_key(|(node, _, change)| (std::cmp::Reverse(change.at), *node));
        lost.into_iter().take(LOST_MAX)
    }

    /// What is remembered of one.
    pub(crate) fn of(&self, node: NodeId) -> Option<&Past> {
        self.0.get(&node)
    }
}

impl Past {
    /// The links that are remembered.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.links.keys().copied()
    }

    /// When and why one of them went down last.
    pub(crate) fn last_down(&self) -> Option<&LinkChange> {
        let downs = self.links.values().flatten().filter(|change| change.to == LinkState::Down);
        downs.max_by_key(|change| change.at)
    }

    /// The changes of one of them, the oldest first.
    pub(crate) fn link(&self, link: LinkId) -> impl DoubleEndedIterator<Item = &LinkChange> {
        self.links.get(&link).into_iter().flatten()
    }
}

fn remember<T>(changes: &mut VecDeque<T>, change: T) {
    if changes.len() >= CHANGES_MAX {
        changes.pop_front();
    }
    changes.push_back(change);
}

impl std::fmt::Display for PeerNews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PeerNews::Up => "up",
            PeerNews::Left => "left",
            PeerNews::Lost => "lost",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link_event(node: u64, link: u16) -> Event {
        Event::Link {
            node: NodeId(node),
            link: LinkId(link),
            bearer: BearerId(0),
            from: LinkState::Up,
            to: LinkState::Down,
            why: LinkEvent::CarrierLost,
        }
    }

    fn note(history: &mut History, at: u64, event: &Event) {
        history.note(Instant(at), event, |node| Some(format!("n{node}")));
    }

    #[test]
    fn the_last_changes_of_a_link_stay_and_the_oldest_go() {
        let mut history = History::default();
        for at in 0..CHANGES_MAX as u64 + 5 {
            note(&mut history, at, &link_event(1, 3));
        }
        let past = history.of(NodeId(1)).unwrap();
        let kept: Vec<u64> = past.link(LinkId(3)).map(|change| change.at.0).collect();
        assert_eq!(kept, (5..CHANGES_MAX as u64 + 5).collect::<Vec<_>>());
        assert_eq!((past.name.as_str(), past.link(LinkId(4)).count()), ("n0000000000000001", 0));
    }

    #[test]
    fn links_and_nodes_beyond_the_limits_push_out_those_that_changed_first() {
        let mut history = History::default();
        for link in 0..LINKS_REMEMBERED_MAX as u16 + 2 {
            note(&mut history, link as u64, &link_event(1, link));
        }
        let past = history.of(NodeId(1)).unwrap();
        assert_eq!(past.links().count(), LINKS_REMEMBERED_MAX);
        assert_eq!(past.links().next(), Some(LinkId(2)));
        for node in 2..NODES_REMEMBERED_MAX as u64 + 2 {
            note(&mut history, 1_000 + node, &link_event(node, 0));
        }
        assert_eq!((history.nodes().count(), history.of(NodeId(1)).is_none()), (NODES_REMEMBERED_MAX, true));
    }

    #[test]
    fn a_node_keeps_its_name_and_its_past_when_it_is_gone() {
        let mut history = History::default();
        let name = arrayvec::ArrayString::from("beta").unwrap();
        let (node, incarnation) = (NodeId(2), Incarnation(7));
        note(&mut history, 1, &Event::PeerUp { node, incarnation, name });
        history.note(Instant(2), &Event::PeerDown { node, incarnation, left: false }, |_| None);
        let past = history.of(node).unwrap();
        let seen: Vec<String> = past.changes.iter().map(|change| change.what.to_string()).collect();
        assert_eq!((past.name.as_str(), seen), ("beta", vec!["up".to_owned(), "lost".to_owned()]));
    }

    #[test]
    fn nodes_that_were_lost_are_told_of_until_they_are_back_for_an_hour_and_not_all() {
        let mut history = History::default();
        let at = |s: u64| Instant::ZERO + Duration::s(s);
        let incarnation = Incarnation(7);
        for number in 1..=LOST_MAX as u64 + 3 {
            let node = NodeId(number);
            note(&mut history, at(number).0 - 1, &link_event(number, 0));
            let left = number == 2;
            history.note(at(number), &Event::PeerDown { node, incarnation, left }, |_| None);
        }
        let told = |history: &History, s: u64| -> Vec<u64> {
            history.lost(at(s)).map(|(node, ..)| node.0).collect()
        };
        let lost = told(&history, 100);
        assert_eq!((lost.len(), lost[0], lost.last()), (LOST_MAX, LOST_MAX as u64 + 3, Some(&4)));
        let name = arrayvec::ArrayString::from("beta").unwrap();
        note(&mut history, at(101).0, &Event::PeerUp { node: NodeId(67), incarnation, name });
        assert_eq!(told(&history, 102).first(), Some(&66), "it is back");
        assert_eq!(told(&history, 102).last(), Some(&3), "node 2 has left in good order, and is not lost");
        assert_eq!(told(&history, 3_600 + 64), [66, 65]);
        assert_eq!(history.of(NodeId(9)).unwrap().last_down().unwrap().why, LinkEvent::CarrierLost);
    }
}
