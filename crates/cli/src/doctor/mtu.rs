//! Packets smaller than the interfaces would take.

use super::changed::takes_bytes;
use super::finding::{Finding, Severity};
use super::life::is_in_use;
use super::picture::{Link, NodePicture, Picture};
use std::net::{IpAddr, SocketAddr};

/// The search for the largest packet that passes ends so near below it, and packets are no larger than that.
const CLOSE_ENOUGH_BYTES: u64 = 16;
pub const PACKET_BYTES_MAX: u64 = 65_504;
/// A search takes less; a link that has been looking for longer looks again for what did not pass before.
const SEARCH_S: f64 = 3.0;

/// Paths that are narrower than both ends, and peers that are narrower than we are.
pub fn check(picture: &Picture) -> Vec<Finding> {
    let Some(node) = &picture.node else { return Vec::new() };
    let in_use = node.links.iter().filter(|link| is_in_use(&link.state));
    in_use
        .filter(|link| !is_explained(picture, node, link))
        .filter_map(|link| narrow_path(node, link).or_else(|| narrow_peer(node, link)))
        .collect()
}

/// Whether our interface takes no more than what passes: then nothing is wrong with the path.
fn is_explained(picture: &Picture, node: &NodePicture, link: &Link) -> bool {
    let Some(bearer) = node.bearer_of(link) else { return false };
    let interface = picture.machine.interface(&bearer.interface).filter(|_| !picture.is_elsewhere());
    let takes = interface.map_or(u64::MAX, |interface| takes_bytes(bearer, interface));
    takes < bearer.mtu_bytes.min(PACKET_BYTES_MAX) && link.mtu_bytes + CLOSE_ENOUGH_BYTES >= takes
}

fn narrow_path(node: &NodePicture, link: &Link) -> Option<Finding> {
    let searching = link.mtu_search && link.age_s < SEARCH_S;
    if searching || link.mtu_bytes + CLOSE_ENOUGH_BYTES >= link.mtu_bearers_bytes {
        return None;
    }
    let (passes, ends, headers) = (link.mtu_bytes, link.mtu_bearers_bytes, headers_bytes(link.to));
    let seen =
        format!("packets of {passes} bytes pass, both interfaces take {ends}; larger ones vanish on the way");
    let why = "the path between is narrower than its ends and does not say so, so other programs' packets vanish there";
    let finding = Finding::new(Severity::Warning, "mtu-path", format!("link {}", link.name), seen, why);
    let interface = node.bearer_of(link).map_or("", |bearer| bearer.interface.as_str());
    let finding = match link.to.map(|to| to.ip()) {
        Some(to) => {
            let probe = ends.saturating_sub(8);
            finding.mend(format!(
                "ping -c 3 -M do -s {probe} {to}  # widen what stands between until this is answered"
            ))
        }
        None => finding,
    };
    let mtu = passes + headers;
    Some(
        finding.mend(format!(
            "ip link set dev {interface} mtu {mtu}  # or narrow both ends: their nodes follow"
        )),
    )
}

fn narrow_peer(node: &NodePicture, link: &Link) -> Option<Finding> {
    let bearer = node.bearer_of(link)?;
    let (ours, theirs) = (bearer.mtu_bytes.min(PACKET_BYTES_MAX), link.mtu_bearers_bytes);
    if theirs == 0 || theirs + CLOSE_ENOUGH_BYTES >= ours {
        return None;
    }
    let headers = headers_bytes(link.to);
    let (our_mtu, their_mtu) = (bearer.mtu_bytes + headers, theirs + headers);
    let seen = format!(
        "the MTU of {} is {our_mtu}, that of {}'s interface {their_mtu}",
        bearer.interface, link.peer
    );
    let why = "packets are as small as the smaller of the two allows";
    let finding = Finding::new(Severity::Warning, "mtu-differs", format!("link {}", link.name), seen, why);
    let to = link.to.map_or(String::new(), |to| to.ip().to_string());
    let name = format!("\"$(ip -o addr show to {to} | awk '{{print $2}}')\"");
    let there = format!("ip link set dev {name} mtu {our_mtu}  # on {}: its node follows", link.peer);
    Some(finding.mend(there))
}

/// What IP and UDP take of an interface's MTU.
pub fn headers_bytes(to: Option<SocketAddr>) -> u64 {
    match to.map(|to| to.ip()) {
        Some(IpAddr::V6(_)) => 48,
        _ => 28,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::planted;

    fn with(passes: u64, bearers: u64, search: bool, age_s: f64) -> Vec<Finding> {
        check(&planted::with_link(|link| {
            (link.mtu_bytes, link.mtu_bearers_bytes, link.mtu_search, link.age_s) =
                (passes, bearers, search, age_s);
        }))
    }

    #[test]
    fn a_path_narrower_than_both_ends_is_found() {
        let found = with(1264, 1472, false, 60.0);
        assert_eq!((found.len(), found[0].check), (1, "mtu-path"));
        assert!(found[0].mend[0].starts_with("ping -c 3 -M do -s 1464 10.0.1.2"), "{found:?}");
        assert!(found[0].mend[1].starts_with("ip link set dev eth1 mtu 1292"), "{found:?}");
        assert_eq!(with(1264, 1472, true, 60.0).len(), 1, "it looks again for what did not pass");
        assert_eq!(with(1264, 1472, true, 0.3), [], "it has just begun to look");
        assert_eq!(with(1464, 1472, false, 60.0), [], "as near as the search goes");
    }

    #[test]
    fn a_path_as_wide_as_our_interface_is_now_is_no_narrow_path() {
        let narrowed = |mtu: u32| {
            let mut picture = planted::with_link(|link| link.mtu_bytes = 1_248);
            picture.machine.interfaces[1].mtu_bytes = mtu;
            check(&picture)
        };
        assert_eq!(narrowed(1_280), []);
        assert_eq!(narrowed(1_400).len(), 1, "it would take more");
    }

    #[test]
    fn a_peer_whose_interface_is_narrower_is_found_and_one_whose_is_wider_is_not() {
        let found = with(1372, 1372, false, 60.0);
        assert_eq!((found.len(), found[0].check), (1, "mtu-differs"));
        assert!(
            found[0].seen.contains("eth1 is 1500") && found[0].seen.contains("interface 1400"),
            "{found:?}"
        );
        assert_eq!(with(1472, 1472, false, 60.0), []);
    }

    #[test]
    fn a_link_that_is_not_in_use_is_not_judged_by_its_packets() {
        let down = planted::with_link(|link| (link.state, link.mtu_bytes) = ("down".into(), 1200));
        assert_eq!(check(&down), []);
    }
}
