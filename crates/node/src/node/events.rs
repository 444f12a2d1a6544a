//! News of a node as a whole, for whoever wants to know.

use polyrail_proto::Event;
use polyrail_proto::link::state::LinkState;
use serde::{Deserialize, Serialize};

/// Something changed around this node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeEvent {
    /// A node joined.
    PeerUp {
        /// Its identity.
        node: u64,
        /// Its life.
        incarnation: u64,
        /// Its name.
        name: String,
    },
    /// A node left or was lost.
    PeerDown {
        /// Its identity.
        node: u64,
        /// Its life.
        incarnation: u64,
        /// It said so itself.
        left: bool,
    },
    /// A link changed its state.
    Link {
        /// The peer.
        node: u64,
        /// Number of the link.
        link: u16,
        /// Number of our bearer.
        bearer: u8,
        /// State before.
        #[serde(with = "state_word")]
        from: LinkState,
        /// State now.
        #[serde(with = "state_word")]
        to: LinkState,
        /// What brought it about.
        why: String,
    },
    /// A bearer was opened while the node ran: its interface came, or got another address.
    BearerOpened {
        /// Its number.
        bearer: u8,
        /// Its name.
        name: String,
        /// The address that peers send to.
        address: String,
    },
    /// A bearer was closed while the node ran.
    BearerClosed {
        /// Its number.
        bearer: u8,
        /// Its name.
        name: String,
        /// The address that peers sent to.
        address: String,
        /// Why.
        why: String,
    },
    /// The service table changed.
    Names,
    /// Another live node has an identity that is taken.
    DuplicateIdentity {
        /// The identity.
        node: u64,
        /// Where the other one speaks from.
        at: String,
    },
    /// The node of another process that this one is attached to has ended. Attach anew for all that it did; ports that talked to
    /// others of this machine past it talk on ([`Port::has_lost_node`](crate::Port::has_lost_node)).
    NodeEnded,
    /// A node speaks another wire version.
    VersionMismatch {
        /// Its version.
        theirs: u8,
        /// Ours.
        ours: u8,
        /// Where it speaks from.
        at: String,
    },
}

impl NodeEvent {
    /// From the core's news; `None` for what concerns one port only.
    pub(crate) fn of(event: &Event) -> Option<NodeEvent> {
        let address = |at: &polyrail_proto::address::MediaAddress| {
            polyrail_bearer::Address::from_bytes(at.as_bytes())
                .map_or_else(|| format!("{at:?}"), |a| a.to_string())
        };
        Some(match event {
            Event::PeerUp { node, incarnation, name } => {
                NodeEvent::PeerUp { node: node.0, incarnation: incarnation.0, name: name.to_string() }
            }
            Event::PeerDown { node, incarnation, left } => {
                NodeEvent::PeerDown { node: node.0, incarnation: incarnation.0, left: *left }
            }
            Event::Link { node, link, bearer, from, to, why } => {
                let (from, to, why) = (*from, *to, why.to_string());
                NodeEvent::Link { node: node.0, link: link.0, bearer: bearer.0, from, to, why }
            }
            Event::Names => NodeEvent::Names,
            Event::DuplicateIdentity { node, at } => {
                NodeEvent::DuplicateIdentity { node: node.0, at: address(at) }
            }
            Event::VersionMismatch { theirs, ours, at } => {
                NodeEvent::VersionMismatch { theirs: *theirs, ours: *ours, at: address(at) }
            }
            _ => return None,
        })
    }
}

/// A link's state as its word.
mod state_word {
    use super::LinkState;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(state: &LinkState, words: S) -> Result<S::Ok, S::Error> {
        words.serialize_str(state.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(words: D) -> Result<LinkState, D::Error> {
        let word = String::deserialize(words)?;
        let known = LinkState::ALL.into_iter().find(|state| state.name() == word);
        known.ok_or_else(|| D::Error::custom(format!("{word:?} is no state of a link")))
    }
}
