//! How commands and completions lie in the entries of the queues: a head of operation, class and flags, then seven words.

use super::{Awaited, Body, Command, Completion, Ended, FailureCode, NotConnecting};
use crate::engine::client::Envelope;
use polyrail_proto::address::{Scope, ServiceAddress, ServiceRange};
use polyrail_proto::config::Policy;
use polyrail_proto::flow::Class;
use polyrail_proto::id::{ConnectionId, NodeId, PortAddress, PortId, SessionId};
use polyrail_proto::node::{Destination, Manner};
use polyrail_proto::service::Lookup;
use polyrail_proto::time::Instant;
use polyrail_shm::Entry;

const OP_SEND: u64 = 1;
const OP_BIND: u64 = 2;
const OP_UNBIND: u64 = 3;
const OP_ACCEPT: u64 = 4;
const OP_LISTEN: u64 = 5;
const OP_CONNECT: u64 = 6;
const OP_TAKE: u64 = 7;
const OP_SHUT_DOWN: u64 = 8;
const OP_CONSUMED: u64 = 9;
const OP_BIND_EXCLUSIVE: u64 = 10;
const OP_LOOKUP: u64 = 11;
const OP_POLICY: u64 = 12;
const OP_AWAIT: u64 = 13;
const OP_FORGET: u64 = 14;
const OP_END_DIRECT: u64 = 15;
const OP_MESSAGE: u64 = 16;
const OP_OFFER: u64 = 17;
const OP_FAILED: u64 = 18;
const OP_ANSWER: u64 = 19;
const OP_REQUEST: u64 = 20;
const OP_CONNECTING: u64 = 21;
const OP_NOT_CONNECTING: u64 = 22;
const OP_CONNECTED: u64 = 23;
const OP_ENDED: u64 = 24;
const OP_CREDIT: u64 = 25;
const OP_TAKEN: u64 = 26;
const OP_UNBOUND: u64 = 27;
const OP_RETURNED: u64 = 28;
const OP_CAME: u64 = 29;
const OP_GIVEN_BACK: u64 = 30;
const OP_DIRECT: u64 = 31;
const OP_TRUNK: u64 = 33;

const EXCHANGED: u64 = 1 << 16;
const TAGGED: u64 = 1 << 17;
const SERVICE: u64 = 1 << 18;
const SPACED: u64 = 1 << 19;
const CONNECTED: u64 = 1 << 20;
const STREAM: u64 = 1 << 21;
const FIRST: u64 = 1 << 22;
const LAST: u64 = 1 << 23;
const SENT_ALL: u64 = 1 << 24;
const DEAF: u64 = 1 << 25;
const SEVERAL: u64 = 1 << 26;
const RETURNS: u64 = 1 << 27;
const NOTIFY: u64 = 1 << 28;
/// Where the reason stands in the head of a returned message.
const WHY_AT: u32 = 32;

fn flag(set: bool, flag: u64) -> u64 {
    if set { flag } else { 0 }
}

/// A connection as a word; 0 is none, for the upper bit of an end is set.
fn word_of(id: Option<ConnectionId>) -> u64 {
    id.map_or(0, |id| pair(id.session.0, id.end.0))
}

fn connection_of(word: u64) -> Option<ConnectionId> {
    let (session, end) = unpair(word);
    (word != 0).then_some(ConnectionId { session: SessionId(session), end: PortId(end) })
}

/// A destination as flags and two words.
fn to_parts(to: Destination) -> (u64, u64, u64) {
    match to {
        Destination::Port(to) => (0, to.node.0, to.port.0 as u64),
        Destination::Service(s) => (SERVICE, 0, pair(s.kind, s.instance)),
        Destination::Connection(id) => (CONNECTED, 0, word_of(Some(id))),
        Destination::Multicast(r) => (SEVERAL, r.kind as u64, pair(r.lower, r.upper)),
    }
}

fn to_of(head: u64, node: u64, word: u64) -> Destination {
    let (a, b) = unpair(word);
    match head & (SERVICE | CONNECTED | SEVERAL) {
        0 => Destination::Port(PortAddress { node: NodeId(node), port: PortId(b) }),
        SERVICE => Destination::Service(ServiceAddress::new(a, b)),
        SEVERAL => Destination::Multicast(ServiceRange::new(node as u32, a, b)),
        _ => Destination::Connection(ConnectionId { session: SessionId(a), end: PortId(b) }),
    }
}

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

/// In the place of a policy: that of the class.
const NO_POLICY: u64 = u64::MAX;

/// Where `one` stands among `all`.
fn place_of<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|each| *each == one).map_or(u64::MAX, |place| place as u64)
}

/// What stands there, if anything does.
fn at_place<T: Copy>(all: &[T], place: u64) -> Option<T> {
    all.get(usize::try_from(place).ok()?).copied()
}

fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn unpair(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Command {
    /// The entry of [`Command::Send`]. Nearly all commands are such, and to make one of each first would cost as much again.
    #[inline(always)]
    pub(in crate::engine) fn encode_send(
        to: Destination,
        how: Manner,
        (body, len): (Body, u64),
        cookie: u64,
    ) -> Entry {
        let Manner { class, tag, returns, expires_at } = how;
        let (flags, value) = body_parts(body);
        let (way, node, word) = to_parts(to);
        let told = flags | way | flag(tag.is_some(), TAGGED) | flag(returns, RETURNS);
        let head = OP_SEND | (class as u64) << 8 | told;
        // The beginning of time has passed, so that no deadline is lost by it.
        let until = expires_at.map_or(0, |at| at.0.max(1));
        [head, node, word, value, len, tag.unwrap_or(0), cookie, until]
    }

    /// As an entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Command::Send { to, how, body, len, cookie } => Self::encode_send(to, how, (body, len), cookie),
            Command::Connect { to, class, stream, first, last, cookie } => {
                let (body, len) = first.unwrap_or((Body::Arena(0), 0));
                let (flags, value) = body_parts(body);
                let (way, node, word) = to_parts(to);
                let kinds = flag(stream, STREAM) | flag(first.is_some(), FIRST) | flag(last, LAST);
                let head = OP_CONNECT | (class as u64) << 8 | flags | way | kinds;
                [head, node, word, value, len, 0, cookie, 0]
            }
            Command::Listen(backlog) => [OP_LISTEN, backlog as u64, 0, 0, 0, 0, 0, 0],
            Command::Take(id) => [OP_TAKE, word_of(Some(id)), 0, 0, 0, 0, 0, 0],
            Command::ShutDown { id, sent_all, deaf } => {
                let head = OP_SHUT_DOWN | flag(sent_all, SENT_ALL) | flag(deaf, DEAF);
                [head, word_of(Some(id)), 0, 0, 0, 0, 0, 0]
            }
            Command::Consumed { id, bytes, messages } => {
                [OP_CONSUMED, word_of(Some(id)), bytes, messages, 0, 0, 0, 0]
            }
            Command::Bind(range, scope, weight) => Self::encode_range(OP_BIND, range, scope, weight),
            Command::BindExclusive(range, scope) => Self::encode_range(OP_BIND_EXCLUSIVE, range, scope, 0),
            Command::Unbind(range, scope) => Self::encode_range(OP_UNBIND, range, scope, 0),
            Command::Accept { offer, buffer } => [OP_ACCEPT, pair(offer.0, offer.1), buffer, 0, 0, 0, 0, 0],
            Command::Lookup(lookup) => [OP_LOOKUP, place_of(&Lookup::ALL, lookup), 0, 0, 0, 0, 0, 0],
            Command::Policy(policy) => {
                let place = policy.map_or(NO_POLICY, |policy| place_of(&Policy::ALL, policy));
                [OP_POLICY, place, 0, 0, 0, 0, 0, 0]
            }
            Command::Await { what: Awaited::Bound(s), number } => {
                [OP_AWAIT | SERVICE, pair(s.kind, s.instance), number, 0, 0, 0, 0, 0]
            }
            Command::Await { what: Awaited::Known, number } => [OP_AWAIT, 0, number, 0, 0, 0, 0, 0],
            Command::Forget => [OP_FORGET, 0, 0, 0, 0, 0, 0, 0],
            Command::EndDirect(number) => [OP_END_DIRECT, number, 0, 0, 0, 0, 0, 0],
        }
    }

    fn encode_range(op: u64, range: ServiceRange, scope: Scope, weight: u8) -> Entry {
        let (kind, instances) = (pair(range.kind, scope as u32), pair(range.lower, range.upper));
        [op, kind, instances, weight as u64, 0, 0, 0, 0]
    }

    /// The message that is sent by an entry that a client wrote, if it is one: where to, how, its body, length and cookie (see
    /// [`Command::encode_send`]).
    #[inline(always)]
    pub(in crate::engine) fn sent_by(entry: &Entry) -> Option<(Destination, Manner, Body, u64, u64)> {
        let head = entry[0];
        if head & 0xff != OP_SEND {
            return None;
        }
        let how = Manner {
            class: Class::from_bits((head >> 8) as u8),
            tag: (head & TAGGED != 0).then_some(entry[5]),
            returns: head & RETURNS != 0,
            expires_at: (entry[7] != 0).then_some(Instant(entry[7])),
        };
        Some((to_of(head, entry[1], entry[2]), how, body_of(head, entry[3]), entry[4], entry[6]))
    }

    /// From an entry that a client wrote, which may be anything.
    pub fn decode(entry: &Entry) -> Option<Command> {
        if let Some((to, how, body, len, cookie)) = Self::sent_by(entry) {
            return Some(Command::Send { to, how, body, len, cookie });
        }
        let head = entry[0];
        let range = || {
            let (kind, scope) = unpair(entry[1]);
            let (lower, upper) = unpair(entry[2]);
            let scope = if scope == Scope::Node as u32 { Scope::Node } else { Scope::Cluster };
            (ServiceRange::new(kind, lower, upper), scope)
        };
        Some(match head & 0xff {
            OP_CONNECT => Command::Connect {
                to: to_of(head, entry[1], entry[2]),
                class: Class::from_bits((head >> 8) as u8),
                stream: head & STREAM != 0,
                first: (head & FIRST != 0).then_some((body_of(head, entry[3]), entry[4])),
                last: head & LAST != 0,
                cookie: entry[6],
            },
            OP_LISTEN => Command::Listen(entry[1].min(u32::MAX as u64) as u32),
            OP_TAKE => Command::Take(connection_of(entry[1])?),
            OP_SHUT_DOWN => Command::ShutDown {
                id: connection_of(entry[1])?,
                sent_all: head & SENT_ALL != 0,
                deaf: head & DEAF != 0,
            },
            OP_CONSUMED => {
                Command::Consumed { id: connection_of(entry[1])?, bytes: entry[2], messages: entry[3] }
            }
            OP_BIND => Command::Bind(range().0, range().1, entry[3] as u8),
            OP_BIND_EXCLUSIVE => Command::BindExclusive(range().0, range().1),
            OP_UNBIND => Command::Unbind(range().0, range().1),
            OP_ACCEPT => Command::Accept { offer: unpair(entry[1]), buffer: entry[2] },
            OP_LOOKUP => Command::Lookup(at_place(&Lookup::ALL, entry[1])?),
            OP_POLICY if entry[1] == NO_POLICY => Command::Policy(None),
            OP_POLICY => Command::Policy(Some(at_place(&Policy::ALL, entry[1])?)),
            OP_AWAIT => {
                let (kind, instance) = unpair(entry[1]);
                let bound = Awaited::Bound(ServiceAddress { kind, instance });
                let what = if head & SERVICE != 0 { bound } else { Awaited::Known };
                Command::Await { what, number: entry[2] }
            }
            OP_FORGET => Command::Forget,
            OP_END_DIRECT => Command::EndDirect(entry[1]),
            _ => return None,
        })
    }
}

impl Completion {
    /// The entry of [`Completion::Message`] (see [`Command::encode_send`]).
    #[inline(always)]
    pub(in crate::engine) fn encode_message(envelope: &Envelope, body: Body) -> Entry {
        let &Envelope { from, connection, service, tag, class, len, notify } = envelope;
        let (flags, value) = body_parts(body);
        let s = service.unwrap_or_default();
        let told = flags | flag(tag.is_some(), TAGGED) | flag(service.is_some(), SERVICE);
        let head = OP_MESSAGE | (class as u64) << 8 | told | flag(notify, NOTIFY);
        let (node, port, service) = (from.node.0, from.port.0 as u64, pair(s.kind, s.instance));
        [head, node, port, value, len, tag.unwrap_or(0), service, word_of(connection)]
    }

    /// As an entry.
    pub fn encode(&self) -> Entry {
        match *self {
            Completion::Message(ref envelope, body) => Self::encode_message(envelope, body),
            Completion::Offer { from, len, offer, connection } => {
                let offer = pair(offer.0, offer.1);
                [OP_OFFER, from.node.0, from.port.0 as u64, offer, len, 0, 0, word_of(connection)]
            }
            Completion::Request { id, from, service, stream, class, credit } => {
                let s = service.unwrap_or_default();
                let kinds = flag(stream, STREAM) | flag(service.is_some(), SERVICE);
                let head = OP_REQUEST | (class as u64) << 8 | kinds;
                let (port, service) = (from.port.0 as u64, pair(s.kind, s.instance));
                [head, from.node.0, port, credit.0, credit.1, 0, service, word_of(Some(id))]
            }
            Completion::Connecting { cookie, id, peer, credit } => {
                let port = peer.port.0 as u64;
                [OP_CONNECTING, peer.node.0, port, credit.0, credit.1, cookie, 0, word_of(Some(id))]
            }
            Completion::NotConnecting { cookie, why } => {
                [OP_NOT_CONNECTING, why as u64, 0, cookie, 0, 0, 0, 0]
            }
            Completion::Connected { id, peer, credit } => {
                let port = peer.port.0 as u64;
                [OP_CONNECTED, peer.node.0, port, credit.0, credit.1, 0, 0, word_of(Some(id))]
            }
            Completion::Credit { id, credit } => {
                [OP_CREDIT, 0, 0, credit.0, credit.1, 0, 0, word_of(Some(id))]
            }
            Completion::Ended { id, how } => [OP_ENDED, how as u64, 0, 0, 0, 0, 0, word_of(Some(id))],
            Completion::Failed { cookie, why } => [OP_FAILED, cookie, why as u64, 0, 0, 0, 0, 0],
            Completion::Returned { cookie, why, to, class, tag, body, len } => {
                let (flags, value) = body_parts(body);
                let (way, node, word) = to_parts(to);
                let told = flags | way | flag(tag.is_some(), TAGGED) | (why as u64) << WHY_AT;
                let head = OP_RETURNED | (class as u64) << 8 | told;
                [head, node, word, value, len, tag.unwrap_or(0), cookie, 0]
            }
            Completion::Answer(code) => [OP_ANSWER, code as u64, 0, 0, 0, 0, 0, 0],
            Completion::Came(number) => [OP_CAME, number, 0, 0, 0, 0, 0, 0],
            Completion::Taken(by) => [OP_TAKEN, by.0, 0, 0, 0, 0, 0, 0],
            Completion::GivenBack(number) => [OP_GIVEN_BACK, number, 0, 0, 0, 0, 0, 0],
            Completion::Direct(number) => [OP_DIRECT, number, 0, 0, 0, 0, 0, 0],
            Completion::Trunk(number) => [OP_TRUNK, number, 0, 0, 0, 0, 0, 0],
            Completion::Unbound { range, by } => {
                [OP_UNBOUND, by.0, range.kind as u64, pair(range.lower, range.upper), 0, 0, 0, 0]
            }
        }
    }

    /// The message that an entry of the engine's tells of, if it does: what is known of it, and where it is.
    #[inline(always)]
    pub(in crate::engine) fn told_by(entry: &Entry) -> Option<(Envelope, Body)> {
        let head = entry[0];
        if head & 0xff != OP_MESSAGE {
            return None;
        }
        let (kind, instance) = unpair(entry[6]);
        let envelope = Envelope {
            from: PortAddress { node: NodeId(entry[1]), port: PortId(entry[2] as u32) },
            connection: connection_of(entry[7]),
            service: (head & SERVICE != 0).then_some(ServiceAddress { kind, instance }),
            tag: (head & TAGGED != 0).then_some(entry[5]),
            class: Class::from_bits((head >> 8) as u8),
            len: entry[4],
            notify: head & NOTIFY != 0,
        };
        Some((envelope, body_of(head, entry[3])))
    }

    /// From an entry that the engine wrote.
    pub fn decode(entry: &Entry) -> Option<Completion> {
        if let Some((envelope, body)) = Self::told_by(entry) {
            return Some(Completion::Message(envelope, body));
        }
        let head = entry[0];
        let from = || PortAddress { node: NodeId(entry[1]), port: PortId(entry[2] as u32) };
        let credit = (entry[3], entry[4]);
        Some(match head & 0xff {
            OP_OFFER => Completion::Offer {
                from: from(),
                len: entry[4],
                offer: unpair(entry[3]),
                connection: connection_of(entry[7]),
            },
            OP_REQUEST => {
                let (kind, instance) = unpair(entry[6]);
                Completion::Request {
                    id: connection_of(entry[7])?,
                    from: from(),
                    service: (head & SERVICE != 0).then_some(ServiceAddress { kind, instance }),
                    stream: head & STREAM != 0,
                    class: Class::from_bits((head >> 8) as u8),
                    credit,
                }
            }
            OP_CONNECTING => Completion::Connecting {
                cookie: entry[5],
                id: connection_of(entry[7])?,
                peer: from(),
                credit,
            },
            OP_NOT_CONNECTING => {
                Completion::NotConnecting { cookie: entry[3], why: not_connecting_of(entry[1]) }
            }
            OP_CONNECTED => Completion::Connected { id: connection_of(entry[7])?, peer: from(), credit },
            OP_CREDIT => Completion::Credit { id: connection_of(entry[7])?, credit },
            OP_ENDED => Completion::Ended { id: connection_of(entry[7])?, how: ended_of(entry[1]) },
            OP_FAILED => Completion::Failed { cookie: entry[1], why: code_of(entry[2]) },
            OP_RETURNED => Completion::Returned {
                cookie: entry[6],
                why: code_of(head >> WHY_AT),
                to: to_of(head, entry[1], entry[2]),
                class: Class::from_bits((head >> 8) as u8),
                tag: (head & TAGGED != 0).then_some(entry[5]),
                body: body_of(head, entry[3]),
                len: entry[4],
            },
            OP_UNBOUND => {
                let (lower, upper) = unpair(entry[3]);
                let range = ServiceRange::new(entry[2] as u32, lower, upper);
                Completion::Unbound { range, by: NodeId(entry[1]) }
            }
            op => return one_word_of(op, entry[1]),
        })
    }
}

/// Of those that are one word.
fn one_word_of(op: u64, word: u64) -> Option<Completion> {
    Some(match op {
        OP_ANSWER => Completion::Answer(word as u8),
        OP_CAME => Completion::Came(word),
        OP_TAKEN => Completion::Taken(NodeId(word)),
        OP_GIVEN_BACK => Completion::GivenBack(word),
        OP_DIRECT => Completion::Direct(word),
        OP_TRUNK => Completion::Trunk(word),
        _ => return None,
    })
}

fn code_of(value: u64) -> FailureCode {
    use FailureCode::*;
    [NoPort, NoService, NoNode, TooLarge, Indeterminate, NotSent, Expired, Overload, ShutDown]
        .into_iter()
        .find(|c| *c as u64 == value)
        .unwrap_or(Invalid)
}

fn not_connecting_of(value: u64) -> NotConnecting {
    use NotConnecting::*;
    [NoService, NoNode, Unsupported, TooMany, Blocked]
        .into_iter()
        .find(|c| *c as u64 == value)
        .unwrap_or(Invalid)
}

fn ended_of(value: u64) -> Ended {
    use Ended::*;
    let all = [SentAll, Deaf, Backlog, NobodyListens, NotAllowed, NodeLost];
    all.into_iter().find(|c| *c as u64 == value).unwrap_or(Aborted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: PortAddress = PortAddress { node: NodeId(0xdead_beef_0000_0001), port: PortId(77) };
    const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);
    const ID: ConnectionId =
        ConnectionId { session: SessionId(0x1_0002), end: PortId::accepting_end(3).far_end() };

    fn send(to: Destination, body: Body, tag: Option<u64>) -> Command {
        Command::Send { to, how: (Class::Bulk, tag).into(), body, len: 1 << 30, cookie: 4 }
    }

    #[test]
    fn what_is_to_come_back_and_what_expires_survive_their_entries() {
        let how = Manner { returns: true, ..(Class::Urgent, Some(0)).into() };
        for how in [how, Manner { expires_at: Some(Instant(7)), ..how }, Manner { returns: false, ..how }] {
            let to = Destination::Port(TO);
            let send = Command::Send { to, how, body: Body::Arena(64), len: 1, cookie: 9 };
            assert_eq!(Command::decode(&send.encode()), Some(send));
        }
        use FailureCode::*;
        for why in [
            NoPort,
            NoService,
            NoNode,
            TooLarge,
            Indeterminate,
            NotSent,
            Invalid,
            Expired,
            Overload,
            ShutDown,
        ] {
            for (to, body) in [
                (Destination::Port(TO), Body::Exchanged(3)),
                (Destination::Service(SERVICE), Body::Arena(u64::MAX)),
            ] {
                let (class, tag) = (Class::Bulk, Some(u64::MAX));
                let back = Completion::Returned { cookie: 5, why, to, class, tag, body, len: 1 << 40 };
                assert_eq!(Completion::decode(&back.encode()), Some(back));
            }
        }
    }

    #[test]
    fn commands_survive_their_entries() {
        let connect = |to, first, last| Command::Connect {
            to,
            class: Class::Urgent,
            stream: last,
            first,
            last,
            cookie: 6,
        };
        for command in [
            send(Destination::Port(TO), Body::Arena(4096), None),
            send(Destination::Port(TO), Body::Spaced(65_536), None),
            send(Destination::Service(SERVICE), Body::Exchanged(5), Some(9)),
            send(Destination::Connection(ID), Body::Arena(0), Some(1)),
            send(Destination::Multicast(ServiceRange::new(u32::MAX, 1, u32::MAX)), Body::Arena(64), None),
            Command::Bind(ServiceRange::new(100, 1, 9), Scope::Node, 200),
            Command::BindExclusive(ServiceRange::new(100, 1, 9), Scope::Cluster),
            Command::Unbind(ServiceRange::new(100, 1, 9), Scope::Cluster),
            Command::Accept { offer: (7, 8), buffer: 9 },
            Command::Listen(128),
            connect(Destination::Service(SERVICE), Some((Body::Exchanged(7), 1 << 20)), true),
            connect(Destination::Port(TO), None, false),
            Command::Take(ID),
            Command::ShutDown { id: ID, sent_all: true, deaf: false },
            Command::ShutDown { id: ID, sent_all: false, deaf: true },
            Command::Consumed { id: ID, bytes: 1 << 40, messages: 9 },
            Command::Lookup(Lookup::Sticky),
            Command::Policy(None),
            Command::Policy(Some(Policy::Redundant)),
            Command::Await { what: Awaited::Bound(SERVICE), number: 1 << 50 },
            Command::Await { what: Awaited::Known, number: 2 },
            Command::Forget,
        ] {
            assert_eq!(Command::decode(&command.encode()), Some(command));
        }
    }

    #[test]
    fn completions_survive_their_entries() {
        let message = |connection, service, tag: Option<u64>| {
            let (class, len, notify) = (Class::Normal, 0, tag.is_some());
            Completion::Message(
                Envelope { from: TO, connection, service, tag, class, len, notify },
                Body::Arena(64),
            )
        };
        let offer =
            |connection| Completion::Offer { from: TO, len: 1 << 33, offer: (1, u32::MAX), connection };
        for completion in [
            message(Some(ID), None, None),
            message(None, Some(SERVICE), Some(1)),
            offer(None),
            offer(Some(ID)),
            Completion::Failed { cookie: 12, why: FailureCode::NoService },
            Completion::Answer(2),
            Completion::Came(u64::MAX),
            Completion::Taken(TO.node),
            Completion::Trunk(8),
            Completion::GivenBack(u64::MAX),
            Completion::Unbound { range: ServiceRange::new(u32::MAX, 1, u32::MAX), by: TO.node },
            Completion::Request {
                id: ID,
                from: TO,
                service: Some(SERVICE),
                stream: true,
                class: Class::Bulk,
                credit: (1 << 40, 3),
            },
            Completion::Request {
                id: ID,
                from: TO,
                service: None,
                stream: false,
                class: Class::Control,
                credit: (0, 0),
            },
            Completion::Connecting { cookie: 8, id: ID, peer: TO, credit: (5, 1 << 33) },
            Completion::NotConnecting { cookie: 8, why: NotConnecting::TooMany },
            Completion::Connected { id: ID, peer: TO, credit: (7, 6) },
            Completion::Credit { id: ID, credit: (1 << 34, 1 << 35) },
            Completion::Ended { id: ID, how: Ended::NodeLost },
        ] {
            assert_eq!(Completion::decode(&completion.encode()), Some(completion));
        }
    }

    #[test]
    fn nonsense_is_no_command() {
        assert_eq!(Command::decode(&[0; 8]), None);
        assert_eq!(Command::decode(&[u64::MAX; 8]), None);
        for op in [OP_LOOKUP, OP_POLICY] {
            assert_eq!(Command::decode(&[op, 100, 0, 0, 0, 0, 0, 0]), None);
        }
    }
}
