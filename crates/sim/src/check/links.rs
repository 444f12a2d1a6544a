//! Lives of links (I20): each goes through the changes of the table (protocol.md §6.4) and no others, is on probation for its
//! second, is damped when it has failed too often of late, and forgiven in time. What nodes tell of their links is judged by
//! rules of its own, not by the protocol's.

use crate::queue::{MS, S, TimeNs};
use std::collections::BTreeMap;

/// One end of a link: the node and its life, the peer's identity, the number.
pub type End = (usize, u32, u64, u16);

/// Every change that a link can go through.
pub const TRANSITIONS: [(&str, &str); 14] = [
    ("new", "up"),
    ("new", "down"),
    ("probation", "up"),
    ("probation", "suspect"),
    ("probation", "down"),
    ("up", "suspect"),
    ("up", "down"),
    ("suspect", "up"),
    ("suspect", "probation"),
    ("suspect", "down"),
    ("down", "probation"),
    ("down", "damped"),
    ("damped", "probation"),
    ("damped", "down"),
];

/// A link proves itself for so long.
const PROBATION_NS: TimeNs = S;
/// Times are told when a node's turn begins, and clocks drift.
const SLACK_NS: TimeNs = 2 * MS;
/// What a death adds to the penalty, how soon that halves, above what a link is damped and below what it is not any more.
const DEATH: f64 = 1_000.0;
const HALF_LIFE_S: f64 = 5.0;
const DAMP_ABOVE: f64 = 2_000.0;
const DAMP_BELOW: f64 = 750.0;
/// Between two halvings a penalty may fall in a straight line: then it is up to so much more, after several deaths.
const STRAIGHT: f64 = 1.2;
/// Longest damping.
const DAMPING_NS_MAX: TimeNs = 30 * S;
/// The end of a damping is looked for in steps, and a node may be stopped for a while.
const FORGIVEN_SLACK_NS: TimeNs = 3 * S / 2;

#[derive(Clone, Copy, Debug)]
struct Life {
    state: &'static str,
    since_ns: TimeNs,
    /// When its probation began, if it is on probation, though it may be suspect too.
    probation_ns: Option<TimeNs>,
    penalty: f64,
    penalty_ns: TimeNs,
}

impl Life {
    fn penalty(&self, at_ns: TimeNs) -> f64 {
        let age_s = (at_ns - self.penalty_ns) as f64 / S as f64;
        self.penalty * (-age_s / HALF_LIFE_S).exp2()
    }

    /// When a damped link may be forgiven at the earliest, and has to be at the latest.
    fn forgiven_ns(&self) -> (TimeNs, TimeNs) {
        let fades_ns = |penalty: f64| {
            let spans = (penalty / DAMP_BELOW).max(1.0).log2();
            self.penalty_ns + (spans * HALF_LIFE_S * S as f64) as TimeNs
        };
        let earliest_ns = fades_ns(self.penalty).min(self.since_ns + DAMPING_NS_MAX);
        let latest_ns = fades_ns(self.penalty * STRAIGHT).min(self.since_ns + DAMPING_NS_MAX);
        (earliest_ns.saturating_sub(SLACK_NS), latest_ns + FORGIVEN_SLACK_NS)
    }

    /// What is wrong with a change to `to`.
    fn objection(&self, at_ns: TimeNs, to: &str) -> Option<String> {
        let from = self.state;
        let spent_ns = at_ns - self.probation_ns.unwrap_or(at_ns);
        let penalty = self.penalty(at_ns);
        match (from, to) {
            _ if !TRANSITIONS.contains(&(from, to)) => Some("no such change".to_owned()),
            ("probation", "up") if spent_ns + SLACK_NS < PROBATION_NS => {
                Some(format!("after {} us of probation", spent_ns / 1_000))
            }
            ("suspect", "up") if self.probation_ns.is_some() => Some("which is on probation".to_owned()),
            ("suspect", "probation") if self.probation_ns.is_none() => Some("which was not".to_owned()),
            ("down", "probation") if penalty > DAMP_ABOVE * 1.01 => {
                Some(format!("with a penalty of {penalty:.0}"))
            }
            ("down", "damped") if penalty * STRAIGHT < DAMP_ABOVE => {
                Some(format!("with a penalty of {penalty:.0}"))
            }
            ("damped", "probation") if at_ns < self.forgiven_ns().0 => Some("too early".to_owned()),
            _ => None,
        }
    }

    fn enter(&mut self, at_ns: TimeNs, to: &'static str) {
        match to {
            "up" => self.probation_ns = None,
            "probation" if self.state != "suspect" => self.probation_ns = Some(at_ns),
            "down" => {
                self.probation_ns = None;
                if !matches!(self.state, "new" | "damped") {
                    (self.penalty, self.penalty_ns) = (self.penalty(at_ns) + DEATH, at_ns);
                }
            }
            _ => {}
        }
        (self.state, self.since_ns) = (to, at_ns);
    }
}

/// All links of a run, each by its two ends.
#[derive(Debug, Default)]
pub struct Lives {
    lives: BTreeMap<End, Life>,
}

impl Lives {
    /// A node tells that a link of it has changed. Returns what is wrong with that.
    pub fn on_change(
        &mut self,
        at_ns: TimeNs,
        end: End,
        from: &'static str,
        to: &'static str,
    ) -> Option<String> {
        let fresh =
            Life { state: "new", since_ns: at_ns, probation_ns: None, penalty: 0.0, penalty_ns: at_ns };
        let life = self.lives.entry(end).or_insert(fresh);
        if from == "new" {
            // Another session, whose links have the same numbers.
            *life = fresh;
        }
        let objection = if life.state == from {
            life.objection(at_ns, to)
        } else {
            Some(format!("which was {}", life.state))
        };
        life.enter(at_ns, to);
        objection.map(|why| format!("{}: it goes {from} -> {to}, {why}", name(end)))
    }

    /// The first link that is damped for longer than it may be.
    pub fn unforgiven(&self, at_ns: TimeNs, is_alive: impl Fn(&End) -> bool) -> Option<String> {
        let late = |(end, life): &(&End, &Life)| {
            life.state == "damped" && at_ns > life.forgiven_ns().1 && is_alive(end)
        };
        let (end, life) = self.lives.iter().find(late)?;
        Some(format!("{} is damped since {} ms", name(*end), life.since_ns / MS))
    }

    /// Why a link may not carry messages now; `None` if it may, or was not heard of.
    pub fn bars(&self, end: End) -> Option<&'static str> {
        let state = self.lives.get(&end)?.state;
        let others = || self.lives.range((end.0, end.1, end.2, 0)..=(end.0, end.1, end.2, u16::MAX));
        match state {
            "up" | "probation" => None,
            // Better a link that fails often than none.
            "damped" if !others().any(|(_, life)| life.state == "up") => None,
            _ => Some(state),
        }
    }

    /// A session is over: what is known of its links is out of date.
    pub fn forget(&mut self, node: usize, life: u32, peer: u64) {
        self.lives.retain(|end, _| (end.0, end.1, end.2) != (node, life, peer));
    }
}

fn name(end: End) -> String {
    format!("link {} of node {} life {} to {:x}", end.3, end.0, end.1, end.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: End = (0, 0, 7, 1);

    /// The changes at these moments (ms), and the first objection.
    fn live(lives: &mut Lives, changes: &[(u64, &'static str, &'static str)]) -> Option<String> {
        changes.iter().find_map(|(ms, from, to)| lives.on_change(ms * MS, END, from, to))
    }

    #[test]
    fn the_usual_life_is_a_good_one() {
        let mut lives = Lives::default();
        let changes = [
            (0, "new", "up"),
            (5, "up", "suspect"),
            (6, "suspect", "up"),
            (50, "up", "suspect"),
            (75, "suspect", "down"),
            (200, "down", "probation"),
            (900, "probation", "suspect"),
            (910, "suspect", "probation"),
            (1_910, "probation", "up"),
            (1_950, "new", "up"),
        ];
        assert_eq!(live(&mut lives, &changes), None);
    }

    #[test]
    fn changes_that_are_none_of_the_table_are_found() {
        for (from, to) in [("up", "damped"), ("down", "up"), ("up", "probation"), ("damped", "up")] {
            let mut lives = Lives::default();
            lives.on_change(0, END, "new", from);
            assert!(lives.on_change(5 * S, END, from, to).is_some(), "{from} {to}");
        }
        let mut lives = Lives::default();
        assert!(live(&mut lives, &[(0, "new", "up"), (1, "suspect", "up")]).is_some(), "it was not suspect");
    }

    #[test]
    fn a_short_probation_is_found() {
        let before = [(0, "new", "up"), (50, "up", "down"), (200, "down", "probation")];
        for (then, good) in [
            (&[(1_200, "probation", "up")][..], true),
            (&[(1_190, "probation", "up")][..], false),
            (&[(300, "probation", "suspect"), (301, "suspect", "up")][..], false),
        ] {
            let mut lives = Lives::default();
            assert_eq!(live(&mut lives, &before), None);
            assert_eq!(live(&mut lives, then).is_none(), good, "{then:?}");
        }
    }

    #[test]
    fn a_link_is_damped_for_three_deaths_in_a_row_not_for_one_and_forgiven_in_time() {
        let death = |ms| [(ms, "up", "down"), (ms + 100, "down", "probation")];
        let again = |ms| [(ms, "probation", "down")];
        let mut lives = Lives::default();
        assert_eq!(live(&mut lives, &[(0, "new", "up")]), None);
        assert_eq!(live(&mut lives, &death(100)), None);
        assert_eq!(live(&mut lives, &[(300, "probation", "down"), (400, "down", "probation")]), None);
        assert_eq!(live(&mut lives, &again(500)), None);
        assert!(lives.on_change(600 * MS, END, "down", "probation").is_some(), "three");
        let mut lives = Lives::default();
        live(&mut lives, &[(0, "new", "up"), (100, "up", "down")]);
        assert!(lives.on_change(400 * MS, END, "down", "damped").is_some(), "one");
        live(&mut lives, &[(401, "damped", "down"), (402, "down", "probation"), (500, "probation", "down")]);
        assert!(live(&mut lives, &[(600, "down", "damped")]).is_none());
        assert_eq!(lives.unforgiven(9 * S, |_| true), None);
        assert!(
            lives.unforgiven(15 * S, |_| true).is_some() && lives.unforgiven(15 * S, |_| false).is_none()
        );
        assert!(lives.on_change(5 * S, END, "damped", "probation").is_some(), "too early");
    }

    #[test]
    fn only_links_in_use_carry_messages() {
        let mut lives = Lives::default();
        assert_eq!(lives.bars(END), None);
        for (from, to, bars) in [
            ("new", "up", false),
            ("up", "suspect", true),
            ("suspect", "down", true),
            ("down", "probation", false),
            ("probation", "down", true),
            ("down", "damped", false),
        ] {
            lives.on_change(0, END, from, to);
            assert_eq!(lives.bars(END).is_some(), bars, "{to}");
        }
        lives.on_change(0, (0, 0, 7, 2), "new", "up");
        assert_eq!(lives.bars(END), Some("damped"), "another link is there");
        lives.forget(0, 0, 7);
        assert_eq!(lives.bars(END), None);
    }
}
