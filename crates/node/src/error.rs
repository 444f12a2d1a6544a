//! Public errors, one small enum per operation, each with a stable code.

use crate::engine::command::{Ended, FailureCode};
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::node::Destination;
use std::io;

/// Stable numbers of all public errors: exit codes and bindings to other languages use them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A setting is wrong.
    Config = 10,
    /// Nothing was said about security.
    Security = 11,
    /// No interface to use.
    NoBearer = 12,
    /// A system call failed.
    System = 13,
    /// The port or node is closed.
    Closed = 20,
    /// The process forked: the node belongs to its parent.
    Forked = 21,
    /// Time is up.
    TimedOut = 22,
    /// It would have to wait.
    WouldBlock = 23,
    /// Nobody has bound the service.
    NoService = 30,
    /// The node is unknown or unreachable.
    NoNode = 31,
    /// The port does not exist.
    NoPort = 32,
    /// Too large.
    TooLarge = 33,
    /// It may or may not have arrived.
    Indeterminate = 34,
    /// It did not arrive.
    NotSent = 35,
    /// No memory left within the limits set.
    Memory = 36,
    /// As much is under way to its destination as there may be.
    Overload = 37,
    /// Its time was up before anything of it had left.
    Expired = 38,
    /// The port closed before it was read.
    ShutDown = 39,
    /// A service range is reserved or makes no sense.
    Range = 40,
    /// The binding does not exist.
    NotBound = 41,
    /// Too many bindings or subscriptions.
    TooMany = 42,
    /// Somebody else has bound the service.
    Taken = 43,
    /// This user may not.
    NotPermitted = 44,
    /// A connection was refused.
    Refused = 50,
    /// A connection is over.
    Disconnected = 51,
    /// The other side does not know of it, or it is not for such a destination.
    Unsupported = 52,
    /// There is no such link.
    NoLink = 60,
    /// No other link could take its messages.
    LastLink = 61,
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// Nothing was said about security.
    #[error(
        "security: nothing authenticates a peer yet, so whoever reaches the port is believed; \
         say so with `security = \"none\"`, `Config::insecure()` or `--insecure`"
    )]
    Security,
    /// No interface to use.
    #[error("interfaces: {0}")]
    NoBearer(String),
    /// A node of another process could not be attached to.
    #[error("attach to {}: {why}", path.display())]
    Attach {
        /// Its socket.
        path: std::path::PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// It would be more than the node, or this program's user, may have; the message says what it is, and what to do.
    #[error("{0}")]
    Limit(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a message was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Nobody has bound the service.
    #[error("service {service}: nobody has bound it; bound now: {bound}")]
    NoService {
        /// The service.
        service: ServiceAddress,
        /// What is bound instead.
        bound: String,
    },
    /// The node is unknown or unreachable.
    #[error("{0:?}: node unknown or unreachable")]
    NoNode(Destination),
    /// Larger than a message may be.
    #[error("message of {len} bytes: larger than {max}")]
    TooLarge {
        /// Its bytes.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// No memory within the limits set.
    #[error("no memory for {0} bytes; raise `memory` or wait for messages to be confirmed")]
    Memory(u64),
    /// It would have to wait for memory (`try_send`), or the time given is up.
    #[error("blocked: the receiver or the links take no more now")]
    Blocked,
    /// An earlier message of this port failed; it is told once. The message of this call was not taken.
    #[error("message {number} of this port failed: {why:?}")]
    Earlier {
        /// Count of messages sent before it.
        number: u64,
        /// Why.
        why: ErrorCode,
    },
    /// The connection is over, or the other side receives no more.
    #[error("connection: {0}")]
    Disconnected(Disconnect),
    /// Only what goes to one port or service comes back or expires.
    #[error("{0:?}: what goes to several or on a connection neither comes back nor expires")]
    Unsupported(Destination),
    /// The port or node is closed.
    #[error("closed")]
    Closed,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why not all messages of one call were taken: those before are under way, and none behind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{taken} messages were taken, then: {why}")]
pub struct SendEachError {
    /// How many were taken, and so the index of the one that was not.
    pub taken: usize,
    /// Why that one was not taken.
    pub why: SendError,
}

/// What ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Disconnect {
    /// Too many connections waited to be accepted.
    #[error("refused, too many wait there to be accepted; try again, or give that port a larger backlog")]
    Backlog,
    /// Nobody listens at that port.
    #[error("refused, nobody listens there; has that port called listen?")]
    NobodyListens,
    /// The other side did not want it.
    #[error("refused by the other side")]
    NotAllowed,
    /// The other side gave it up.
    #[error("given up by the other side")]
    Aborted,
    /// The other node was lost, or left.
    #[error("the other node is gone")]
    NodeLost,
    /// The other side receives no more.
    #[error("the other side receives no more")]
    Deaf,
}

/// Why a connection did not come about, or gave nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// It is over.
    #[error("connection: {0}")]
    Disconnected(Disconnect),
    /// Nobody has bound the service.
    #[error("service {service}: nobody has bound it; bound now: {bound}")]
    NoService {
        /// The service.
        service: ServiceAddress,
        /// What is bound instead.
        bound: String,
    },
    /// The node is unknown or unreachable.
    #[error("{0:?}: node unknown or unreachable")]
    NoNode(Destination),
    /// The node is of a version without connections.
    #[error("that node takes no connections: it is of an older version")]
    Unsupported,
    /// There are too many connections with that node.
    #[error("too many connections with that node")]
    TooMany,
    /// A message that leaves with the question may not be so large.
    #[error("the first message is larger than {max} bytes: send it once the connection is there")]
    FirstTooLarge {
        /// What is allowed.
        max: u64,
    },
    /// The other side has sent all, and it was less than asked for.
    #[error("the other side has ended it before that")]
    Ended,
    /// Time is up.
    #[error("timed out")]
    TimedOut,
    /// The node could not open a port for it.
    #[error("port: {0}")]
    Port(String),
    /// A message is larger than `message_bytes_max`.
    #[error("message of {len} bytes: larger than message_bytes_max ({max})")]
    TooLarge {
        /// Its bytes.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// No memory within the limits set.
    #[error("no memory for a message of {0} bytes")]
    Memory(u64),
    /// The port or node is closed.
    #[error("closed")]
    Closed,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

impl From<Ended> for Disconnect {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Backlog => Disconnect::Backlog,
            Ended::NobodyListens => Disconnect::NobodyListens,
            Ended::NotAllowed => Disconnect::NotAllowed,
            Ended::NodeLost => Disconnect::NodeLost,
            Ended::Deaf => Disconnect::Deaf,
            Ended::Aborted | Ended::SentAll => Disconnect::Aborted,
        }
    }
}

impl ConnectionError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            ConnectionError::Disconnected(why) => why.code(),
            ConnectionError::NoService { .. } => ErrorCode::NoService,
            ConnectionError::NoNode(_) => ErrorCode::NoNode,
            ConnectionError::Unsupported => ErrorCode::Unsupported,
            ConnectionError::TooMany => ErrorCode::TooMany,
            ConnectionError::FirstTooLarge { .. } | ConnectionError::TooLarge { .. } => ErrorCode::TooLarge,
            ConnectionError::Ended => ErrorCode::Disconnected,
            ConnectionError::TimedOut => ErrorCode::TimedOut,
            ConnectionError::Port(_) => ErrorCode::System,
            ConnectionError::Memory(_) => ErrorCode::Memory,
            ConnectionError::Closed => ErrorCode::Closed,
            ConnectionError::Forked => ErrorCode::Forked,
        }
    }
}

impl Disconnect {
    /// Its stable number.
    pub fn code(self) -> ErrorCode {
        match self {
            Disconnect::Backlog | Disconnect::NobodyListens | Disconnect::NotAllowed => ErrorCode::Refused,
            Disconnect::Aborted | Disconnect::NodeLost | Disconnect::Deaf => ErrorCode::Disconnected,
        }
    }
}

impl From<StartError> for ConnectionError {
    fn from(error: StartError) -> Self {
        ConnectionError::Port(error.to_string())
    }
}

impl From<ConnectionError> for io::Error {
    fn from(error: ConnectionError) -> Self {
        let kind = match error.code() {
            ErrorCode::Refused => io::ErrorKind::ConnectionRefused,
            ErrorCode::Disconnected => io::ErrorKind::ConnectionReset,
            ErrorCode::TimedOut => io::ErrorKind::TimedOut,
            ErrorCode::NoService | ErrorCode::NoNode => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// Why nothing was received.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// A message is larger than `message_bytes_max`: raise it, or accept the offer with `Port::recv_into_buffer`.
    #[error("message of {len} bytes: larger than message_bytes_max ({max})")]
    TooLarge {
        /// Its bytes.
        len: u64,
        /// What is allowed.
        max: u64,
    },
    /// No memory within the limits set.
    #[error("no memory for a message of {0} bytes")]
    Memory(u64),
    /// The port or node is closed.
    #[error("closed")]
    Closed,
    /// A binding of [`Port::bind_exclusive`](crate::Port::bind_exclusive) met another that was made at the same time, and
    /// was taken back. The port goes on: bind again, or receive on.
    #[error("no longer bound to {range}: node {by} has bound it too")]
    Unbound {
        /// What was bound.
        range: polyrail_proto::address::ServiceRange,
        /// Whose binding is there instead.
        by: polyrail_proto::id::NodeId,
    },
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why a binding was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Types below 64 belong to the system.
    #[error("service types below 64 are reserved")]
    Reserved,
    /// The lower bound is above the upper one.
    #[error("lower bound above upper bound")]
    Inverted,
    /// The table is full.
    #[error("too many bindings")]
    TooMany,
    /// The range is to have one binding only, by its own wish or that of another, and there would be two.
    #[error("taken by node {by}")]
    Taken {
        /// Whose binding is in the way.
        by: polyrail_proto::id::NodeId,
    },
    /// This program's user may not bind services of that type.
    #[error("this user may not bind services of this type; the node's settings say who may (`[rights]`)")]
    NotPermitted,
    /// This program's user has bound as many names as it may.
    #[error(
        "this user has bound as many names on this node as it may; unbind some, or have `names` raised in the node's settings"
    )]
    Limit,
    /// No such binding.
    #[error("not bound")]
    NotBound,
    /// The port or node is closed.
    #[error("closed")]
    Closed,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why a subscription was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The lower bound is above the upper one.
    #[error("lower bound above upper bound")]
    Inverted,
    /// The node has as many as it may have.
    #[error("too many subscriptions")]
    TooMany,
    /// A system call failed.
    #[error("{0}")]
    System(String),
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why a subscription gives no more updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// Its time is up, as its last update said.
    #[error("the subscription is over")]
    Over,
    /// The node is closed.
    #[error("closed")]
    Closed,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why what was wanted of a link was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkSetError {
    /// There is no such link, or it may not be set so.
    #[error(transparent)]
    Refused(#[from] polyrail_proto::error::LinkSetError),
    /// The node, of another process, is gone.
    #[error("closed: the node is gone")]
    Closed,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

/// Why a node's limits stayed as they were.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The node is another process's.
    #[error(
        "the limits of a node are its own program's to set; `polyrail node --config FILE` reads its file again at SIGHUP"
    )]
    NotOwn,
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

impl From<polyrail_proto::service::SubscribeError> for SubscribeError {
    fn from(error: polyrail_proto::service::SubscribeError) -> Self {
        match error {
            polyrail_proto::service::SubscribeError::Inverted => SubscribeError::Inverted,
            _ => SubscribeError::TooMany,
        }
    }
}

/// More than there may be, in words: how it passes where errors are the system's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TooMuch(pub String);

impl StartError {
    /// Of what was tried and failed.
    pub(crate) fn of(what: impl Into<String>, error: io::Error) -> StartError {
        match error.downcast::<TooMuch>() {
            Ok(TooMuch(message)) => StartError::Limit(message),
            Err(source) => StartError::System { what: what.into(), source },
        }
    }
}

impl From<polyrail_proto::service::Over> for UpdateError {
    fn from(_: polyrail_proto::service::Over) -> Self {
        UpdateError::Over
    }
}

/// Why waiting ended without success.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Time is up.
    #[error("timed out{0}")]
    TimedOut(String),
    /// A message failed meanwhile.
    #[error("message {number} of this port failed: {why:?}")]
    Failed {
        /// Count of messages sent before it.
        number: u64,
        /// Why.
        why: ErrorCode,
    },
    /// A system call failed.
    #[error("{0}")]
    System(String),
    /// The process forked: the node belongs to its parent.
    #[error("forked: a node belongs to the process that started it; start another in the child")]
    Forked,
}

impl From<FailureCode> for ErrorCode {
    fn from(code: FailureCode) -> Self {
        match code {
            FailureCode::NoPort => ErrorCode::NoPort,
            FailureCode::NoService => ErrorCode::NoService,
            FailureCode::NoNode => ErrorCode::NoNode,
            FailureCode::TooLarge => ErrorCode::TooLarge,
            FailureCode::Indeterminate => ErrorCode::Indeterminate,
            FailureCode::NotSent | FailureCode::Invalid => ErrorCode::NotSent,
            FailureCode::Expired => ErrorCode::Expired,
            FailureCode::Overload => ErrorCode::Overload,
            FailureCode::ShutDown => ErrorCode::ShutDown,
        }
    }
}

impl StartError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            StartError::Config(_) => ErrorCode::Config,
            StartError::Security => ErrorCode::Security,
            StartError::NoBearer(_) => ErrorCode::NoBearer,
            StartError::Attach { .. } => ErrorCode::NoNode,
            StartError::Limit(_) => ErrorCode::TooMany,
            StartError::System { .. } => ErrorCode::System,
        }
    }
}

impl SendError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            SendError::NoService { .. } => ErrorCode::NoService,
            SendError::NoNode(_) => ErrorCode::NoNode,
            SendError::TooLarge { .. } => ErrorCode::TooLarge,
            SendError::Memory(_) => ErrorCode::Memory,
            SendError::Blocked => ErrorCode::WouldBlock,
            SendError::Earlier { why, .. } => *why,
            SendError::Disconnected(why) => why.code(),
            SendError::Unsupported(_) => ErrorCode::Unsupported,
            SendError::Closed => ErrorCode::Closed,
            SendError::Forked => ErrorCode::Forked,
        }
    }
}

impl RecvError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            RecvError::TooLarge { .. } => ErrorCode::TooLarge,
            RecvError::Memory(_) => ErrorCode::Memory,
            RecvError::Unbound { .. } => ErrorCode::Taken,
            RecvError::Closed => ErrorCode::Closed,
            RecvError::Forked => ErrorCode::Forked,
        }
    }
}

impl BindError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            BindError::Reserved | BindError::Inverted => ErrorCode::Range,
            BindError::TooMany | BindError::Limit => ErrorCode::TooMany,
            BindError::NotPermitted => ErrorCode::NotPermitted,
            BindError::Taken { .. } => ErrorCode::Taken,
            BindError::NotBound => ErrorCode::NotBound,
            BindError::Closed => ErrorCode::Closed,
            BindError::Forked => ErrorCode::Forked,
        }
    }
}

impl SubscribeError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            SubscribeError::Inverted => ErrorCode::Range,
            SubscribeError::TooMany => ErrorCode::TooMany,
            SubscribeError::System(_) => ErrorCode::System,
            SubscribeError::Forked => ErrorCode::Forked,
        }
    }
}

impl LinkSetError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        use polyrail_proto::error::LinkSetError as Core;
        match self {
            LinkSetError::Refused(Core::NoNode(_)) => ErrorCode::NoNode,
            LinkSetError::Refused(Core::NoLink(..)) => ErrorCode::NoLink,
            LinkSetError::Refused(Core::LastLink(..)) => ErrorCode::LastLink,
            LinkSetError::Refused(Core::Busy(_)) => ErrorCode::WouldBlock,
            LinkSetError::Refused(_) => ErrorCode::Unsupported,
            LinkSetError::Closed => ErrorCode::Closed,
            LinkSetError::Forked => ErrorCode::Forked,
        }
    }
}

impl LimitsError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            LimitsError::Config(_) => ErrorCode::Config,
            LimitsError::NotOwn => ErrorCode::NotPermitted,
            LimitsError::Forked => ErrorCode::Forked,
        }
    }
}

impl UpdateError {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            UpdateError::Over | UpdateError::Closed => ErrorCode::Closed,
            UpdateError::Forked => ErrorCode::Forked,
        }
    }
}

impl Error {
    /// Its stable number.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::TimedOut(_) => ErrorCode::TimedOut,
            Error::Failed { why, .. } => *why,
            Error::System(_) => ErrorCode::System,
            Error::Forked => ErrorCode::Forked,
        }
    }
}
