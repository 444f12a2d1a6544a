//! What clients and the engine say to each other, the same for embedded and attached clients; each is an entry of a queue.

mod entry;

use super::client::Envelope;
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::config::Policy;
use polyrail_proto::error::{ConnectError, ConnectionOver, Failure};
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, NodeId, PortAddress};
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::service::Lookup;
use polyrail_proto::wire::RefusedConnect;

/// Where a message's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// At an offset of the arena.
    Arena(u64),
    /// At an offset of the sending arena, with room for headers between its pieces.
    Spaced(u64),
    /// In a buffer that was put into the exchange under this number.
    Exchanged(u64),
}

/// What a client waits for that is no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Somebody has bound the service.
    Bound(ServiceAddress),
    /// All peers know what ports of this node have bound and unbound so far.
    Known,
}

/// From a client to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Send a message.
    Send {
        /// Where to.
        to: Destination,
        /// In which manner.
        how: Manner,
        /// Its bytes.
        body: Body,
        /// How many.
        len: u64,
        /// Comes back if it fails.
        cookie: u64,
    },
    /// Bind to a range of services, with a share among the bindings of one service; answered by `Answer`.
    Bind(ServiceRange, Scope, u8),
    /// Bind to a range of services that nobody else is to have; answered by `Answer` or `Taken`.
    BindExclusive(ServiceRange, Scope),
    /// Take a binding back; answered by `Answer`.
    Unbind(ServiceRange, Scope),
    /// Memory for an offered message.
    Accept {
        /// The offer.
        offer: (u32, u32),
        /// Number of the buffer in the exchange.
        buffer: u64,
    },
    /// From now on so many connections may wait for this port; 0: it takes none.
    Listen(u32),
    /// Ask for a connection; answered by `Connecting` or `NotConnecting`.
    Connect {
        /// Where to: a port or a service.
        to: Destination,
        /// Class of its messages.
        class: Class,
        /// It carries a stream of bytes.
        stream: bool,
        /// A message that leaves with the question: its bytes, and how many.
        first: Option<(Body, u64)>,
        /// Nothing follows that message.
        last: bool,
        /// Comes back in the answer, and names the message if it fails.
        cookie: u64,
    },
    /// Accept a connection that waits.
    Take(ConnectionId),
    /// Say that no more is sent on a connection, no more received, or both.
    ShutDown {
        /// The connection.
        id: ConnectionId,
        /// No more is sent.
        sent_all: bool,
        /// No more is received.
        deaf: bool,
    },
    /// What was read of a connection in all.
    Consumed {
        /// The connection.
        id: ConnectionId,
        /// Bytes as they count against credit.
        bytes: u64,
        /// Messages.
        messages: u64,
    },
    /// How the port chooses among those that serve what it sends to, from the next message on.
    Lookup(Lookup),
    /// The policy of flows that begin from now on; `None`: that of their class.
    Policy(Option<Policy>),
    /// Tell when this is so: by `Came` with the same number. What was awaited before is forgotten.
    Await {
        /// What.
        what: Awaited,
        /// Which of the client's waits it is.
        number: u64,
    },
    /// Nothing is waited for any more.
    Forget,
    /// The client sends no more by the direct ring of this number.
    EndDirect(u64),
}

/// From the engine to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A message arrived: what is known of it, and its bytes.
    Message(Envelope, Body),
    /// A message wants to come and finds no memory.
    Offer {
        /// Who sends it.
        from: PortAddress,
        /// How many bytes.
        len: u64,
        /// Names it.
        offer: (u32, u32),
        /// The connection by which it comes.
        connection: Option<ConnectionId>,
    },
    /// A message was not delivered, or may not have been.
    Failed {
        /// Its cookie.
        cookie: u64,
        /// Why.
        why: FailureCode,
    },
    /// A message was not delivered, or may not have been, and is the client's again as it wished.
    Returned {
        /// Its cookie.
        cookie: u64,
        /// Why.
        why: FailureCode,
        /// Where it was to go.
        to: Destination,
        /// Class.
        class: Class,
        /// Tag.
        tag: Option<u64>,
        /// Its bytes: in the sending arena, or in the exchange.
        body: Body,
        /// How many.
        len: u64,
    },
    /// What became of a bind or unbind: 0, or why not.
    Answer(u8),
    /// What was awaited under this number is so.
    Came(u64),
    /// A bind was refused: a binding of that node is in the way.
    Taken(NodeId),
    /// Another port sends by a direct ring from now on: the one of this number.
    Direct(u64),
    /// Another port has its connections with this one go by a trunk from now on: the one of this number.
    Trunk(u64),
    /// A buffer that was handed over under this number is the client's again, and nothing more is to be said of its message.
    GivenBack(u64),
    /// An exclusive binding was taken back.
    Unbound {
        /// What was bound.
        range: ServiceRange,
        /// Whose binding is there instead.
        by: NodeId,
    },
    /// Somebody wants a connection.
    Request {
        /// Names it.
        id: ConnectionId,
        /// Who asks.
        from: PortAddress,
        /// The service that was addressed.
        service: Option<ServiceAddress>,
        /// It is to carry a stream of bytes.
        stream: bool,
        /// Class of its messages.
        class: Class,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// A connection was asked for.
    Connecting {
        /// From the command.
        cookie: u64,
        /// Names it.
        id: ConnectionId,
        /// Who is asked.
        peer: PortAddress,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// A connection could not be asked for.
    NotConnecting {
        /// From the command.
        cookie: u64,
        /// Why.
        why: NotConnecting,
    },
    /// A connection was accepted.
    Connected {
        /// Which.
        id: ConnectionId,
        /// By whom.
        peer: PortAddress,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// More may be sent on a connection.
    Credit {
        /// Which.
        id: ConnectionId,
        /// What may be sent on it in all, bytes and messages.
        credit: (u64, u64),
    },
    /// A connection ended, in part or whole.
    Ended {
        /// Which.
        id: ConnectionId,
        /// How.
        how: Ended,
    },
}

/// Why a connection could not be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NotConnecting {
    /// Nobody has bound the service.
    NoService = 1,
    /// The node is unknown or unreachable.
    NoNode = 2,
    /// The node does not know of connections.
    Unsupported = 3,
    /// There are too many connections with that node.
    TooMany = 4,
    /// Too much is under way: ask again later.
    Blocked = 5,
    /// The command made no sense, or the port is closed.
    Invalid = 6,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ended {
    /// The other side has sent all, and it is here.
    SentAll = 1,
    /// The other side receives no more.
    Deaf = 2,
    /// Too many waited to be accepted.
    Backlog = 3,
    /// Nobody listens there.
    NobodyListens = 4,
    /// The other side does not want it.
    NotAllowed = 5,
    /// The other side gave it up.
    Aborted = 6,
    /// The other node was lost, or left.
    NodeLost = 7,
}

impl From<ConnectError> for NotConnecting {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::NoService(_) => NotConnecting::NoService,
            ConnectError::NoNode(_) => NotConnecting::NoNode,
            ConnectError::Unsupported(_) => NotConnecting::Unsupported,
            ConnectError::TooMany => NotConnecting::TooMany,
            ConnectError::Blocked => NotConnecting::Blocked,
            _ => NotConnecting::Invalid,
        }
    }
}

impl From<ConnectionOver> for Ended {
    fn from(over: ConnectionOver) -> Self {
        match over {
            ConnectionOver::Refused(RefusedConnect::Backlog) => Ended::Backlog,
            ConnectionOver::Refused(RefusedConnect::NobodyListens) => Ended::NobodyListens,
            ConnectionOver::Refused(RefusedConnect::NotAllowed) => Ended::NotAllowed,
            ConnectionOver::NodeLost => Ended::NodeLost,
            _ => Ended::Aborted,
        }
    }
}

/// Why a message failed, as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FailureCode {
    /// The port does not exist.
    NoPort = 1,
    /// Nobody has bound the service.
    NoService = 2,
    /// The node is unknown or unreachable.
    NoNode = 3,
    /// Larger than its receiver takes, or than the protocol allows.
    TooLarge = 4,
    /// It may or may not have arrived.
    Indeterminate = 5,
    /// It did not arrive.
    NotSent = 6,
    /// The command made no sense.
    Invalid = 7,
    /// Its time was up before anything of it had left.
    Expired = 8,
    /// There is no room for one more flow towards its destination.
    Overload = 9,
    /// Its port closed before it was read.
    ShutDown = 10,
}

impl From<Failure> for FailureCode {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoPort => FailureCode::NoPort,
            Failure::TooLarge => FailureCode::TooLarge,
            Failure::NotSent => FailureCode::NotSent,
            Failure::Expired => FailureCode::Expired,
            Failure::ShutDown => FailureCode::ShutDown,
            _ => FailureCode::Indeterminate,
        }
    }
}
