//! Packets that arrive: what is counted, what is kept where, and what is acknowledged.

use super::outgoing::{config, up};
use super::*;
use crate::wire::{Frame, Header, ProbeKind, RefuseReason};

/// Memory that notes what is asked of it.
#[derive(Default)]
pub(super) struct Ledger {
    /// How much was reserved, and whether it was urgent.
    pub reserved: Vec<(u64, bool)>,
    /// What was copied, and where to.
    pub placed: Vec<(u64, Vec<u8>)>,
    pub discarded: usize,
    /// What was released, and whether it had been delivered.
    pub released: Vec<(PortId, bool)>,
    pub full: bool,
    /// Large messages that get memory although it is.
    pub ahead: usize,
}

impl Store for Ledger {
    fn reserve(&mut self, _: PortId, bytes: u64, urgent: bool) -> Option<BufferId> {
        if self.full {
            return None;
        }
        self.reserved.push((bytes, urgent));
        Some(BufferId(self.reserved.len() as u64))
    }
    fn reserve_ahead(&mut self, _: PortId, bytes: u64) -> Option<BufferId> {
        self.ahead = self.ahead.checked_sub(1)?;
        self.reserved.push((bytes, false));
        Some(BufferId(self.reserved.len() as u64))
    }
    fn place(&mut self, _: BufferId, offset: u64, bytes: &[u8]) {
        self.placed.push((offset, bytes.to_vec()));
    }
    fn discard(&mut self, _: BufferId) {
        self.discarded += 1;
    }
    fn release(&mut self, port: PortId, _: BufferId, delivered: bool) {
        self.released.push((port, delivered));
    }
    fn share(&mut self, _: PortId, _: BufferId, _: u32) {}
    fn has_port(&self, port: PortId) -> bool {
        port != PortId(404)
    }
    fn room(&mut self, _: PortId) -> (u64, u32) {
        (0, 0)
    }
}

/// A receiver with one link, and what it has told and counted so far.
pub(super) struct Receiver {
    pub session: Session,
    pub store: Ledger,
    pub drops: Drops,
    pub faults: BTreeMap<wire::Fault, u64>,
    pub events: VecDeque<Event>,
    next: u64,
}

impl Receiver {
    pub fn new() -> Receiver {
        let (session, store, drops) = (up(1), Ledger::default(), Drops::default());
        Receiver { session, store, drops, faults: BTreeMap::new(), events: VecDeque::new(), next: 0 }
    }

    pub fn call<R>(&mut self, call: impl FnOnce(&mut Session, &mut Cx<'_>) -> R) -> R {
        let (config, store) = (&config(), &mut self.store);
        let (events, drops, faults) = (&mut self.events, &mut self.drops, &mut self.faults);
        call(
            &mut self.session,
            &mut Cx {
                now: NOW,
                config,
                store,
                events,
                drops,
                faults,
                ports: &mut BTreeMap::new(),
                table: &crate::service::Table::new(crate::id::NodeId(1)),
            },
        )
    }

    /// A packet with that number and body.
    pub fn packet(&mut self, number: u64, body: &[u8]) {
        let (kind, to) = (PacketType::Data, SessionId(1));
        let header = Header { kind, flags: 0, link: LinkId(0), to, number, stamp: 0, check: 0 };
        let mut packet = Vec::new();
        header.emit(&mut packet);
        packet.extend(body);
        self.call(|session, cx| session.handle_packet(cx, 0, &header, &packet, false));
    }

    /// The next packet, with these frames; whether it is acknowledged.
    pub fn frames(&mut self, frames: &[Frame<'_>]) -> bool {
        let mut body = Vec::new();
        for frame in frames {
            frame.emit(&mut body);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        self.next += 1;
        self.packet(self.next - 1, &body);
        self.session.links[0].received.seen(self.next - 1) == crate::link::recv::Seen::Duplicate
    }

    pub fn delivered(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Message { .. })).count()
    }
}

fn ack_of_unsent() -> Frame<'static> {
    let ranges = [(9, 9)].into_iter().collect();
    Frame::Ack(wire::Ack {
        link: LinkId(0),
        rx_batch_log2: 0,
        largest: 9,
        stamp_echo: 0,
        delay: 0,
        rx_bytes: 0,
        rx_clock: 0,
        ce_count: 0,
        queueing: 0,
        ranges,
    })
}

/// What is counted while something comes twice, and how often each time.
fn counted(receiver: &mut Receiver, mut cause: impl FnMut(&mut Receiver)) -> [Drops; 2] {
    receiver.drops = Drops::default();
    [0; 2].map(|_| {
        cause(receiver);
        receiver.drops
    })
}

#[test]
fn what_is_wrong_with_packets_is_counted_and_they_are_not_acknowledged() {
    let mut receiver = Receiver::new();
    let close = |reason| Frame::Close(wire::Close { reason });
    let twice = |drops: fn(u64) -> Drops| [drops(1), drops(2)];
    assert!(receiver.frames(&[]));
    let counts = counted(&mut receiver, |r| r.packet(0, &[]));
    assert_eq!(counts, twice(|n| Drops { duplicate_packet: n, ..Drops::default() }));
    let counts = counted(&mut receiver, |r| r.packet(1, &[0xff; 8]));
    assert_eq!(counts, twice(|n| Drops { malformed: n, ..Drops::default() }));
    assert_eq!(receiver.faults.values().copied().collect::<Vec<_>>(), [2]);
    let counts = counted(&mut receiver, |r| assert!(!r.frames(&[close(2), ack_of_unsent(), close(3)])));
    assert_eq!(counts, twice(|n| Drops { violation: n, ..Drops::default() }));
    assert_eq!(receiver.session.closed_by_peer, Some(2), "nothing behind the breach counts");
    let counts = counted(&mut receiver, |r| assert!(r.frames(&[Frame::TransferAbort(0, 1)])));
    assert_eq!(counts, twice(|n| Drops { skipped_frame: n, ..Drops::default() }));
    receiver.packet(100_000, &[]);
    let counts = counted(&mut receiver, |r| r.packet(10, &[]));
    assert_eq!(counts, twice(|n| Drops { stale_packet: n, ..Drops::default() }));
    // Two without a frame, two with one of 16 bytes.
    let stats = receiver.session.links[0].stats;
    assert_eq!((stats.packets_received, stats.bytes_received), (4, 4 * 24 + 2 * 16));
    assert_eq!(receiver.session.links[0].received.largest(), Some(100_000));
}

#[test]
fn what_comes_again_is_acknowledged_and_counted_and_not_delivered() {
    let mut receiver = Receiver::new();
    let again = |n| Drops { duplicate_message: n, ..Drops::default() };
    let large = limits::EAGER_BYTES_MAX as u32;
    let whole = |seq| Frame::Message(head(seq), &[1; 8]);
    let part = |seq, total| Frame::Fragment(wire::Fragment { message: head(seq), total, offset: 0 }, &[1; 8]);
    let gone = wire::TransferFragment { transfer: crate::id::TransferId(7), offset: 0 };
    // Delivered, or waiting for what is before it.
    assert!(receiver.frames(&[whole(0), whole(2), part(4, large)]));
    for frame in [whole(0), whole(2), part(0, 8), part(2, 8), Frame::TransferFragment(gone, &[1; 8])] {
        let counts = counted(&mut receiver, |r| assert!(r.frames(std::slice::from_ref(&frame)), "{frame:?}"));
        assert_eq!(counts, [again(1), again(2)], "{frame:?}");
    }
    assert_eq!((receiver.delivered(), receiver.session.stats.messages_received), (1, 1));
    assert!(receiver.frames(&[whole(1)]));
    assert_eq!((receiver.delivered(), receiver.session.stats.messages_received), (3, 3));
    // The port that sent it is gone.
    receiver.call(|session, cx| session.peer_port_closed(cx, FLOW.to));
    let counts = counted(&mut receiver, |r| assert!(r.frames(&[whole(3)])));
    assert_eq!(counts, [again(1), again(2)]);
    assert_eq!(receiver.session.sizes()[1], 0, "its flow is not made anew");
}

#[test]
fn memory_is_urgent_for_the_next_message_of_a_flow() {
    let mut receiver = Receiver::new();
    let part = |seq| Frame::Fragment(wire::Fragment { message: head(seq), total: 100, offset: 0 }, &[1; 8]);
    assert!(receiver.frames(&[Frame::Message(head(2), &[1; 8]), part(1), part(0)]));
    assert_eq!(receiver.store.reserved, [(8, false), (100, false), (100, true)]);
    let mut receiver = Receiver::new();
    assert!(receiver.frames(&[Frame::Message(head(0), &[1; 8])]));
    assert_eq!(receiver.store.reserved, [(8, true)]);
}

#[test]
fn pieces_that_overlap_are_copied_once_each_to_its_place() {
    let mut receiver = Receiver::new();
    let (service, bytes) = (crate::address::ServiceAddress::new(7, 8), Vec::from_iter(0..40));
    let message = wire::Message { service: Some(service), tag: Some(9), ..head(0) };
    for (from, to) in [(16, 24), (8, 32), (32, 40), (0, 16)] {
        let f = wire::Fragment { message, total: 40, offset: from as u32 };
        assert!(receiver.frames(&[Frame::Fragment(f, &bytes[from..to])]));
    }
    let mut placed = vec![];
    for (offset, piece) in &receiver.store.placed {
        assert_eq!(piece[..], bytes[*offset as usize..][..piece.len()]);
        placed.extend_from_slice(piece);
    }
    placed.sort();
    assert_eq!(placed, bytes, "each once");
    let told = |event: &Event| match *event {
        Event::Message { service, tag, len, .. } => (service, tag, len),
        _ => panic!("{event:?}"),
    };
    assert_eq!(receiver.events.iter().map(told).collect::<Vec<_>>(), [(Some(service), Some(9), 40)]);
}

#[test]
fn a_piece_may_end_where_its_message_ends() {
    let f = |offset| wire::Fragment { message: head(0), total: 100, offset };
    assert!(Receiver::new().frames(&[Frame::Fragment(f(92), &[1; 8])]));
    assert!(!Receiver::new().frames(&[Frame::Fragment(f(93), &[1; 8])]));
}

#[test]
fn an_announcement_that_comes_again_has_its_grant_repeated_once() {
    let mut receiver = Receiver::new();
    let rts = |seq| Frame::Rts(wire::Rts { message: head(seq), token: 3, total: 1 << 20 });
    assert!(receiver.frames(&[rts(0), rts(0), rts(0)]));
    assert_eq!(receiver.session.receiving.cts.len(), 1, "it is still on its way out");
    assert!(super::outgoing::poll(&mut receiver.session, 0).is_some());
    assert!(receiver.frames(&[rts(0), rts(0)]));
    assert_eq!(receiver.session.receiving.cts.len(), 1, "it was lost");
}

#[test]
fn memory_for_a_large_message_is_asked_for_when_its_turn_comes() {
    let mut receiver = Receiver::new();
    let offers = |r: &Receiver| r.events.iter().filter(|event| matches!(event, Event::Offer { .. })).count();
    assert!(receiver.frames(&[Frame::Rts(wire::Rts { message: head(1), token: 3, total: 8 << 20 })]));
    assert_eq!((receiver.session.receiving.waiting.len(), offers(&receiver)), (1, 0));
    for (message, told) in [(head(2), 0), (head(0), 1), (head(3), 1)] {
        assert!(receiver.frames(&[Frame::Message(message, &[1; 8])]));
        assert_eq!(offers(&receiver), told);
    }
}

#[test]
fn a_large_message_that_gets_memory_ahead_waits_for_no_turn_and_nobody() {
    let mut receiver = Receiver::new();
    receiver.store.ahead = 2;
    for seq in [1, 2, 0] {
        assert!(receiver.frames(&[Frame::Rts(wire::Rts { message: head(seq), token: 3, total: 8 << 20 })]));
    }
    let offers = |r: &Receiver| r.events.iter().filter(|event| matches!(event, Event::Offer { .. })).count();
    let waits = |r: &Receiver| (r.session.receiving.cts.len(), r.session.receiving.waiting.len());
    assert_eq!((waits(&receiver), offers(&receiver)), ((2, 1), 1), "its receiver is asked for the third");
    receiver.store.ahead = 1;
    receiver.call(|session, cx| session.retry_waiting(cx.store, PortId(999), cx.config));
    assert_eq!(waits(&receiver), (2, 1), "of another port");
    receiver.call(|session, cx| session.retry_waiting(cx.store, head(0).to, cx.config));
    assert_eq!((waits(&receiver), receiver.store.reserved.len()), ((3, 0), 3));
}

#[test]
fn a_transfer_is_delivered_in_the_place_of_its_announcement() {
    let mut receiver = Receiver::new();
    let total = 100_000;
    let rts = Frame::Rts(wire::Rts { message: head(1), token: 3, total });
    assert!(receiver.frames(&[rts, Frame::Message(head(2), &[2; 8])]));
    let transfer = crate::id::TransferId(receiver.session.receiving.cts[0]);
    let part = |offset| wire::TransferFragment { transfer, offset };
    let bytes = vec![1; 50_000];
    assert!(receiver.frames(&[Frame::TransferFragment(part(50_000), &bytes)]));
    assert!(receiver.frames(&[Frame::TransferFragment(part(0), &bytes)]));
    assert_eq!(receiver.delivered(), 0);
    assert!(receiver.frames(&[Frame::Message(head(0), &[0; 4])]));
    let len = |event: &Event| if let Event::Message { len, .. } = event { *len } else { 9 };
    assert_eq!(receiver.events.iter().map(len).collect::<Vec<_>>(), [4, total, 8]);
    assert_eq!((receiver.session.sizes()[3], receiver.session.stats.messages_received), (0, 3));
}

#[test]
fn a_piece_for_which_there_is_no_place_is_not_acknowledged() {
    let mut receiver = Receiver::new();
    let rts = wire::Rts { message: head(0), token: 3, total: 8 << 20 };
    assert!(receiver.frames(&[Frame::Rts(rts)]));
    let transfer = crate::id::TransferId(receiver.session.receiving.waiting[0]);
    let part = wire::TransferFragment { transfer, offset: 0 };
    let counts = counted(&mut receiver, |r| assert!(!r.frames(&[Frame::TransferFragment(part, &[1; 8])])));
    assert_eq!(counts.map(|drops| drops.holes), [1, 2]);
}

#[test]
fn messages_of_flows_in_turn_are_kept_apart() {
    let mut receiver = Receiver::new();
    let of = |from, seq| Frame::Message(wire::Message { from: PortId(from), ..head(seq) }, &[1; 8]);
    for seq in 0..3 {
        assert!(receiver.frames(&[of(71, seq), of(72, seq), of(73, seq), of(73, seq + 100)]));
    }
    let from = |event: &Event| if let Event::Message { from, .. } = event { from.port.0 } else { 0 };
    let expected = [71, 72, 73].repeat(3);
    assert_eq!(receiver.events.iter().map(from).collect::<Vec<_>>(), expected);
    assert_eq!(receiver.session.sizes()[1], 3);
}

#[test]
fn bytes_beyond_the_credit_of_a_port_are_a_breach() {
    for (left, taken) in [(127, false), (128, true)] {
        let mut receiver = Receiver::new();
        assert!(receiver.frames(&[Frame::Message(head(0), &[1; 8])]));
        let key = receiver.session.receiving.credit_of[&FLOW.from];
        receiver.session.receiving.credits.get_mut(key).unwrap().limit_bytes = 64 + left;
        assert_eq!(receiver.frames(&[Frame::Message(head(1), &[1; 65])]), taken);
        assert_eq!((receiver.drops.violation, receiver.delivered()), (!taken as u64, 1 + taken as usize));
    }
}

#[test]
fn traffic_makes_a_session_busy_for_a_second() {
    let later = NOW + Duration::ms(999);
    let whole = Frame::Message(head(0), &[1; 8]);
    let question = wire::Probe { id: 1, about: LinkId(0), kind: ProbeKind::State, target: 0, size: 0 };
    for (frame, busy) in [(whole, true), (Frame::Probe(question), false)] {
        let mut receiver = Receiver::new();
        receiver.session.last_app_at = Instant::ZERO;
        assert!(receiver.frames(&[frame]));
        assert_eq!(receiver.session.is_busy(later), busy);
        assert!(!receiver.session.is_busy(later + Duration::ms(1)));
    }
    let mut receiver = Receiver::new();
    send(&mut receiver.session, 8);
    assert!(receiver.session.is_busy(NOW + Duration::s(9)), "while something is not confirmed");
}

#[test]
fn no_more_refusals_wait_than_their_bound() {
    let mut receiver = Receiver::new();
    receiver.store.full = true;
    for from in 0..limits::REFUSALS_MAX as u32 + 10 {
        let message = wire::Message { from: PortId(from), ..head(0) };
        assert!(!receiver.frames(&[Frame::Message(message, &[1; 8])]));
    }
    assert_eq!(receiver.session.receiving.refuse.len(), limits::REFUSALS_MAX);
}

#[test]
fn a_refusal_fails_the_messages_of_its_flow_unless_there_is_only_no_room() {
    use crate::error::Failure;
    let other = FlowKey { to: PortId(9), ..FLOW };
    for (reason, why) in [
        (RefuseReason::NoRoom, None),
        (RefuseReason::NoPort, Some(Failure::NoPort)),
        (RefuseReason::TooLarge, Some(Failure::TooLarge)),
    ] {
        let mut receiver = Receiver::new();
        for key in [FLOW, FLOW, other] {
            let message = Outgoing {
                buffer: BufferId(1),
                len: 8,
                service: None,
                range: None,
                tag: None,
                returns: false,
            };
            assert!(receiver.session.send(NOW, key, message));
        }
        let (from, to, class) = (FLOW.from, FLOW.to, FLOW.class as u8);
        let refuse = wire::Refuse { control: 0, from, to, seq: 0, class, reason, retry_after_us: 500 };
        assert!(receiver.frames(&[Frame::Refuse(refuse)]));
        let told = |event: &Event| {
            if let Event::SendFailed { why, to, .. } = event { Some((to.port, *why)) } else { None }
        };
        let told: Vec<_> = receiver.events.iter().filter_map(told).collect();
        assert_eq!(told, why.map_or(vec![], |why| vec![(FLOW.to, why); 2]));
        assert_eq!(receiver.store.released, vec![(FLOW.from, false); told.len()]);
        assert_eq!(receiver.session.stats.messages_failed, told.len() as u64);
        assert_eq!(receiver.session.sizes()[0], if why.is_some() { 1 } else { 2 });
    }
}

#[test]
fn a_port_that_does_not_exist_refuses_with_that_reason() {
    let mut receiver = Receiver::new();
    assert!(!receiver.frames(&[Frame::Message(wire::Message { to: PortId(404), ..head(0) }, &[1; 8])]));
    let reasons: Vec<_> = receiver.session.receiving.refuse.iter().map(|refuse| refuse.reason).collect();
    assert_eq!((reasons, receiver.session.sizes()[1]), (vec![RefuseReason::NoPort], 0));
}
