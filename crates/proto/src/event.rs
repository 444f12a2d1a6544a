//! What the core tells its driver.

use crate::address::{MediaAddress, ServiceAddress, ServiceRange};
use crate::error::{ConnectionOver, Failure};
use crate::flow::Class;
use crate::id::{
    BearerId, BufferId, ConnectionId, Incarnation, LinkId, NodeId, PortAddress, PortId, SessionId,
};
use crate::link::state::{LinkEvent, LinkState};
use arrayvec::ArrayString;

/// Names a message that was delivered and whose sender wants to know whether it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The session by which it came.
    pub session: SessionId,
    /// Its flow there.
    pub(crate) flow: u32,
    /// Low half of its number there.
    pub(crate) seq: u32,
}

/// News, in the order in which they came about.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message for a port. The buffer is the port's now.
    Message {
        /// The port.
        port: PortId,
        /// Who sent it.
        from: PortAddress,
        /// The connection by which it came, if it was one.
        connection: Option<ConnectionId>,
        /// The service that was addressed, if any.
        service: Option<ServiceAddress>,
        /// The sender's tag.
        tag: Option<u64>,
        /// Its class.
        class: Class,
        /// Its bytes.
        buffer: BufferId,
        /// How many.
        len: u64,
        /// Its sender wants to be told when it was read: hand this to [`crate::Node::handle_read`] then.
        receipt: Option<Receipt>,
    },
    /// A large message is next for a port and finds no memory: the port may accept it into memory of its own.
    Offer {
        /// The port.
        port: PortId,
        /// Who sends it.
        from: PortAddress,
        /// How many bytes.
        len: u64,
        /// Names the offer.
        session: SessionId,
        /// Names the offer.
        transfer: u32,
        /// The connection by which it comes, if it is one.
        connection: Option<ConnectionId>,
    },
    /// A message of a port was not delivered, or may not have been. Its buffer has been released.
    SendFailed {
        /// The sending port.
        port: PortId,
        /// The message's buffer, as its name.
        buffer: BufferId,
        /// Where it was to go.
        to: PortAddress,
        /// Why.
        why: Failure,
    },
    /// Somebody wants a connection with a port that listens: accept it, or shut it down.
    Connect {
        /// The port.
        port: PortId,
        /// Names the connection.
        id: ConnectionId,
        /// Who asks.
        from: PortAddress,
        /// The service that was addressed, if any.
        service: Option<ServiceAddress>,
        /// It is to carry a stream of bytes.
        stream: bool,
        /// Class of its messages.
        class: Class,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// A connection that a port asked for was accepted.
    Connected {
        /// The port.
        port: PortId,
        /// The connection.
        id: ConnectionId,
        /// Who accepted it.
        peer: PortAddress,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// More may be sent on a connection.
    ConnectionCredit {
        /// The port.
        port: PortId,
        /// The connection.
        id: ConnectionId,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// All that the other end of a connection had to send was delivered.
    ConnectionEnd {
        /// The port.
        port: PortId,
        /// The connection.
        id: ConnectionId,
    },
    /// The other end of a connection receives no more.
    ConnectionDeaf {
        /// The port.
        port: PortId,
        /// The connection.
        id: ConnectionId,
    },
    /// A connection is over before its time.
    ConnectionOver {
        /// The port.
        port: PortId,
        /// The connection.
        id: ConnectionId,
        /// Why.
        why: ConnectionOver,
    },
    /// A node joined.
    PeerUp {
        /// Who.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// Its name.
        name: ArrayString<63>,
    },
    /// A node left, or was lost.
    PeerDown {
        /// Who.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
        /// It said so itself.
        left: bool,
    },
    /// A link changed its state.
    Link {
        /// The peer.
        node: NodeId,
        /// The link.
        link: LinkId,
        /// Our bearer.
        bearer: BearerId,
        /// State before.
        from: LinkState,
        /// State now.
        to: LinkState,
        /// What brought it about.
        why: LinkEvent,
    },
    /// The service table changed.
    Names,
    /// A binding of a port that wanted to be the only one of its range met another that was made at the same time, and was
    /// taken back.
    Unbound {
        /// The port.
        port: PortId,
        /// What it had bound.
        range: ServiceRange,
        /// Whose binding is there instead.
        by: NodeId,
    },
    /// Another live node has the identity `node` (perhaps ours): the newcomer is not accepted.
    DuplicateIdentity {
        /// The identity.
        node: NodeId,
        /// Where the other one speaks from.
        at: MediaAddress,
    },
    /// A node speaks another wire version.
    VersionMismatch {
        /// Its version.
        theirs: u8,
        /// Ours.
        ours: u8,
        /// Where it speaks from.
        at: MediaAddress,
    },
}
