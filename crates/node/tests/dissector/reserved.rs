//! Frames that nothing emits yet, by hand from protocol.md §4.20, each value of its own; and express frames from §2.5.

use crate::expected::Values;
use polyrail_proto::wire::check_of;

/// A part of a layout: the dissector's name for it, its size, its value.
type Part = (&'static str, usize, u64);

/// A frame of these parts, and the fields that they are.
fn frame(kind: u8, flags: (u8, &[(&str, u64)]), parts: &[Part], payload: &[u8]) -> (Vec<u8>, Values) {
    let bytes: usize = parts.iter().map(|part| part.1).sum();
    let mut out = vec![kind, flags.0];
    out.extend_from_slice(&((4 + bytes + payload.len()) as u16).to_le_bytes());
    let mut values = Values::default().all(&[("frame", u64::from(kind))]).all(flags.1);
    for (name, size, value) in parts {
        out.extend_from_slice(&value.to_le_bytes()[..*size]);
        if !name.is_empty() {
            values = values.all(&[(name, *value)]);
        }
    }
    if !payload.is_empty() {
        values = values.all(&[("payload.len", payload.len() as u64)]);
    }
    out.extend_from_slice(payload);
    (out, values)
}

const PLAIN: (u8, &[(&str, u64)]) = (0, &[]);

/// All of them.
pub fn frames() -> Vec<(Vec<u8>, Values)> {
    let mut frames = services();
    frames.extend(memory());
    frames.extend(cluster());
    frames
}

fn services() -> Vec<(Vec<u8>, Values)> {
    let group = [
        ("control", 4, 1),
        ("service.kind", 4, 100),
        ("service.instance", 4, 7),
        ("port", 4, 3),
        ("credit.messages", 4, 4),
        ("credit.bytes", 8, 5),
    ];
    vec![frame(0x25, (1, &[("group.kind", 1)]), &group, b"")]
}

fn memory() -> Vec<(Vec<u8>, Values)> {
    let posted = [
        ("port", 4, 1),
        ("posted.channel", 4, 2),
        ("transfer", 4, 3),
        ("posted.capacity", 8, 1 << 33),
        ("posted.generation", 4, 5),
        ("", 4, 0),
    ];
    let request = [
        ("control", 4, 1),
        ("token", 4, 2),
        ("rma.region", 4, 3),
        ("rma.key", 8, 4),
        ("offset", 8, 1 << 35),
        ("rma.length", 8, 6),
        ("rma.operand", 8, 7),
        ("rma.compare", 8, 8),
        ("rma.notify_port", 4, 9),
        ("rma.immediate", 4, 10),
    ];
    let response = [
        ("control", 4, 1),
        ("token", 4, 2),
        ("rma.status", 2, 3),
        ("", 2, 0),
        ("transfer", 4, 4),
        ("", 4, 0),
        ("rma.value", 8, 1 << 63),
    ];
    vec![
        frame(0x0B, PLAIN, &posted, b""),
        frame(0x0C, (0x12, &[("rma.kind", 2), ("rma.notify", 1)]), &request, b"put"),
        frame(0x0D, PLAIN, &response, b"got"),
    ]
}

fn cluster() -> Vec<(Vec<u8>, Values)> {
    let member = [
        ("", 4, 0),
        ("node", 8, 1),
        ("incarnation", 8, 2),
        ("member.status", 1, 1),
        ("member.hops", 1, 3),
        ("", 2, 0),
        ("member.age_ms", 4, 4),
    ];
    let domain = [
        ("domain.members", 2, 2),
        ("", 2, 0),
        ("domain.generation", 8, 3),
        ("domain.up", 8, 1),
        ("node", 8, 4),
        ("node", 8, 5),
    ];
    vec![frame(0x12, PLAIN, &member, b""), frame(0x13, PLAIN, &domain, b"")]
}

/// An express frame with its Ethernet header.
pub fn express(content: u8, inside: &[u8]) -> Vec<u8> {
    let mut out = [[2; 6], [3; 6]].concat();
    for word in
        [0x88b5, 0x7072, 7430, 7431, u16::from_be_bytes([content, 1]), 513, 65_535, inside.len() as u16]
    {
        out.extend_from_slice(&word.to_be_bytes());
    }
    let sum = check_of(&[&out[14..], inside].concat());
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(inside);
    out
}
