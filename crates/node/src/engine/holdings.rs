//! What memory the node has promised, to whom, and what of it is there: a picture for reports. It holds the memory that it tells of, so
//! that it can be measured when the engine is somebody else's again.

use super::Engine;
use super::admission::denied::Refusals;
use super::admission::users::{Paid, Whose};
use super::directs::Wanted;
use polyrail_shm::Segment;
use std::sync::Arc;

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Queues and arenas of ports.
    Ports,
    /// Direct rings.
    Rings,
    /// Trunks: two rings each.
    Trunks,
    /// Memory of programs, lent for one message each.
    Lent,
    /// Updates and events for those who have not read them.
    Kept,
    /// Buffers for large messages.
    Pool,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Ports, Kind::Rings, Kind::Trunks, Kind::Lent, Kind::Kept, Kind::Pool];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ports => "ports",
            Kind::Rings => "rings",
            Kind::Trunks => "trunks",
            Kind::Lent => "lent",
            Kind::Kept => "kept",
            Kind::Pool => "pool",
        }
    }
}

/// One piece of memory, or all of the pool's.
pub(crate) struct Holding {
    pub kind: Kind,
    /// Nobody: the program that embeds the node.
    pub whose: Option<Whose>,
    pub promised_bytes: u64,
    memory: Vec<Arc<Segment>>,
}

impl Holding {
    /// What of it is there; `None` if that can't be told. A look at each page of the node's own ports, a system call for each
    /// piece that others map.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        match self.kind {
            // Who asks for a buffer writes to it, and what is kept for the next one keeps its pages.
            Kind::Pool => Some(self.promised_bytes),
            Kind::Kept => None,
            _ => {
                let bytes = self.memory.iter().map(|memory| memory.resident_bytes());
                bytes.sum::<std::io::Result<usize>>().ok().map(|bytes| bytes as u64)
            }
        }
    }
}

/// What a user has and may have.
pub(crate) struct UserHoldings {
    pub uid: u32,
    /// And how many there may be.
    pub ports: (usize, usize),
    pub names: (usize, usize),
    pub descriptors: (usize, usize),
    pub memory_bytes: (u64, u64),
    pub refused: Refusals,
}

/// All of it.
pub(crate) struct Holdings {
    pub limit_bytes: u64,
    pub promised_bytes: u64,
    pub all: Vec<Holding>,
    pub users: Vec<UserHoldings>,
    pub refused: Refusals,
}

impl Engine {
    /// What the node has promised now.
    pub(crate) fn holdings(&self) -> Holdings {
        let budget = self.users.budget();
        let users = self.users.all().map(|(uid, user)| UserHoldings {
            uid,
            ports: (user.ports, user.ports_max),
            names: (user.names, user.names_max),
            descriptors: (user.descriptors.used_bytes(), user.descriptors.limit_bytes()),
            memory_bytes: (user.memory.used_bytes() as u64, user.memory.limit_bytes() as u64),
            refused: user.refused,
        });
        Holdings {
            limit_bytes: budget.limit_bytes() as u64,
            promised_bytes: budget.used_bytes() as u64,
            all: self.pieces(),
            users: users.collect(),
            refused: self.users.refused(),
        }
    }

    fn pieces(&self) -> Vec<Holding> {
        let of = |kind: Kind, paid: &Paid, memory: Vec<Arc<Segment>>| Holding {
            kind,
            whose: paid.whose.clone(),
            promised_bytes: paid.charge.bytes() as u64,
            memory,
        };
        let ports = self.store.clients().map(|slot| Holding {
            kind: Kind::Ports,
            whose: slot.guest.as_ref().map(|guest| guest.whose()),
            promised_bytes: slot.charge.bytes() as u64,
            memory: std::iter::once(slot.pair.segment())
                .chain(slot.bell.as_ref().map(|bell| bell.segment()))
                .cloned()
                .collect(),
        });
        let rings = self.rings().map(|(wanted, paid, memory)| {
            let kind = if wanted == Wanted::Trunk { Kind::Trunks } else { Kind::Rings };
            of(kind, paid, memory.into_iter().flatten().cloned().collect())
        });
        let lent = self.store.lent().map(|lent| of(Kind::Lent, &lent.paid, vec![lent.memory.clone()]));
        let kept = self.kept.updates.values().chain(self.kept.events.values());
        let kept = kept.map(|paid| of(Kind::Kept, paid, Vec::new()));
        let pool = self.store.pool().map(|pool| Holding {
            kind: Kind::Pool,
            whose: None,
            promised_bytes: pool.held_bytes() as u64,
            memory: Vec::new(),
        });
        ports.chain(rings).chain(lent).chain(kept).chain(pool).collect()
    }
}
