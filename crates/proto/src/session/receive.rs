//! Packets in: what each frame does. The `match` in `frame` is the table of contents.

use super::{Cx, Notice, Session};
use crate::error::Violation;
use crate::id::BearerId;
use crate::link::recv::{AckWish, Arrival, Seen};
use crate::time::Instant;
use crate::transfer::PIECE_HEAD_BYTES;
use crate::wire::header::FLAG_ACK_ELICITING;
use crate::wire::{self, Frame, Frames, Header};

/// Whether a frame was taken. A packet is acknowledged only if all of its frames were (protocol.md §5.4).
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Yes,
    /// Not now: the sender keeps it and sends it again.
    No,
    /// The peer breaks the protocol; the packet is dropped.
    Breach,
}

impl Session {
    /// One verified packet of this session, received on its link `index`.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        header: &Header,
        packet: &[u8],
        ce: bool,
    ) {
        self.quiet.stir();
        let link = &mut self.links[index];
        match link.received.seen(header.number) {
            Seen::New => {}
            Seen::Duplicate => {
                cx.drops.duplicate_packet += 1;
                return link.received.on_duplicate(cx.now);
            }
            Seen::TooOld => {
                cx.drops.stale_packet += 1;
                return;
            }
        }
        let mut all = true;
        for frame in Frames::new(&packet[wire::HEADER_BYTES..], wire::HEADER_BYTES) {
            let frame = match &frame {
                Ok(frame) => frame,
                Err(malformed) => {
                    *cx.faults.entry(malformed.what).or_insert(0) += 1;
                    cx.drops.malformed += 1;
                    return;
                }
            };
            match self.frame(cx, index, frame) {
                Taken::Yes => {}
                Taken::No => all = false,
                Taken::Breach => {
                    cx.drops.violation += 1;
                    return;
                }
            }
        }
        let link = &mut self.links[index];
        link.on_heard();
        link.stats.packets_received += 1;
        link.stats.bytes_received += packet.len() as u64;
        if all {
            let eliciting = header.has(FLAG_ACK_ELICITING);
            link.received.record(
                cx.now,
                header.number,
                packet.len() as u32,
                header.stamp,
                eliciting,
                AckWish::of(header),
                ce,
            );
        }
        if self.control.holds_any() {
            self.take_notices(cx);
        }
    }

    /// The packets of a bulk stream: takes those pieces of a transfer that are the link's next packets and go on where something ends
    /// that has arrived. How many bytes of packets it took; the others go the way of all packets.
    pub(crate) fn handle_pieces(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        &wire::Pieces { first, count }: &wire::Pieces<'_>,
        packets: &[u8],
        ce: bool,
    ) -> usize {
        let (header, fragment) = (&first.header, first.fragment);
        if !self.is_next(index, header) {
            return 0;
        }
        let len = first.payload.len();
        let Some(transfer) = self.receiving.transfers.get_mut(fragment.transfer.0) else { return 0 };
        let Some((buffer, taken)) = transfer.go_on(fragment.offset, len, count) else { return 0 };
        let packet_bytes = PIECE_HEAD_BYTES + len;
        let run = &packets[..taken * packet_bytes];
        cx.store.place_run(buffer, fragment.offset, run, packet_bytes, PIECE_HEAD_BYTES);
        self.enter_run(cx, index, header, (taken, packet_bytes), ce)
    }

    /// The same for the packets of an eager message.
    pub(crate) fn handle_parts(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        parts: &wire::Parts,
        packets: &[u8],
        ce: bool,
    ) -> usize {
        if !self.is_next(index, &parts.header) {
            return 0;
        }
        let Some(taken) = self.on_parts(cx, parts, packets) else { return 0 };
        self.prompt_at = cx.now;
        self.enter_run(cx, index, &parts.header, (taken, parts.head_bytes + parts.piece_bytes), ce)
    }

    /// Whether it is that of a link's next packet.
    fn is_next(&self, index: usize, header: &Header) -> bool {
        self.links[index].received.largest().is_some_and(|largest| header.number == largest + 1)
    }

    /// Enters packets of which `first` is the first one's header; how many bytes they have.
    fn enter_run(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        first: &Header,
        (count, packet_bytes): (usize, usize),
        ce: bool,
    ) -> usize {
        let (link, bytes) = (&mut self.links[index], count * packet_bytes);
        link.stats.packets_received += count as u64;
        link.stats.bytes_received += bytes as u64;
        let arrival = Arrival {
            packet_bytes: packet_bytes as u32,
            stamp: first.stamp,
            eliciting: first.has(FLAG_ACK_ELICITING),
            wish: AckWish::of(first),
            ce,
        };
        link.received.record_next(cx.now, count as u64, &arrival);
        self.quiet.stir();
        self.note_traffic(cx);
        bytes
    }

    /// A batch of datagrams is over (see [`crate::Node::handle_batch_end`]).
    pub(crate) fn handle_batch_end(&mut self, now: Instant, bearer: BearerId, batch_bytes: u64, calls: u32) {
        for link in &mut self.links {
            if link.spec.bearer == bearer {
                link.received.on_batch_end(now, batch_bytes, calls);
                if link.received.ack_pending() {
                    // At another rate an acknowledgement is due after another number of bytes.
                    self.quiet.stir();
                }
            }
        }
        // Most of what comes asks for nothing but an acknowledgement later.
        if !self.is_quiet(now, bearer) {
            self.note_if_done(now);
        }
    }

    pub(super) fn frame(&mut self, cx: &mut Cx<'_>, index: usize, frame: &Frame<'_>) -> Taken {
        self.note_frame(cx.now, frame);
        match frame {
            Frame::Message(message, payload) => self.on_message(cx, message, None, payload),
            Frame::Fragment(f, payload) => {
                self.on_part(cx, &f.message, None, f.total as u64, f.offset as u64, payload)
            }
            Frame::Multicast(m, payload) if m.total as usize == payload.len() => {
                self.on_message(cx, &m.message, Some(m.range), payload)
            }
            Frame::Multicast(m, payload) => {
                self.on_part(cx, &m.message, Some(m.range), m.total as u64, m.offset as u64, payload)
            }
            Frame::TransferFragment(f, payload) => self.on_transfer_part(cx, f.transfer.0, f.offset, payload),
            Frame::Ack(ack) => match self.on_ack(cx, ack) {
                Ok(()) => Taken::Yes,
                Err(violation) => breach(violation),
            },
            Frame::Rts(rts) => self.on_rts(cx, rts),
            Frame::Cts(cts) => self.on_cts(cts),
            Frame::Credit(credit) => self.on_credit(cx, credit),
            Frame::Refuse(refuse) => self.on_refuse(cx, refuse),
            Frame::Probe(probe) => self.on_probe(cx, index, probe),
            Frame::ProbeReply(reply) => self.on_probe_reply(cx, index, reply),
            Frame::Bindings(b) => self.on_control(b.control, || Notice::Bindings {
                origin: b.origin,
                incarnation: b.incarnation,
                log_seq: b.log_seq,
                records: b.iter().collect(),
            }),
            Frame::NameDigest(digest) => self.on_control(digest.control, || Notice::Digest(*digest)),
            Frame::PortClosed(number, port) => self.on_control(*number, || Notice::PortClosed(*port)),
            Frame::LinkSet(l) => self.on_control(l.control, || Notice::LinkSet(l.link, l.status, l.number)),
            Frame::BearerSet(set) => self.on_control(set.control, || Notice::BearerSet(set.clone())),
            // It obliges us to an answer: who confirms none of those gets no more of them.
            Frame::Connect(c) if !self.control.may_answer() && !self.control.is_old(c.control) => Taken::No,
            Frame::Connect(c) => {
                #[cfg(feature = "planted")]
                if self.planted == Some(crate::planted::Planted::RepeatedConnect)
                    && self.control.is_old(c.control)
                {
                    self.connect_again(cx, c);
                }
                self.on_pressing_control(cx, c.control, || Notice::Connect(*c))
            }
            Frame::Accept(a) => self.on_pressing_control(cx, a.control, || Notice::Accept(*a)),
            Frame::Shutdown(s) => self.on_control(s.control, || Notice::Shutdown(*s)),
            Frame::Consumed(c) => self.on_control(c.control, || Notice::Consumed(*c)),
            Frame::Close(close) => {
                self.closed_by_peer = Some(close.reason);
                Taken::Yes
            }
            Frame::BearerState(state) => {
                self.assigners.on_state(cx.now, state);
                Taken::Yes
            }
            Frame::TransferAbort(..) | Frame::Skipped(_) => {
                cx.drops.skipped_frame += 1;
                Taken::Yes
            }
        }
    }
}

/// The packet is dropped; which rule was broken matters to whoever debugs the peer, not to us.
pub(super) fn breach(_violation: Violation) -> Taken {
    Taken::Breach
}
