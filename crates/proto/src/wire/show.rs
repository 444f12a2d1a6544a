//! Packets as text, one line each, for traces and captures.

use super::{
    Ack, BearerAddress, BearerSet, BearerState, BindingOp, Bindings, Connect, Consumed, DigestSays, Fault,
    Fragment, Frame, Frames, HEADER_BYTES, Header, Malformed, Message, NameDigest, PacketType, Probe,
    ProbeKind, ProbeReply, RefuseReason,
};
use super::{Beacon, Hello, LinkSet, LinkStatus, Reset, Versions};
use super::{
    FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_ACK_SOON, FLAG_FULL_CHECK, FLAG_KEY_PHASE, FLAG_SEALED,
    FLAG_TRAIN_LAST,
};
use crate::flow::Class;
use core::fmt::{self, Display, Formatter, Write as _};

const BEARER_STATES: [&str; 4] = ["down", "free", "busy", "leaving"];

/// One line about a packet as it was received: header, contents, and the first fault if there is one.
pub fn describe(packet: &[u8]) -> String {
    let mut line = String::new();
    let end = describe_to(packet, &mut line);
    if let Err(malformed) = end {
        let separator = if line.is_empty() { "" } else { "; " };
        write!(line, "{separator}{malformed}").expect("a string takes all text");
    }
    line
}

fn describe_to(packet: &[u8], line: &mut String) -> Result<(), Malformed> {
    let mut say = |text: &dyn Display| write!(line, "{text}").expect("a string takes all text");
    let header = Header::parse(packet)?;
    say(&header);
    super::verify(packet)?;
    let body = &packet[HEADER_BYTES..];
    match header.kind {
        PacketType::Data if header.has(FLAG_SEALED) => say(&format_args!(": sealed {} bytes", body.len())),
        PacketType::Data => {
            let mut separator = ": ";
            for frame in Frames::new(body, HEADER_BYTES) {
                say(&format_args!("{separator}{}", frame?));
                separator = "; ";
            }
        }
        PacketType::Init | PacketType::Resp => say(&format_args!(": {}", Hello::parse(body)?)),
        PacketType::Beacon => say(&format_args!(": {}", Beacon::parse(body)?)),
        PacketType::Versions => say(&format_args!(": {}", Versions::parse(body)?)),
        PacketType::Reset => say(&format_args!(": {}", Reset::parse(body)?)),
        PacketType::Cookie => say(&format_args!(": {} bytes", body.len())),
    }
    Ok(())
}

impl Display for Header {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PacketType::Data => "data",
            PacketType::Init => "init",
            PacketType::Resp => "resp",
            PacketType::Cookie => "cookie",
            PacketType::Beacon => "beacon",
            PacketType::Versions => "versions",
            PacketType::Reset => "reset",
        };
        write!(
            f,
            "{kind} to {} link {} number {} stamp {:08x}",
            self.to, self.link, self.number, self.stamp
        )?;
        for (flag, name) in [
            (FLAG_KEY_PHASE, "key-phase"),
            (FLAG_SEALED, "sealed"),
            (FLAG_FULL_CHECK, "full-check"),
            (FLAG_ACK_ELICITING, "ack"),
            (FLAG_ACK_NOW, "ack-now"),
            (FLAG_TRAIN_LAST, "last"),
            (FLAG_ACK_SOON, "ack-soon"),
        ] {
            if self.has(flag) {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let class = Class::from_bits(self.class).name();
        write!(f, "{}>{} seq {} {class}", self.from, self.to, self.seq)?;
        if let Some(service) = self.service {
            write!(f, " service {service}")?;
        }
        if let Some(tag) = self.tag {
            write!(f, " tag {tag:#x}")?;
        }
        if self.notify { f.write_str(" notify") } else { Ok(()) }
    }
}

impl Display for Frame<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Message(message, payload) => write!(f, "msg {message} len {}", payload.len()),
            Frame::Fragment(fragment, payload) => show_fragment(fragment, payload.len(), f),
            Frame::TransferFragment(fragment, payload) => {
                show_range(f, "rfrag", fragment.transfer.0, fragment.offset, payload.len())
            }
            Frame::Ack(ack) => show_ack(ack, f),
            Frame::BearerState(state) => show_bearer_state(state, f),
            Frame::Credit(credit) => {
                write!(f, "credit port {} messages {} bytes {}", credit.port, credit.messages, credit.bytes)
            }
            Frame::Refuse(refuse) => {
                let reason = match refuse.reason {
                    RefuseReason::NoRoom => "no-room",
                    RefuseReason::NoPort => "no-port",
                    RefuseReason::TooLarge => "too-large",
                };
                let class = Class::from_bits(refuse.class).name();
                write!(f, "refuse #{} {}>{} seq {} ", refuse.control, refuse.from, refuse.to, refuse.seq)?;
                write!(f, "{class} {reason} retry {} us", refuse.retry_after_us)
            }
            Frame::Rts(rts) => write!(f, "rts {} token {} total {}", rts.message, rts.token, rts.total),
            Frame::Cts(cts) => {
                let (token, transfer) = (cts.token, cts.transfer);
                write!(f, "cts token {token} transfer {transfer} granted {} done {}", cts.granted, cts.done)
            }
            Frame::TransferAbort(control, token) => write!(f, "transfer-abort #{control} token {token}"),
            Frame::Bindings(bindings) => show_bindings(bindings, f),
            Frame::PortClosed(control, port) => write!(f, "port-closed #{control} port {port}"),
            Frame::Probe(probe) => show_probe(probe, f),
            Frame::ProbeReply(reply) => show_probe_reply(reply, f),
            Frame::NameDigest(digest) => show_digest(digest, f),
            Frame::LinkSet(set) => show_link_set(set, f),
            Frame::BearerSet(set) => show_bearer_set(set, f),
            Frame::Connect(connect) => show_connect(connect, f),
            Frame::Accept(accept) => {
                write!(f, "accept #{} end {:x} ", accept.control, accept.end.0)?;
                match accept.answer {
                    Ok(port) => write!(f, "by {port} credit {} in {}", accept.credit.0, accept.credit.1),
                    Err(reason) => write!(f, "refused: {reason:?}"),
                }
            }
            Frame::Shutdown(shutdown) => {
                write!(f, "shutdown #{} end {:x}", shutdown.control, shutdown.end.0)?;
                let said =
                    [(shutdown.sent_all, "sent-all"), (shutdown.deaf, "deaf"), (shutdown.abort, "abort")];
                for (_, word) in said.into_iter().filter(|(said, _)| *said) {
                    write!(f, " {word}")?;
                }
                write!(f, " after {}", shutdown.messages)
            }
            Frame::Multicast(multicast, payload) => {
                let (from, total) = (u64::from(multicast.offset), multicast.total);
                write!(f, "multicast {} range {}", multicast.message, multicast.range)?;
                write!(f, " bytes {from}..{} of {total}", from + payload.len() as u64)
            }
            Frame::Consumed(consumed) => show_consumed(consumed, f),
            Frame::Close(close) => write!(f, "close reason {}", close.reason),
            Frame::Skipped(kind) => write!(f, "skipped {kind:#04x}"),
        }
    }
}

fn show_consumed(consumed: &Consumed, f: &mut Formatter<'_>) -> fmt::Result {
    let class = Class::from_bits(consumed.class).name();
    let Consumed { control, from, to, seq, .. } = consumed;
    write!(f, "consumed #{control} {from}>{to} {class} before seq {seq}")?;
    consumed.rest.map_or(Ok(()), |why| write!(f, ", the rest rejected: {why:?}"))
}

fn show_fragment(fragment: &Fragment, len: usize, f: &mut Formatter<'_>) -> fmt::Result {
    let (message, from, total) = (&fragment.message, u64::from(fragment.offset), fragment.total);
    write!(f, "efrag {message} bytes {from}..{} of {total}", from + len as u64)
}

fn show_range(f: &mut Formatter<'_>, name: &str, transfer: u32, offset: u64, len: usize) -> fmt::Result {
    write!(f, "{name} transfer {transfer} bytes {offset}..{}", offset.saturating_add(len as u64))
}

fn show_ack(ack: &Ack, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "ack link {}", ack.link)?;
    let mut separator = ' ';
    for (from, to) in &ack.ranges {
        write!(f, "{separator}{from}-{to}")?;
        separator = ',';
    }
    write!(f, " echo {:08x} delay {} rx {} ce {}", ack.stamp_echo, ack.delay, ack.rx_bytes, ack.ce_count)?;
    write!(f, " clock {:08x} queueing {} batch 2^{}", ack.rx_clock, ack.queueing, ack.rx_batch_log2)
}

fn show_bearer_state(state: &BearerState, f: &mut Formatter<'_>) -> fmt::Result {
    let tx = BEARER_STATES[usize::from(state.tx_state & 3)];
    let rx = BEARER_STATES[usize::from(state.rx_state & 3)];
    write!(f, "bearer {} tx {tx} {} rx {rx} {}", state.bearer, state.tx_backlog, state.rx_backlog)?;
    let (window, rate) = (state.rx_window, state.rx_rate);
    write!(f, " window {window} senders {} rate {rate} KB/s seq {}", state.senders, state.seq)
}

fn show_link_set(set: &LinkSet, f: &mut Formatter<'_>) -> fmt::Result {
    let status = match set.status {
        LinkStatus::Active => "active",
        LinkStatus::Standby => "standby",
        LinkStatus::Drain => "drain",
        LinkStatus::Down => "down",
    };
    write!(f, "link-set #{} link {} {status}", set.control, set.link)
}

fn show_bearer_set(set: &BearerSet, f: &mut Formatter<'_>) -> fmt::Result {
    let BearerAddress { bearer, mtu, window_bytes, address } = &set.bearer;
    write!(f, "bearer-set #{} bearer {bearer} ", set.control)?;
    if set.gone { write!(f, "gone") } else { write!(f, "mtu {mtu} window {window_bytes} at {address:?}") }
}

fn show_digest(digest: &NameDigest, f: &mut Formatter<'_>) -> fmt::Result {
    let says = match digest.says {
        DigestSays::State => "state",
        DigestSays::Anew => "anew",
        DigestSays::Again => "again",
    };
    let NameDigest { control, origin, incarnation, log_seq, hash, .. } = digest;
    write!(f, "name-digest #{control} {says} of {origin}/{incarnation} log {log_seq} {hash:x}")
}

fn show_bindings(bindings: &Bindings<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    let (origin, life) = (bindings.origin, bindings.incarnation);
    write!(f, "bindings #{} of {origin}/{life} log {}", bindings.control, bindings.log_seq)?;
    for binding in bindings.iter() {
        let sign = if binding.op == BindingOp::Publish { '+' } else { '-' };
        write!(f, " {sign}{}@{}", binding.range, binding.port)?;
    }
    Ok(())
}

fn show_connect(connect: &Connect, f: &mut Formatter<'_>) -> fmt::Result {
    let (class, kind) =
        (Class::from_bits(connect.class).name(), if connect.stream { "stream" } else { "messages" });
    write!(f, "connect #{} end {:x} {}>{}", connect.control, connect.end.0, connect.from, connect.to)?;
    write!(f, " {class} {kind} credit {} in {}", connect.credit.0, connect.credit.1)?;
    connect.service.map_or(Ok(()), |service| write!(f, " service {service}"))
}

fn probe_kind(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Liveness => "liveness",
        ProbeKind::Indirect => "indirect",
        ProbeKind::Mtu => "mtu",
        ProbeKind::State => "state",
        ProbeKind::Join => "join",
    }
}

fn show_probe(probe: &Probe, f: &mut Formatter<'_>) -> fmt::Result {
    let kind = probe_kind(probe.kind);
    write!(
        f,
        "probe {kind} id {:x} link {} target {:x} size {}",
        probe.id, probe.about, probe.target, probe.size
    )
}

fn show_probe_reply(reply: &ProbeReply, f: &mut Formatter<'_>) -> fmt::Result {
    let carrier = if reply.carrier { "carrier" } else { "no-carrier" };
    write!(f, "probe-reply {} id {:x} link {} {carrier}", probe_kind(reply.kind), reply.id, reply.about)?;
    write!(f, " last-rx {} age {} next-tx {}", reply.last_rx, reply.last_rx_age, reply.next_tx)?;
    write!(f, " stall {} us size {}", reply.stall_us, reply.size)
}

impl Display for Beacon {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {}/{} bearer {} cluster {:x}",
            self.node, self.incarnation, self.bearer, self.cluster
        )?;
        if self.solicit { f.write_str(" solicit") } else { Ok(()) }
    }
}

impl Display for Versions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "node {} speaks {}-{}", self.node, self.min, self.max)
    }
}

impl Display for Reset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "node {}/{} has no session {}", self.node, self.incarnation, self.session)
    }
}

impl Display for Hello {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "node {}/{} \"{}\" cluster {:x}", self.node, self.incarnation, self.name, self.cluster)?;
        write!(f, " session {} attempt {} echo {}", self.session, self.attempt, self.echo)?;
        write!(f, " versions {}-{} features {:x}", self.versions.0, self.versions.1, self.features)?;
        write!(f, " bearer {} of {}", self.bearer, self.bearers.len())
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Truncated => f.write_str("truncated"),
            Fault::Version(version) => write!(f, "wire version {version}"),
            Fault::PacketType(kind) => write!(f, "packet type {kind}"),
            Fault::Checksum => f.write_str("checksum"),
            Fault::FrameLength => f.write_str("frame length"),
            Fault::CriticalFrame(kind) => write!(f, "critical frame {kind:#04x}"),
            Fault::AckRange => f.write_str("ack range"),
            Fault::Value => f.write_str("value"),
            Fault::Text => f.write_str("text"),
            Fault::Count => f.write_str("count"),
            Fault::Reserved => f.write_str("reserved byte"),
        }
    }
}

impl Display for Malformed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "malformed: {} at {}", self.what, self.offset)
    }
}

impl std::error::Error for Malformed {}
