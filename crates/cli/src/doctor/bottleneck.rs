//! Links that pass the same narrow place.

use super::finding::{Finding, Severity};
use super::life::is_in_use;
use super::picture::{Link, Picture};

/// As trials under load have told the node (docs/protocol.md §5.12): each pair once.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let links = || picture.links().iter().filter(|link| is_in_use(&link.state));
    let is_first = |link: &Link, with: &str| {
        let told_already =
            |other: &Link| other.name == with && other.shares_with.as_deref() == Some(&link.name);
        !links().take_while(|other| other.name != link.name).any(told_already)
    };
    let pairs = links().filter_map(|link| Some((link, link.shares_with.as_deref()?)));
    pairs
        .filter(|(link, with)| is_first(link, with))
        .map(|(link, with)| finding(picture, link, with))
        .collect()
}

fn finding(picture: &Picture, link: &Link, with: &str) -> Finding {
    let seen = format!("while {} was left out for a moment, {with} carried what it no longer did", link.name);
    let why = "both pass one narrow place: a cable, a port of a switch, or a processor that has no more time. Together \
               they carry no more than one; the second only helps when the other fails";
    let about = format!("links {} and {with}", link.name);
    let finding = Finding::new(Severity::Note, "one-bottleneck", about, seen, why);
    let bearer = picture.node.as_ref().and_then(|node| node.bearer_of(link));
    let interface = bearer.map_or("", |bearer| bearer.interface.as_str());
    finding
        .mend("top -H  # a thread that has a core to itself: the processor is the narrow place, and no cable helps")
        .mend(format!("ip -d link show dev {interface}  # which cable it goes by: lead one of the two another way"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    #[test]
    fn a_pair_is_told_once() {
        let mut picture = planted::sound();
        let links = &mut picture.node.as_mut().unwrap().links;
        let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
        links[0].shares_with = Some(names[1].clone());
        assert_eq!(check(&picture)[0].about, format!("links {} and {}", names[0], names[1]));
        picture.node.as_mut().unwrap().links[1].shares_with = Some(names[0].clone());
        assert_eq!(check(&picture).len(), 1);
        picture.node.as_mut().unwrap().links[0].shares_with = None;
        assert_eq!(check(&picture).len(), 1);
        picture.node.as_mut().unwrap().links[1].state = "down".into();
        assert_eq!(check(&picture), []);
    }
}
