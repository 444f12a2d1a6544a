//! Entries of the submission and completion queues: 64 bytes each, the same for embedded and attached clients.

use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::error::Failure;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{NodeId, PortAddress, PortId};
use polyrail_proto::node::Destination;
use polyrail_shm::Entry;

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

/// From a client to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Send a message.
    Send {
        /// Where to.
        to: Destination,
        /// Class.
        class: Class,
        /// Tag.
        tag: Option<u64>,
        /// Its bytes.
        body: Body,
        /// How many.
        len: u64,
        /// Comes back if it fails.
        cookie: u64,
    },
    /// Bind to a range of services, with a share among the bindings of one service; answered by `Answer`.
    Bind(ServiceRange, Scope, u8),
    /// Take a binding back; answered by `Answer`.
    Unbind(ServiceRange, Scope),
    /// Memory for an offered message.
    Accept {
        /// The offer.
        offer: (u32, u32),
        /// Number of the buffer in the exchange.
        buffer: u64,
    },
}

/// From the engine to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A message arrived.
    Message {
        /// Who sent it.
        from: PortAddress,
        /// The service that was addressed.
        service: Option<ServiceAddress>,
        /// The sender's tag.
        tag: Option<u64>,
        /// Class.
        class: Class,
        /// Its bytes.
        body: Body,
        /// How many.
        len: u64,
    },
    /// A message wants to come and finds no memory.
    Offer {
        /// Who sends it.
        from: PortAddress,
        /// How many bytes.
        len: u64,
        /// Names it.
        offer: (u32, u32),
    },
    /// A message was not delivered, or may not have been.
    Failed {
        /// Its cookie.
        cookie: u64,
        /// Why.
        why: FailureCode,
    },
    /// What became of a bind or unbind: 0, or why not.
    Answer(u8),
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
}

impl From<Failure> for FailureCode {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoPort => FailureCode::NoPort,
            Failure::TooLarge => FailureCode::TooLarge,
            Failure::NotSent => FailureCode::NotSent,
            _ => FailureCode::Indeterminate,
        }
    }
}

const OP_SEND: u64 = 1;
const OP_BIND: u64 = 2;
const OP_UNBIND: u64 = 3;
const OP_ACCEPT: u64 = 4;
const OP_MESSAGE: u64 = 16;
const OP_OFFER: u64 = 17;
const OP_FAILED: u64 = 18;
const OP_ANSWER: u64 = 19;

const EXCHANGED: u64 = 1 << 16;
const TAGGED: u64 = 1 << 17;
const SERVICE: u64 = 1 << 18;
const SPACED: u64 = 1 << 19;

fn body_parts(body: Body) -> (u64, u64) {
    match body {
        Body::Arena(offset) => (0, offset),
        Body::Spaced(offset) => (SPACED, offset),
        Body::Exchanged(number) => (EXCHANGED, number),
    }
}

fn body_of(flags: u64, value: u64) -> Body {
    match flags & (EXCHANGED | SPACED) {
        0 => Body::Arena(value),
        SPACED => Body::Spaced(value),
        _ => Body::Exchanged(value),
    }
}

fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn unpair(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Command {
    /// As an entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Command::Send { to, class, tag, body, len, cookie } => {
                let (flags, value) = body_parts(body);
                let tagged = if tag.is_some() { TAGGED } else { 0 };
                let (service, node, port) = match to {
                    Destination::Port(to) => (0, to.node.0, to.port.0 as u64),
                    Destination::Service(s) => (SERVICE, 0, pair(s.kind, s.instance)),
                };
                let head = OP_SEND | (class as u64) << 8 | flags | tagged | service;
                [head, node, port, value, len, tag.unwrap_or(0), cookie, 0]
            }
            Command::Bind(range, scope, weight) => Self::encode_range(OP_BIND, range, scope, weight),
            Command::Unbind(range, scope) => Self::encode_range(OP_UNBIND, range, scope, 0),
            Command::Accept { offer, buffer } => [OP_ACCEPT, pair(offer.0, offer.1), buffer, 0, 0, 0, 0, 0],
        }
    }

    fn encode_range(op: u64, range: ServiceRange, scope: Scope, weight: u8) -> Entry {
        let (kind, instances) = (pair(range.kind, scope as u32), pair(range.lower, range.upper));
        [op, kind, instances, weight as u64, 0, 0, 0, 0]
    }

    /// From an entry that a client wrote, which may be anything.
    pub fn decode(entry: &Entry) -> Option<Command> {
        let head = entry[0];
        let range = || {
            let (kind, scope) = unpair(entry[1]);
            let (lower, upper) = unpair(entry[2]);
            let scope = if scope == Scope::Node as u32 { Scope::Node } else { Scope::Cluster };
            (ServiceRange::new(kind, lower, upper), scope)
        };
        Some(match head & 0xff {
            OP_SEND => {
                let (a, b) = unpair(entry[2]);
                let to = if head & SERVICE != 0 {
                    Destination::Service(ServiceAddress::new(a, b))
                } else {
                    Destination::Port(PortAddress { node: NodeId(entry[1]), port: PortId(b) })
                };
                Command::Send {
                    to,
                    class: Class::from_bits((head >> 8) as u8),
                    tag: (head & TAGGED != 0).then_some(entry[5]),
                    body: body_of(head, entry[3]),
                    len: entry[4],
                    cookie: entry[6],
                }
            }
            OP_BIND => Command::Bind(range().0, range().1, entry[3] as u8),
            OP_UNBIND => Command::Unbind(range().0, range().1),
            OP_ACCEPT => Command::Accept { offer: unpair(entry[1]), buffer: entry[2] },
            _ => return None,
        })
    }
}

impl Completion {
    /// As an entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Completion::Message { from, service, tag, class, body, len } => {
                let (flags, value) = body_parts(body);
                let tagged = if tag.is_some() { TAGGED } else { 0 };
                let addressed = if service.is_some() { SERVICE } else { 0 };
                let s = service.unwrap_or_default();
                let head = OP_MESSAGE | (class as u64) << 8 | flags | tagged | addressed;
                [
                    head,
                    from.node.0,
                    from.port.0 as u64,
                    value,
                    len,
                    tag.unwrap_or(0),
                    pair(s.kind, s.instance),
                    0,
                ]
            }
            Completion::Offer { from, len, offer } => {
                [OP_OFFER, from.node.0, from.port.0 as u64, pair(offer.0, offer.1), len, 0, 0, 0]
            }
            Completion::Failed { cookie, why } => [OP_FAILED, cookie, why as u64, 0, 0, 0, 0, 0],
            Completion::Answer(code) => [OP_ANSWER, code as u64, 0, 0, 0, 0, 0, 0],
        }
    }

    /// From an entry that the engine wrote.
    #[inline]
    pub fn decode(entry: &Entry) -> Option<Completion> {
        let head = entry[0];
        let from = || PortAddress { node: NodeId(entry[1]), port: PortId(entry[2] as u32) };
        Some(match head & 0xff {
            OP_MESSAGE => {
                let (kind, instance) = unpair(entry[6]);
                Completion::Message {
                    from: from(),
                    service: (head & SERVICE != 0).then_some(ServiceAddress { kind, instance }),
                    tag: (head & TAGGED != 0).then_some(entry[5]),
                    class: Class::from_bits((head >> 8) as u8),
                    body: body_of(head, entry[3]),
                    len: entry[4],
                }
            }
            OP_OFFER => Completion::Offer { from: from(), len: entry[4], offer: unpair(entry[3]) },
            OP_FAILED => Completion::Failed { cookie: entry[1], why: code_of(entry[2]) },
            OP_ANSWER => Completion::Answer(entry[1] as u8),
            _ => return None,
        })
    }
}

fn code_of(value: u64) -> FailureCode {
    use FailureCode::*;
    [NoPort, NoService, NoNode, TooLarge, Indeterminate, NotSent]
        .into_iter()
        .find(|c| *c as u64 == value)
        .unwrap_or(Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_completions_survive_their_entries() {
        let to = PortAddress { node: NodeId(0xdead_beef_0000_0001), port: PortId(77) };
        let service = ServiceAddress::new(1000, 7);
        for command in [
            Command::Send {
                to: Destination::Port(to),
                class: Class::Bulk,
                tag: None,
                body: Body::Arena(4096),
                len: 12,
                cookie: 3,
            },
            Command::Send {
                to: Destination::Port(to),
                class: Class::Normal,
                tag: None,
                body: Body::Spaced(65_536),
                len: 1 << 20,
                cookie: 4,
            },
            Command::Send {
                to: Destination::Service(service),
                class: Class::Urgent,
                tag: Some(9),
                body: Body::Exchanged(5),
                len: 1 << 30,
                cookie: 4,
            },
            Command::Bind(ServiceRange::new(100, 1, 9), Scope::Node, 200),
            Command::Unbind(ServiceRange::new(100, 1, 9), Scope::Cluster),
            Command::Accept { offer: (7, 8), buffer: 9 },
        ] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
        for completion in [
            Completion::Message {
                from: to,
                service: Some(service),
                tag: Some(1),
                class: Class::Normal,
                body: Body::Arena(64),
                len: 0,
            },
            Completion::Offer { from: to, len: 1 << 33, offer: (1, u32::MAX) },
            Completion::Failed { cookie: 12, why: FailureCode::NoService },
            Completion::Answer(2),
        ] {
            assert_eq!(Completion::decode(&completion.encode()), Some(completion));
        }
    }

    #[test]
    fn nonsense_is_no_command() {
        assert_eq!(Command::decode(&[0; 8]), None);
        assert_eq!(Command::decode(&[u64::MAX; 8]), None);
    }
}
