//! Links that lose a high share of their packets.

use super::finding::{Finding, Severity};
use super::life::is_in_use;
use super::picture::{Link, Picture};

/// Fewer packets tell nothing.
const PACKETS_MIN: u64 = 1_000;
/// A sender that looks for more room loses some; above this share, one in so many, it is the path.
const ONE_IN: u64 = 50;

/// Since the session began, without what only seemed lost.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let is_bad = |link: &&Link| link.sent >= PACKETS_MIN && link.lost.saturating_mul(ONE_IN) >= link.sent;
    let in_use = |link: &&Link| is_in_use(&link.state);
    picture.links().iter().filter(in_use).filter(is_bad).map(|link| finding(picture, link)).collect()
}

fn finding(picture: &Picture, link: &Link) -> Finding {
    let percent = link.lost as f64 * 100.0 / link.sent as f64;
    let seen = format!("{} of {} packets lost ({percent:.1} %)", link.lost, link.sent);
    let why = "what is lost is sent again, later; a medium, a cable or a queue on the way drops";
    let bearer = picture.node.as_ref().and_then(|node| node.bearer_of(link));
    let interface = bearer.map_or("", |bearer| bearer.interface.as_str());
    let finding = Finding::new(Severity::Warning, "loss", format!("link {}", link.name), seen, why);
    finding
        .mend(format!(
            "ip -s -s link show dev {interface}  # errors and drops of the interface; at the peer too"
        ))
        .mend(format!("tc -s qdisc show dev {interface}  # drops of its queue; at the peer too"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    #[test]
    fn a_high_share_is_found_and_a_low_one_or_too_few_packets_are_not() {
        let with = |sent, lost| check(&planted::with_link(|link| (link.sent, link.lost) = (sent, lost)));
        assert!(with(10_000, 300)[0].seen.contains("3.0 %"));
        assert_eq!(with(10_000, 199), []);
        assert_eq!(with(10_000, 200).len(), 1);
        assert_eq!(with(999, 500), []);
        assert_eq!(with(0, 0), []);
    }
}
