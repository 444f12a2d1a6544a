//! From the body of a DATA packet to frames, and back (protocol.md §2.2, §4).

use super::field::{Draft, fault, pad, padded};
use super::frame::{
    Accept, Ack, BearerSet, BearerState, Bindings, Close, Connect, Consumed, Credit, Cts, Fragment, Frame,
    Frames, LinkSet, Message, Multicast, NameDigest, Probe, ProbeReply, Refuse, Rts, Shutdown,
    TransferFragment, kind,
};
use super::walk::{CRITICAL, FRAME_HEADER_BYTES, PAD, Raw, Walk};
use super::{Fault, Malformed};
use crate::id::PortId;

impl<'a> Frames<'a> {
    /// The frames of `body`, which starts at `offset_of_body` of its packet (for the offsets of faults). The body of
    /// a sealed packet is its plaintext, without the tag.
    pub fn new(body: &'a [u8], offset_of_body: usize) -> Self {
        Frames { walk: Walk::new(body, offset_of_body) }
    }

    /// Ends the iteration with a fault.
    #[cold]
    fn fail(&mut self, what: Fault, offset: usize) -> Option<Result<Frame<'a>, Malformed>> {
        self.walk.stop();
        Some(Err(fault(what, offset)))
    }

    /// The offset of the first byte that is not zero between a frame and the next.
    #[cold]
    fn dirty(raw: &Raw<'a>) -> usize {
        raw.at + raw.bytes.len() + raw.padding.iter().take_while(|&&byte| byte == 0).count()
    }

    /// The rest of the packet is padding, or should be.
    #[cold]
    fn pad(&mut self, raw: &Raw<'a>) -> Option<Result<Frame<'a>, Malformed>> {
        let place = raw.bytes.iter().position(|&byte| byte != 0)?;
        self.fail(Fault::Reserved, raw.at + place)
    }
}

/// Ends after the first fault: what follows it can't be trusted.
impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let raw = match self.walk.next()? {
            Ok(raw) => raw,
            Err(e) => return Some(Err(e)),
        };
        if raw.padding.iter().fold(0, |all, byte| all | byte) != 0 {
            return self.fail(Fault::Reserved, Frames::dirty(&raw));
        }
        // The usual frames are written straight to where the caller reads them: a frame is as large as an ACK, and moving
        // it costs more than reading it.
        let malformed = match raw.kind {
            PAD => return self.pad(&raw),
            kind::MESSAGE => match Message::parse(raw.bytes) {
                Ok((message, payload)) => return Some(Ok(Frame::Message(message, payload))),
                Err(e) => e,
            },
            kind::FRAGMENT => match Fragment::parse(raw.bytes) {
                Ok((fragment, payload)) => return Some(Ok(Frame::Fragment(fragment, payload))),
                Err(e) => e,
            },
            kind::TRANSFER_FRAGMENT => match TransferFragment::parse(raw.bytes) {
                Ok((fragment, payload)) => return Some(Ok(Frame::TransferFragment(fragment, payload))),
                Err(e) => e,
            },
            kind::ACK => match Ack::parse(raw.bytes) {
                Ok(ack) => return Some(Ok(Frame::Ack(ack))),
                Err(e) => e,
            },
            _ => match parse(raw.kind, raw.bytes) {
                Ok(frame) => return Some(Ok(frame)),
                Err(e) => e,
            },
        };
        self.fail(malformed.what, raw.at + usize::from(malformed.offset))
    }
}

/// Frames that come now and then.
fn parse<'a>(kind: u8, frame: &'a [u8]) -> Result<Frame<'a>, Malformed> {
    Ok(match kind {
        kind::BEARER_STATE => Frame::BearerState(BearerState::parse(frame)?),
        kind::CREDIT => Frame::Credit(Credit::parse(frame)?),
        kind::REFUSE => Frame::Refuse(Refuse::parse(frame)?),
        kind::RTS => Frame::Rts(Rts::parse(frame)?),
        kind::CTS => Frame::Cts(Cts::parse(frame)?),
        kind::TRANSFER_ABORT => {
            super::flow::parse_notice(frame).map(|(control, token)| Frame::TransferAbort(control, token))?
        }
        kind::BINDINGS => Frame::Bindings(Bindings::parse(frame)?),
        kind::NAME_DIGEST => Frame::NameDigest(NameDigest::parse(frame)?),
        kind::PORT_CLOSED => super::flow::parse_notice(frame)
            .map(|(control, port)| Frame::PortClosed(control, PortId(port)))?,
        kind::PROBE => Frame::Probe(Probe::parse(frame)?),
        kind::PROBE_REPLY => Frame::ProbeReply(ProbeReply::parse(frame)?),
        kind::LINK_SET => Frame::LinkSet(LinkSet::parse(frame)?),
        kind::BEARER_SET => Frame::BearerSet(BearerSet::parse(frame)?),
        kind::CONNECT => Frame::Connect(Connect::parse(frame)?),
        kind::ACCEPT => Frame::Accept(Accept::parse(frame)?),
        kind::SHUTDOWN => Frame::Shutdown(Shutdown::parse(frame)?),
        kind::MULTICAST => {
            let (multicast, payload) = Multicast::parse(frame)?;
            Frame::Multicast(multicast, payload)
        }
        kind::CONSUMED => Frame::Consumed(Consumed::parse(frame)?),
        kind::CLOSE => Frame::Close(Close::parse(frame)?),
        _ if kind >= CRITICAL => return Err(fault(Fault::CriticalFrame(kind), 0)),
        _ => Frame::Skipped(kind),
    })
}

impl Frame<'_> {
    /// Appends the whole frame, its payload and its padding included.
    ///
    /// The data path emits headers with [`Message::emit`] and its like and leaves payloads where they are.
    /// `Skipped` becomes a frame without content.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Message(message, payload) => {
                message.emit(out, payload.len());
                emit_payload(message.header_bytes(), payload, out);
            }
            Frame::Fragment(fragment, payload) => {
                fragment.emit(out, payload.len());
                emit_payload(fragment.header_bytes(), payload, out);
            }
            Frame::TransferFragment(fragment, payload) => {
                fragment.emit(out, payload.len());
                emit_payload(TransferFragment::HEADER_BYTES, payload, out);
            }
            Frame::Ack(ack) => ack.emit(out),
            Frame::BearerState(state) => state.emit(out),
            Frame::Credit(credit) => credit.emit(out),
            Frame::Refuse(refuse) => refuse.emit(out),
            Frame::Rts(rts) => rts.emit(out),
            Frame::Cts(cts) => cts.emit(out),
            Frame::TransferAbort(control, token) => {
                super::flow::emit_notice(kind::TRANSFER_ABORT, *control, *token, out);
            }
            Frame::Bindings(bindings) => bindings.emit_parsed(out),
            Frame::NameDigest(digest) => digest.emit(out),
            Frame::PortClosed(control, port) => {
                super::flow::emit_notice(kind::PORT_CLOSED, *control, port.0, out)
            }
            Frame::Probe(probe) => probe.emit(out),
            Frame::ProbeReply(reply) => reply.emit(out),
            Frame::LinkSet(set) => set.emit(out),
            Frame::BearerSet(set) => set.emit(out),
            Frame::Connect(connect) => connect.emit(out),
            Frame::Accept(accept) => accept.emit(out),
            Frame::Shutdown(shutdown) => shutdown.emit(out),
            Frame::Multicast(multicast, payload) => {
                multicast.emit(out, payload.len());
                emit_payload(multicast.header_bytes(), payload, out);
            }
            Frame::Consumed(consumed) => consumed.emit(out),
            Frame::Close(close) => close.emit(out),
            Frame::Skipped(kind) => {
                Draft::<8>::frame(*kind, 0, FRAME_HEADER_BYTES).zero(4).end(out);
            }
        }
    }

    /// Bytes that [`Frame::emit`] appends: a multiple of 8.
    pub fn emitted_bytes(&self) -> usize {
        match self {
            Frame::Message(message, payload) => padded(message.header_bytes() + payload.len()),
            Frame::Fragment(fragment, payload) => padded(fragment.header_bytes() + payload.len()),
            Frame::TransferFragment(_, payload) => padded(TransferFragment::HEADER_BYTES + payload.len()),
            Frame::Ack(ack) => ack.emitted_bytes(),
            Frame::BearerState(_) => BearerState::BYTES,
            Frame::Credit(_) => Credit::BYTES,
            Frame::Refuse(_) => Refuse::BYTES,
            Frame::Rts(rts) => rts.emitted_bytes(),
            Frame::Cts(_) => Cts::BYTES,
            Frame::TransferAbort(..) | Frame::PortClosed(..) => super::flow::NOTICE_BYTES,
            Frame::Bindings(bindings) => Bindings::emitted_bytes(bindings.iter().len()),
            Frame::NameDigest(_) => NameDigest::BYTES,
            Frame::Probe(_) => Probe::BYTES,
            Frame::ProbeReply(_) => ProbeReply::BYTES,
            Frame::LinkSet(_) => LinkSet::BYTES,
            Frame::BearerSet(_) => BearerSet::BYTES,
            Frame::Connect(_) => Connect::BYTES,
            Frame::Accept(_) => Accept::BYTES,
            Frame::Shutdown(_) => Shutdown::BYTES,
            Frame::Multicast(multicast, payload) => padded(multicast.header_bytes() + payload.len()),
            Frame::Consumed(_) => Consumed::BYTES,
            Frame::Close(_) => Close::BYTES,
            Frame::Skipped(_) => padded(FRAME_HEADER_BYTES),
        }
    }
}

fn emit_payload(header_bytes: usize, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(payload);
    pad(header_bytes + payload.len(), out);
}
