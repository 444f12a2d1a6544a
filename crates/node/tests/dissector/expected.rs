//! What tshark is to find in a packet, from the values that it was made of.

use crate::samples;
use polyrail_proto::wire::*;

/// Fields and their values, in the order of the packet.
#[derive(Clone, Default, Debug)]
pub struct Values(pub Vec<(String, Vec<u64>)>);

impl Values {
    /// One more value of a field.
    pub fn add(&mut self, field: &str, value: u64) {
        match self.0.iter_mut().find(|(name, _)| name == field) {
            Some((_, values)) => values.push(value),
            None => self.0.push((field.to_owned(), vec![value])),
        }
    }

    /// The first value of a field.
    pub fn first(&self, field: &str) -> u64 {
        self.0.iter().find(|(name, _)| name == field).expect("a field").1[0]
    }

    /// Several fields of the dissector.
    pub fn all(mut self, fields: &[(&str, u64)]) -> Values {
        fields.iter().for_each(|(name, value)| self.add(&format!("polyrail.{name}"), *value));
        self
    }
}

fn frame(kind: u8) -> Values {
    Values::default().all(&[("frame", u64::from(kind))])
}

fn message(kind: u8, m: &Message, payload: Option<usize>) -> Values {
    let mut values = frame(kind).all(&[
        ("from", u64::from(m.from.0)),
        ("to", u64::from(m.to.0)),
        ("seq", u64::from(m.seq)),
        ("class", u64::from(m.class)),
        ("has_service", u64::from(m.service.is_some())),
        ("has_tag", u64::from(m.tag.is_some())),
        ("notify", u64::from(m.notify)),
    ]);
    if let Some(service) = m.service {
        values = values.all(&[
            ("service.kind", u64::from(service.kind)),
            ("service.instance", u64::from(service.instance)),
        ]);
    }
    if let Some(tag) = m.tag {
        values = values.all(&[("tag", tag)]);
    }
    match payload {
        Some(bytes) => values.all(&[("payload.len", bytes as u64)]),
        None => values,
    }
}

/// The fields of a frame.
pub fn of_frame(f: &Frame<'_>) -> Values {
    match f {
        Frame::Message(m, payload) => message(0x01, m, Some(payload.len())),
        Frame::Fragment(f, payload) => message(0x02, &f.message, Some(payload.len()))
            .all(&[("total", u64::from(f.total)), ("offset", u64::from(f.offset))]),
        Frame::TransferFragment(f, payload) => frame(0x03).all(&[
            ("transfer", u64::from(f.transfer.0)),
            ("offset", f.offset),
            ("payload.len", payload.len() as u64),
        ]),
        Frame::Ack(a) => of_ack(a),
        Frame::BearerState(s) => of_bearer(s),
        Frame::Credit(c) => frame(0x06).all(&[
            ("port", u64::from(c.port.0)),
            ("credit.messages", u64::from(c.messages)),
            ("credit.bytes", c.bytes),
        ]),
        Frame::Refuse(r) => frame(0x07).all(&[
            ("control", u64::from(r.control)),
            ("from", u64::from(r.from.0)),
            ("to", u64::from(r.to.0)),
            ("seq", u64::from(r.seq)),
            ("class", u64::from(r.class)),
            ("refuse.reason", r.reason as u64),
            ("refuse.retry_after_us", u64::from(r.retry_after_us)),
        ]),
        Frame::Rts(r) => {
            message(0x08, &r.message, None).all(&[("token", u64::from(r.token)), ("total", r.total)])
        }
        Frame::Cts(c) => frame(0x09).all(&[
            ("token", u64::from(c.token)),
            ("transfer", u64::from(c.transfer.0)),
            ("granted", c.granted),
            ("done", c.done),
        ]),
        other => of_control(other),
    }
}

fn of_control(f: &Frame<'_>) -> Values {
    match f {
        Frame::TransferAbort(control, token) => {
            frame(0x0A).all(&[("control", u64::from(*control)), ("token", u64::from(*token))])
        }
        Frame::Bindings(b) => of_bindings(b),
        Frame::NameDigest(d) => frame(0x11).all(&[
            ("digest.says", d.says as u64),
            ("control", u64::from(d.control)),
            ("node", d.origin.0),
            ("incarnation", d.incarnation.0),
            ("digest.log_seq", d.log_seq),
            ("digest.hash", d.hash),
        ]),
        Frame::PortClosed(control, port) => {
            frame(0x14).all(&[("control", u64::from(*control)), ("port", u64::from(port.0))])
        }
        Frame::Probe(p) => frame(0x18).all(&[
            ("probe.kind", p.kind as u64),
            ("probe.about", u64::from(p.about.0)),
            ("probe.size", u64::from(p.size)),
            ("probe.id", p.id),
            ("probe.target", p.target),
        ]),
        Frame::ProbeReply(r) => frame(0x19).all(&[
            ("probe.kind", r.kind as u64),
            ("probe.carrier", u64::from(r.carrier)),
            ("probe.about", u64::from(r.about.0)),
            ("probe.size", u64::from(r.size)),
            ("probe.id", r.id),
            ("probe.last_rx", r.last_rx),
            ("probe.next_tx", r.next_tx),
            ("probe.last_rx_age", u64::from(r.last_rx_age)),
            ("probe.stall_us", u64::from(r.stall_us)),
        ]),
        Frame::LinkSet(l) => frame(0x1C).all(&[
            ("control", u64::from(l.control)),
            ("link_set.link", u64::from(l.link.0)),
            ("link_set.status", l.status as u64),
            ("link_set.number", u64::from(l.number)),
        ]),
        Frame::BearerSet(s) => frame(0x1D).all(&[
            ("control", u64::from(s.control)),
            ("bearer_set.bearer", u64::from(s.bearer.bearer.0)),
            ("bearer_set.there", u64::from(!s.gone)),
            ("parameter.mtu", u64::from(s.bearer.mtu)),
            ("parameter.window", u64::from(s.bearer.window_bytes)),
            ("bearer_set.address_bytes", s.bearer.address.as_bytes().len() as u64),
        ]),
        Frame::Connect(_) | Frame::Accept(_) | Frame::Shutdown(_) | Frame::Multicast(..) => of_services(f),
        Frame::Consumed(c) => frame(0x24).all(&[
            ("control", u64::from(c.control)),
            ("from", u64::from(c.from.0)),
            ("to", u64::from(c.to.0)),
            ("seq", u64::from(c.seq)),
            ("class", u64::from(c.class)),
            ("reject.reason", c.rest.map_or(0, |why| why as u64)),
        ]),
        Frame::Close(c) => frame(0x80).all(&[("close.reason", u64::from(c.reason))]),
        Frame::Skipped(kind) => frame(*kind),
        other => panic!("no expectation of {other}"),
    }
}

/// Connections, and messages to several.
fn of_services(f: &Frame<'_>) -> Values {
    match f {
        Frame::Connect(c) => frame(0x20).all(&[
            ("control", u64::from(c.control)),
            ("connection", u64::from(c.end.0)),
            ("from", u64::from(c.from.0)),
            ("to", u64::from(c.to.0)),
            ("class", u64::from(c.class)),
            ("connect.stream", u64::from(c.stream)),
            ("connect.service", u64::from(c.service.is_some())),
            ("credit.bytes", c.credit.0),
            ("credit.messages", u64::from(c.credit.1)),
            ("service.kind", c.service.map_or(0, |s| u64::from(s.kind))),
            ("service.instance", c.service.map_or(0, |s| u64::from(s.instance))),
        ]),
        Frame::Accept(a) => frame(0x21).all(&[
            ("control", u64::from(a.control)),
            ("connection", u64::from(a.end.0)),
            ("accept.refused", u64::from(a.answer.is_err())),
            ("port", a.answer.map_or(0, |port| u64::from(port.0))),
            ("accept.reason", a.answer.err().map_or(0, |reason| reason as u64)),
            ("credit.bytes", a.credit.0),
            ("credit.messages", u64::from(a.credit.1)),
        ]),
        Frame::Shutdown(s) => frame(0x22).all(&[
            ("control", u64::from(s.control)),
            ("connection", u64::from(s.end.0)),
            ("shutdown.send", u64::from(s.sent_all)),
            ("shutdown.receive", u64::from(s.deaf)),
            ("shutdown.abort", u64::from(s.abort)),
            ("shutdown.end", u64::from(s.messages)),
        ]),
        Frame::Multicast(m, payload) => {
            let values = frame(0x23).all(&[
                ("from", u64::from(m.message.from.0)),
                ("seq", u64::from(m.message.seq)),
                ("class", u64::from(m.message.class)),
                ("has_tag", u64::from(m.message.tag.is_some())),
                ("service.kind", u64::from(m.range.kind)),
                ("multicast.lower", u64::from(m.range.lower)),
                ("multicast.upper", u64::from(m.range.upper)),
                ("total", u64::from(m.total)),
                ("offset", u64::from(m.offset)),
                ("payload.len", payload.len() as u64),
            ]);
            m.message.tag.map_or(values.clone(), |tag| values.all(&[("tag", tag)]))
        }
        other => panic!("no expectation of {other}"),
    }
}

fn of_ack(a: &Ack) -> Values {
    let pairs = a.ranges.len() - 1;
    let mut values = frame(0x04).all(&[
        ("ack.link", u64::from(a.link.0)),
        ("ack.pairs", pairs as u64),
        ("ack.rx_batch", u64::from(a.rx_batch_log2)),
        ("ack.largest", a.largest),
        ("ack.stamp_echo", u64::from(a.stamp_echo)),
        ("ack.delay", u64::from(a.delay)),
        ("ack.rx_bytes", a.rx_bytes),
        ("ack.rx_clock", u64::from(a.rx_clock)),
        ("ack.ce_count", u64::from(a.ce_count)),
        ("ack.first", a.ranges[0].1 - a.ranges[0].0),
        ("ack.queueing", u64::from(a.queueing)),
    ]);
    for window in a.ranges.windows(2) {
        let (above, below) = (window[0], window[1]);
        values = values.all(&[("ack.gap", above.0 - below.1 - 1), ("ack.received", below.1 - below.0 + 1)]);
    }
    values
}

fn of_bearer(s: &BearerState) -> Values {
    frame(0x05).all(&[
        ("bearer", u64::from(s.bearer.0)),
        ("bearer.tx_state", u64::from(s.tx_state)),
        ("bearer.rx_state", u64::from(s.rx_state)),
        ("bearer.tx_backlog", u64::from(s.tx_backlog)),
        ("bearer.rx_backlog", u64::from(s.rx_backlog)),
        ("bearer.rx_window", u64::from(s.rx_window)),
        ("bearer.senders", u64::from(s.senders)),
        ("bearer.rx_rate", u64::from(s.rx_rate)),
        ("bearer.seq", u64::from(s.seq)),
    ])
}

fn of_bindings(b: &Bindings<'_>) -> Values {
    let mut values = frame(0x10).all(&[
        ("control", u64::from(b.control)),
        ("bindings.origin", b.origin.0),
        ("bindings.incarnation", b.incarnation.0),
        ("bindings.log_seq", b.log_seq),
    ]);
    for record in b.iter() {
        values = values.all(&[
            ("binding.kind", u64::from(record.range.kind)),
            ("binding.lower", u64::from(record.range.lower)),
            ("binding.upper", u64::from(record.range.upper)),
            ("binding.port", u64::from(record.port.0)),
            ("binding.key", record.key),
            ("binding.scope", 2),
            ("binding.operation", record.op as u64),
            ("binding.weight", u64::from(record.weight)),
            ("binding.exclusive", u64::from(record.exclusive)),
        ]);
    }
    values
}

/// The fields of a packet's header.
pub fn of_header(packet: &[u8]) -> Values {
    let header = Header::parse(packet).expect("a packet of our own");
    let flag = |flag: u8| u64::from(header.has(flag));
    Values::default().all(&[
        ("version", 1),
        ("type", header.kind as u64),
        ("flags.key_phase", flag(FLAG_KEY_PHASE)),
        ("flags.sealed", flag(FLAG_SEALED)),
        ("flags.full_check", flag(FLAG_FULL_CHECK)),
        ("flags.ack_eliciting", flag(FLAG_ACK_ELICITING)),
        ("flags.ack_now", flag(FLAG_ACK_NOW)),
        ("flags.train_last", flag(FLAG_TRAIN_LAST)),
        ("flags.ack_soon", flag(FLAG_ACK_SOON)),
        ("link", u64::from(header.link.0)),
        ("session", u64::from(header.to.0)),
        ("number", header.number),
        ("stamp", u64::from(header.stamp)),
        ("check", u64::from(header.check)),
    ])
}

/// The fields of a packet outside of a session.
pub fn of_outside(kind: PacketType, packet: &[u8]) -> Values {
    let values = of_header(packet);
    match kind {
        PacketType::Beacon => {
            let b = samples::beacon();
            values.all(&[
                ("cluster", b.cluster),
                ("node", b.node.0),
                ("incarnation", b.incarnation.0),
                ("bearer", u64::from(b.bearer.0)),
                ("beacon.solicit", u64::from(b.solicit)),
            ])
        }
        PacketType::Versions => {
            let v = samples::versions();
            values.all(&[
                ("node", v.node.0),
                ("versions.min", u64::from(v.min)),
                ("versions.max", u64::from(v.max)),
            ])
        }
        PacketType::Reset => {
            let r = samples::reset();
            values.all(&[
                ("reset.session", u64::from(r.session.0)),
                ("node", r.node.0),
                ("incarnation", r.incarnation.0),
            ])
        }
        _ => of_hello(values),
    }
}

fn of_hello(values: Values) -> Values {
    let h = samples::hello();
    let mut values = values.all(&[
        ("cluster", h.cluster),
        ("node", h.node.0),
        ("incarnation", h.incarnation.0),
        ("hello.echo", h.echo.0),
        ("hello.features", h.features),
        ("hello.host", h.host),
        ("hello.session", u64::from(h.session.0)),
        ("hello.attempt", u64::from(h.attempt)),
        ("hello.eager_bytes_max", u64::from(h.eager_bytes_max)),
        ("hello.credit_bytes", u64::from(h.initial_credit.0)),
        ("hello.credit_messages", u64::from(h.initial_credit.1)),
        ("hello.tolerance_ms", u64::from(h.tolerance_ms)),
        ("versions.min", u64::from(h.versions.0)),
        ("versions.max", u64::from(h.versions.1)),
        ("bearer", u64::from(h.bearer.0)),
        ("parameter", 1),
    ]);
    for bearer in &h.bearers {
        values = values.all(&[
            ("parameter", 2),
            ("bearer", u64::from(bearer.bearer.0)),
            ("parameter.mtu", u64::from(bearer.mtu)),
            ("parameter.window", u64::from(bearer.window_bytes)),
        ]);
    }
    values
}
