//! What the world needs of a node under test. The real engine implements it in [`crate::engine_node`]; tests of the
//! simulator itself use small protocols with known faults, to show that the checks see them.

use polyrail::engine::client::connections::{Answer, Progress, Request};
use polyrail_proto::address::{ServiceAddress, ServiceRange};
use polyrail_proto::id::{ConnectionId, PortAddress, SessionId};

/// What one turn of a node did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turned {
    /// When it wants the next turn at the latest, in the node's own time.
    pub deadline_ns: Option<u64>,
    /// Whether nothing was left to do when the turn ended.
    pub drained: bool,
    /// Whether anything was done.
    pub worked: bool,
}

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// A port.
    Port(PortAddress),
    /// Whoever has bound a service.
    Service(ServiceAddress),
    /// All who have bound something of a range.
    All(ServiceRange),
}

/// How a message is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Its class.
    pub class: u8,
    /// A tag that travels with it.
    pub tag: Option<u64>,
    /// It is to come back if it fails.
    pub returns: bool,
    /// It is to be given up if nothing of it has left by then, in the node's own time.
    pub expires_at_ns: Option<u64>,
}

/// What became of a call to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendAnswer {
    /// Accepted: from now on the node is responsible.
    Accepted,
    /// No room now.
    Blocked,
    /// Not accepted.
    Refused,
}

/// Why an accepted message failed, as the node told its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailReason {
    /// No such port.
    NoPort,
    /// Nobody has bound the service (any more).
    NoService,
    /// No session with that node.
    NoNode,
    /// Larger than the receiver takes.
    TooLarge,
    /// The node did not understand its application.
    Invalid,
    /// It may or may not have arrived.
    Indeterminate,
    /// It did not leave.
    NotSent,
    /// Its time was up before anything of it left.
    Expired,
    /// Too much is under way to its destination.
    Overload,
    /// Its port closed before it was read.
    ShutDown,
}

/// Something that a node tells its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A message arrived.
    Received {
        /// At this port.
        port: u32,
        /// From there.
        from: PortAddress,
        /// The sender's tag.
        tag: Option<u64>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// An accepted message failed.
    Failed {
        /// The number that the application gave it.
        id: u64,
        /// Why.
        reason: FailReason,
    },
    /// A binding was refused, for somebody else has it.
    Taken,
    /// An exclusive binding was taken back.
    Unbound(ServiceRange),
    /// An accepted message failed and came back.
    Returned {
        /// The number that the application gave it.
        id: u64,
        /// Why.
        reason: FailReason,
        /// Where it was to go, as far as the node says.
        to: Option<To>,
        /// Its class.
        class: u8,
        /// Its tag.
        tag: Option<u64>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A peer was declared lost (by its node id).
    NodeDown(u64),
    /// A peer was met.
    NodeUp(u64),
    /// Another node uses this node's identity, or two peers share one.
    DuplicateIdentity(u64),
    /// A link changed its state.
    Link {
        /// The peer's identity.
        peer: u64,
        /// Its number.
        link: u16,
        /// The state before.
        from: &'static str,
        /// The state now.
        to: &'static str,
    },
}

/// A peer as a node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownPeer {
    /// Its identity.
    pub node: u64,
    /// Which of its lives.
    pub incarnation: u64,
    /// Whether applications were told of it.
    pub met: bool,
}

/// A binding as a node sees it, its own ones included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KnownBinding {
    /// The identity of the node that made it.
    pub node: u64,
    /// Which port of it.
    pub port: u32,
    /// What it is bound to.
    pub range: ServiceRange,
    /// Whether other nodes may know of it.
    pub cluster: bool,
}

/// What a node knows of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// Its sessions, without the one with itself.
    pub peers: Vec<KnownPeer>,
    /// Its service table, sorted.
    pub bindings: Vec<KnownBinding>,
    /// What a subscriber was told of all this wrongly.
    pub misled: Option<String>,
}

/// Numbers that a node shows, for the checks of bounds and credit.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Name, value, and upper bound if there is one.
    pub values: Vec<(&'static str, u64, Option<u64>)>,
    /// Messages refused for want of room.
    pub refused: u64,
    /// Breaches of the protocol that peers were accused of.
    pub violations: u64,
}

/// What a node still holds of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Ends.
    pub ends: usize,
    /// Credits of ends, given and taken.
    pub credits: usize,
    /// Flows to ends, sending and receiving.
    pub flows: usize,
}

/// What a node still holds of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Messages of open ports that are neither confirmed nor failed.
    pub unconfirmed: u64,
    /// Bytes that they occupy.
    pub sending_bytes: u64,
    /// Bytes of what arrived.
    pub receiving_bytes: u64,
}

/// A port's verbs for connections. All return at once; false or `None`: not now.
pub trait Connector {
    /// From now on so many connections may wait.
    fn listen(&mut self, backlog: u32) -> bool;
    /// Asks for a connection; the cookie of the answer.
    fn connect(&mut self, to: To, class: u8, first: Option<&[u8]>, last: bool) -> Option<u64>;
    /// Takes in what arrived; messages that came by no connection are kept.
    fn take_in(&mut self);
    /// The answer to `connect`.
    fn answer(&mut self, cookie: u64) -> Option<Answer>;
    /// The next connection that somebody wants.
    fn request(&mut self) -> Option<Request>;
    /// Accepts it.
    fn accept(&mut self, id: ConnectionId) -> bool;
    /// Sends a message on a connection.
    fn send_on(&mut self, id: ConnectionId, class: u8, bytes: &[u8]) -> bool;
    /// Sends no more, receives no more, or both; refuses a connection that waits.
    fn shut_down(&mut self, id: ConnectionId, sent_all: bool, deaf: bool) -> bool;
    /// How far a connection has come; `None` if it is forgotten.
    fn progress(&self, id: ConnectionId) -> Option<Progress>;
    /// The next connection of which something may be read.
    fn next_readable(&mut self) -> Option<ConnectionId>;
    /// The next message of a connection; its memory is given back.
    fn read(&mut self, id: ConnectionId) -> Option<Vec<u8>>;
    /// Nobody wants to know of it any more.
    fn forget(&mut self, id: ConnectionId);
}

/// One node under test. All calls return at once.
pub trait Subject {
    /// One bounded turn.
    fn turn(&mut self, now_ns: u64) -> Turned;
    /// A bearer's carrier changed.
    fn carrier(&mut self, now_ns: u64, bearer: usize, up: bool);
    /// The node was held up for `stalled_ns` until now.
    fn stall(&mut self, now_ns: u64, stalled_ns: u64);
    /// Opens a port; `None` if that is refused.
    fn open_port(&mut self, now_ns: u64) -> Option<u32>;
    /// Closes a port.
    fn close_port(&mut self, now_ns: u64, port: u32);
    /// Binds a port to services, known to the cluster or to this node only.
    fn bind(&mut self, now_ns: u64, port: u32, range: ServiceRange, cluster: bool);
    /// Binds a port to services that no other port of the cluster is to have.
    fn bind_exclusive(&mut self, now_ns: u64, port: u32, range: ServiceRange);
    /// Takes a binding back.
    fn unbind(&mut self, now_ns: u64, port: u32, range: ServiceRange, cluster: bool);
    /// Tells every peer that it leaves; some turns will follow.
    fn leave(&mut self, _now_ns: u64) {}
    /// Sends `bytes` from `port`. `id` comes back in [`Happening::Failed`] and [`Happening::Returned`].
    fn send(&mut self, now_ns: u64, port: u32, to: To, wish: Wish, id: u64, bytes: &[u8]) -> SendAnswer;
    /// What happened at `port` since the last call, at most `most` things; messages are consumed by it.
    fn poll(&mut self, now_ns: u64, port: u32, most: usize, out: &mut Vec<Happening>);
    /// The verbs for connections of `port`; `None` if it is closed, or the node has none.
    fn connector(&mut self, _port: u32) -> Option<&mut dyn Connector> {
        None
    }
    /// The incarnation of the peer of a session and its own name for it; `None` if the session is over.
    fn far_session(&self, _session: SessionId) -> Option<(u64, SessionId)> {
        None
    }
    /// What it holds of connections.
    fn held(&self) -> Held {
        Held::default()
    }
    /// What it holds of messages.
    fn memory(&mut self) -> Memory {
        Memory::default()
    }
    /// What happened to the node as a whole.
    fn poll_node(&mut self, out: &mut Vec<Happening>);
    /// What it knows of the cluster; `None` if it keeps no names.
    fn directory(&self) -> Option<Directory> {
        None
    }
    /// Its state, for people who read a trace.
    fn describe(&self) -> String {
        String::new()
    }
    /// Current counters.
    fn counters(&self) -> Counters;
}
