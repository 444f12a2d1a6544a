//! What a call can refuse, and what becomes of a message that could not be delivered.

use crate::address::ServiceAddress;
use crate::id::{LinkId, NodeId, PortId};
use crate::wire::RefusedConnect;
use serde::{Deserialize, Serialize};

/// Why `send` did not take a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The sending port does not exist (any more).
    #[error("port {0}: closed")]
    Closed(PortId),
    /// Nobody has bound the service.
    #[error("service {0}: nobody has bound it")]
    NoService(ServiceAddress),
    /// No session with that node.
    #[error("node {0}: unknown or unreachable")]
    NoNode(NodeId),
    /// Larger than the protocol allows.
    #[error("message of {0} bytes: too large")]
    TooLarge(u64),
    /// The connection is over, or its sending half is.
    #[error("not connected")]
    NotConnected,
    /// The node does not know of messages to several.
    #[error("node {0}: of a version that takes no messages to several")]
    Unsupported(NodeId),
    /// As many flows lead to that node as there may be.
    #[error("node {0}: too many flows lead there")]
    Overload(NodeId),
    /// Its time was up before it was handed in.
    #[error("its time is up")]
    Expired,
}

/// Why an operator's word for a link was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LinkSetError {
    /// No session with that node.
    #[error("node {0}: no session with it")]
    NoNode(NodeId),
    /// The session has no such link.
    #[error("node {0}: no link {1} to it")]
    NoLink(NodeId, LinkId),
    /// Messages would have no link to go by any more.
    #[error(
        "link {1}: no other link to node {0} could take its messages: each is down or drained, so they would wait; \
         make one of them active first, or make this one standby"
    )]
    LastLink(NodeId, LinkId),
    /// A link is down because it is, not because somebody wants it so.
    #[error("link {1} to node {0}: nobody can set it down; drain it instead")]
    Down(NodeId, LinkId),
    /// The peer has not confirmed what it was told before.
    #[error("node {0}: it has yet to confirm too much of what it was told; try again")]
    Busy(NodeId),
}

/// Why a connection could not even be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The port does not exist (any more).
    #[error("port {0}: closed")]
    Closed(PortId),
    /// Nobody has bound the service.
    #[error("service {0}: nobody has bound it")]
    NoService(ServiceAddress),
    /// No session with that node.
    #[error("node {0}: unknown or unreachable")]
    NoNode(NodeId),
    /// The node does not know of connections.
    #[error("node {0}: takes no connections")]
    Unsupported(NodeId),
    /// The session has as many connections as there may be.
    #[error("too many connections with that node")]
    TooMany,
    /// Too much is under way to that node: ask again when some of it was confirmed.
    #[error("too much is under way to that node")]
    Blocked,
}

/// Why a connection is over before both sides had enough of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionOver {
    /// The other side did not accept it.
    Refused(RefusedConnect),
    /// The other side gave it up.
    Aborted,
    /// The other node was lost, or left.
    NodeLost,
}

/// Why an accepted message was not delivered, or may not have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The destination port does not exist.
    NoPort,
    /// The destination port does not take messages of that size.
    TooLarge,
    /// The peer was lost before it confirmed: the message may or may not have arrived.
    Indeterminate,
    /// The peer was lost or the port closed before any byte was sent: the message did not arrive.
    NotSent,
    /// Its time was up before any byte was sent: the message did not arrive.
    Expired,
    /// The destination port closed before the message was read.
    ShutDown,
}

/// Why a port operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No such port.
    #[error("port {0}: closed")]
    Closed(PortId),
    /// All port numbers are taken.
    #[error("no port number is free")]
    Exhausted,
}

/// What a peer did against the protocol; counted, and the packet or the session is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// A message number beyond the window.
    BeyondWindow,
    /// More than was granted.
    BeyondCredit,
    /// A fragment that contradicts an earlier one.
    Inconsistent,
    /// A transfer that does not exist.
    UnknownTransfer,
    /// A control number beyond the window.
    BeyondControlWindow,
    /// An acknowledgement of a packet that was never sent.
    AckOfUnsent,
    /// More flows, transfers or links than allowed.
    TooMany,
}
