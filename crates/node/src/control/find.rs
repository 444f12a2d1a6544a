//! From what a person types to the thing that is meant; if there is none, to what there is.

use super::Refusal;
use super::connections::{name_of, number_of};
use crate::engine::Engine;
use polyrail_proto::address::ServiceRange;
use polyrail_proto::id::{LinkId, NodeId, PortId};
use polyrail_proto::session::Session;

/// Names that a refusal lists.
const LISTED_MAX: usize = 16;

/// A thing with the names that it goes by; the first is the one that lists show.
type Named<T> = (Vec<String>, T);

/// The one of `all` that goes by `name`.
fn find<T: PartialEq>(noun: &str, name: &str, all: impl IntoIterator<Item = Named<T>>) -> Result<T, Refusal> {
    let (mut found, mut there): (Vec<Named<T>>, Vec<String>) = (Vec::new(), Vec::new());
    for (names, thing) in all {
        there.extend(names.first().cloned());
        if names.iter().any(|known| known == name) && !found.iter().any(|(_, other)| *other == thing) {
            found.push((names, thing));
        }
    }
    match found.len() {
        0 => Err(unknown(noun, name, there)),
        1 => Ok(found.remove(0).1),
        _ => {
            let last = |names: &[String]| names.last().cloned().unwrap_or_default();
            let choice: Vec<String> = found.iter().map(|(names, _)| last(names)).collect();
            let message = format!("{noun} {name:?}: several go by that name: {}", listed(choice));
            Err(Refusal::new("usage", message))
        }
    }
}

/// The refusal of a name that nothing has.
pub(super) fn unknown(noun: &str, name: &str, there: Vec<String>) -> Refusal {
    Refusal::new("not_found", format!("no {noun} {name:?}; there are: {}", listed(there)))
}

pub(super) fn listed(names: Vec<String>) -> String {
    let total = names.len();
    first_of(names, total)
}

/// The first of `total` names.
fn first_of(mut names: Vec<String>, total: usize) -> String {
    names.truncate(LISTED_MAX);
    let more = total - names.len();
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// The name of a link.
pub(super) fn link_name(peer: &str, link: LinkId) -> String {
    format!("{peer}/{link}")
}

/// The link called `PEER/LINK` or `NODEID/LINK`, also one that is gone and still remembered.
pub(super) fn link(engine: &Engine, name: &str) -> Result<(NodeId, LinkId), Refusal> {
    let names =
        |node: NodeId, peer: &str, link| vec![link_name(peer, link), link_name(&node.to_string(), link)];
    let alive = engine.remote_sessions().flat_map(|s| {
        let node = s.peer.node;
        s.links.iter().map(move |l| (names(node, &s.peer.name, l.spec.id), (node, l.spec.id)))
    });
    let remembered = engine
        .history()
        .nodes()
        .flat_map(|(node, past)| past.links().map(move |link| (names(node, &past.name, link), (node, link))));
    let mut all: Vec<Named<(NodeId, LinkId)>> = alive.collect();
    let known: Vec<_> = all.iter().map(|(_, thing)| *thing).collect();
    all.extend(remembered.filter(|(_, thing)| !known.contains(thing)));
    find("link", name, all)
}

/// The node with this name or identity, itself included, also one that is gone and still remembered.
pub(super) fn node(engine: &Engine, name: &str) -> Result<NodeId, Refusal> {
    let config = engine.core().config();
    let mut all: Vec<Named<NodeId>> =
        vec![(vec![config.name.to_string(), config.node.to_string()], config.node)];
    for session in engine.remote_sessions() {
        all.push((vec![session.peer.name.to_string(), session.peer.node.to_string()], session.peer.node));
    }
    for (node, past) in engine.history().nodes() {
        if !all.iter().any(|(_, known)| *known == node) {
            all.push((vec![past.name.clone(), node.to_string()], node));
        }
    }
    find("node", name, all)
}

/// The bearer with this name, such as `udp/eth0`, or on this interface.
pub(super) fn bearer(engine: &Engine, name: &str) -> Result<usize, Refusal> {
    let all = engine.bearer_rows().into_iter().map(|row| {
        let interface = row.name.split_once('/').map(|(_, interface)| interface.to_owned());
        (std::iter::once(row.name).chain(interface).collect(), row.bearer)
    });
    find("bearer", name, all)
}

/// The port with this number, or with this address `NODEID:PORT`.
pub(super) fn port(engine: &Engine, name: &str) -> Result<PortId, Refusal> {
    let node = engine.core().config().node;
    let all =
        engine.port_ids().into_iter().map(|port| (vec![port.to_string(), format!("{node}:{port}")], port));
    find("port", name, all)
}

/// The connection called `PEER/out-7` or `PEER/in-7`, or with the peer's identity for its name.
pub(super) fn connection<'a>(
    sessions: Vec<&'a Session>,
    name: &str,
) -> Result<(&'a Session, PortId), Refusal> {
    let named = name.rsplit_once('/').and_then(|(peer, end)| Some((peer, end_of(end)?)));
    let found = named.into_iter().flat_map(|(peer, end)| {
        let goes_by = move |s: &&&Session| s.peer.name.as_str() == peer || s.peer.node.to_string() == peer;
        let has = move |s: &&Session| s.has_connection_end(end);
        sessions.iter().filter(goes_by).copied().filter(has).map(move |s| (s, end))
    });
    let found: Vec<(&Session, PortId)> = found.collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            let names = sessions.iter().flat_map(|s| s.connection_ends(None).map(|end| name_of(s, end)));
            let (names, total) =
                (names.take(LISTED_MAX).collect(), sessions.iter().map(|s| s.connections()).sum());
            let there = first_of(names, total);
            Err(Refusal::new("not_found", format!("no connection {name:?}; there are: {there}")))
        }
        _ => {
            let choice = found.iter().map(|(s, end)| format!("{}/{}", s.peer.node, number_of(*end)));
            let message =
                format!("connection {name:?}: several go by that name: {}", listed(choice.collect()));
            Err(Refusal::new("usage", message))
        }
    }
}

/// The end that `out-7` or `in-7` names.
fn end_of(text: &str) -> Option<PortId> {
    let (way, number) = text.split_once('-')?;
    let number = number.parse::<u32>().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    let accepting = PortId::accepting_end(number);
    match way {
        _ if accepting.connection_number() != number => None,
        "in" => Some(accepting),
        "out" => Some(accepting.far_end()),
        _ => None,
    }
}

/// A service as it is typed: `TYPE:INSTANCE` or `TYPE:LOWER-UPPER`.
pub(super) fn service(name: &str) -> Result<ServiceRange, Refusal> {
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    let read = || {
        let (kind, instances) = name.split_once(':')?;
        let (lower, upper) = instances.split_once('-').unwrap_or((instances, instances));
        let range = ServiceRange::new(number(kind)?, number(lower)?, number(upper)?);
        (range.lower <= range.upper).then_some(range)
    };
    read().ok_or_else(|| {
        let allowed = "TYPE:INSTANCE as 100:7, or TYPE:LOWER-UPPER as 100:0-9";
        Refusal::new("usage", format!("{name:?} is no service; allowed: {allowed}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(all: &[(&str, u8)]) -> Vec<Named<u8>> {
        all.iter().map(|(name, thing)| (vec![name.to_string(), format!("id-{thing}")], *thing)).collect()
    }

    #[test]
    fn a_thing_is_found_by_each_of_its_names() {
        let all = named(&[("a", 1), ("b", 2)]);
        assert_eq!(find("link", "b", all.clone()), Ok(2));
        assert_eq!(find("link", "id-1", all), Ok(1));
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let refusal = find("link", "c", named(&[("a", 1), ("b", 2)])).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), ("not_found", "no link \"c\"; there are: a, b"));
        assert_eq!(find("link", "c", named(&[])).unwrap_err().message, "no link \"c\"; there are: none");
        let many: Vec<Named<u8>> = (0..20).map(|n| (vec![format!("n{n}")], n)).collect();
        assert!(find("node", "c", many).unwrap_err().message.ends_with("n14, n15 and 4 more"));
    }

    #[test]
    fn a_name_that_several_have_is_told_how_to_tell_them_apart() {
        let refusal = find("node", "a", named(&[("a", 1), ("a", 2)])).unwrap_err();
        assert_eq!(refusal.code, "usage");
        assert!(refusal.message.ends_with("id-1, id-2"), "{}", refusal.message);
    }

    #[test]
    fn ends_of_connections_are_read_as_they_are_shown() {
        assert_eq!(end_of("in-7"), Some(PortId::accepting_end(7)));
        assert_eq!(end_of("out-7"), Some(PortId::accepting_end(7).far_end()));
        for wrong in ["", "7", "in7", "in-", "in-+7", "by-7", "in-1073741824", "out-99999999999"] {
            assert_eq!(end_of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn services_are_read_as_they_are_typed() {
        assert_eq!(service("100:7").unwrap(), ServiceRange::new(100, 7, 7));
        assert_eq!(service("100:0-9").unwrap(), ServiceRange::new(100, 0, 9));
        for wrong in ["", "100", "100:9-1", "+1:2", "a:b", "1:2-"] {
            assert_eq!(service(wrong).unwrap_err().code, "usage", "{wrong:?}");
        }
    }
}
