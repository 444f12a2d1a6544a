//! What an attacker who hears everything knows of a session: enough to get past every check by number.

use crate::world::Host;
use crate::world::random::Random;
use polyrail_proto::id::{Incarnation, NodeId, PortId};

/// The session of an attacker with its victim, as numbers.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The victim's index of the session, 0 if there is none.
    pub to: u32,
    /// Links with the next packet number of the attacker and of the victim on each.
    pub links: Vec<(u16, u64, u64)>,
    /// Ports of the victim, and of the attacker.
    pub theirs: Vec<PortId>,
    pub own: Vec<PortId>,
    /// Who the attacker says it is.
    pub node: NodeId,
    pub incarnation: Incarnation,
}

impl Live {
    /// Reads it from the attacker's own books and from the victim's.
    pub fn between(attacker: &Host, victim: &Host, theirs: &[PortId], own: &[PortId]) -> Live {
        let config = attacker.node.config();
        let mut live = Live {
            theirs: theirs.to_vec(),
            own: own.to_vec(),
            node: config.node,
            incarnation: config.incarnation,
            ..Live::default()
        };
        let there = victim.session_with(config.node);
        if let Some(session) = there {
            live.to = session.index.0;
            let link = |l: &polyrail_proto::link::Link| {
                (l.spec.id.0, l.received.largest().map_or(0, |n| n + 1), l.sent.next())
            };
            live.links = session.links.iter().map(link).collect();
        }
        live
    }

    /// A link of the session, or number 0.
    pub fn link(&self, random: &mut Random) -> (u16, u64, u64) {
        if self.links.is_empty() { (0, 0, 0) } else { self.links[random.below(self.links.len())] }
    }

    pub fn their_port(&self, random: &mut Random) -> PortId {
        port(&self.theirs, random)
    }

    pub fn own_port(&self, random: &mut Random) -> PortId {
        port(&self.own, random)
    }
}

/// One of `known`, now and then one that nobody has.
fn port(known: &[PortId], random: &mut Random) -> PortId {
    if known.is_empty() || random.one_in(8) {
        PortId(random.odd_number() as u32)
    } else {
        known[random.below(known.len())]
    }
}
