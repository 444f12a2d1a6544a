//! The BINDINGS frame and its records (protocol.md §4.10, §7.2).

use super::field::{Draft, expect_zero, fault, u32_at, u64_at};
use super::frame::{BINDINGS_MAX, Binding, BindingOp, Bindings, BindingsIter, kind};
use super::{Fault, Malformed};
use crate::address::{Scope, ServiceRange};
use crate::id::{Incarnation, NodeId, PortId};
use crate::mix::fnv1a;

/// Bytes of one record.
pub const BINDING_BYTES: usize = 40;
const FIXED_BYTES: usize = 32;
/// Flag of a record.
const EXCLUSIVE: u8 = 1 << 0;

impl<'a> Bindings<'a> {
    /// The records, in the order of the log.
    pub fn iter(&self) -> BindingsIter<'a> {
        BindingsIter(self.records)
    }

    /// Bytes of a frame with `count` records.
    pub const fn emitted_bytes(count: usize) -> usize {
        FIXED_BYTES + BINDING_BYTES * count
    }

    /// Appends a frame with `records`, the first of which has log number `log_seq`.
    ///
    /// # Panics
    /// If there are no records or more than [`BINDINGS_MAX`].
    pub fn emit(
        control: u32,
        origin: NodeId,
        incarnation: Incarnation,
        log_seq: u64,
        records: &[Binding],
        out: &mut Vec<u8>,
    ) {
        assert!((1..=BINDINGS_MAX).contains(&records.len()), "1..={BINDINGS_MAX} records go into one frame");
        let head = Bindings { control, origin, incarnation, log_seq, records: &[] };
        head.emit_head(records.len(), out);
        for record in records {
            record.emit(out);
        }
    }

    /// Appends the same frame again: what was parsed, with its records as they are.
    pub(crate) fn emit_parsed(&self, out: &mut Vec<u8>) {
        self.emit_head(self.records.len() / BINDING_BYTES, out);
        out.extend_from_slice(self.records);
    }

    fn emit_head(&self, count: usize, out: &mut Vec<u8>) {
        Draft::<FIXED_BYTES>::frame(kind::BINDINGS, 0, Bindings::emitted_bytes(count))
            .u32(self.control)
            .u64(self.origin.0)
            .u64(self.incarnation.0)
            .u64(self.log_seq)
            .end(out);
    }

    pub(crate) fn parse(frame: &'a [u8]) -> Result<Bindings<'a>, Malformed> {
        let Some((b, records)) = frame.split_first_chunk::<FIXED_BYTES>() else {
            return Err(fault(Fault::FrameLength, 2));
        };
        if records.len() % BINDING_BYTES != 0 {
            return Err(fault(Fault::FrameLength, 2));
        }
        if !(1..=BINDINGS_MAX).contains(&(records.len() / BINDING_BYTES)) {
            return Err(fault(Fault::Count, 2));
        }
        if b[1] != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        let origin = NodeId(u64_at(b, 8));
        if origin == NodeId(0) {
            return Err(fault(Fault::Value, 8));
        }
        for (index, record) in records.as_chunks().0.iter().enumerate() {
            let place = FIXED_BYTES + index * BINDING_BYTES;
            Binding::parse(record).map_err(|e| fault(e.what, place + usize::from(e.offset)))?;
        }
        let (incarnation, log_seq) = (Incarnation(u64_at(b, 16)), u64_at(b, 24));
        Ok(Bindings { control: u32_at(b, 4), origin, incarnation, log_seq, records })
    }
}

impl Iterator for BindingsIter<'_> {
    type Item = Binding;

    fn next(&mut self) -> Option<Binding> {
        let (record, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Binding::parse(record).expect("the records were checked when the frame was parsed"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.0.len() / BINDING_BYTES;
        (count, Some(count))
    }
}

impl ExactSizeIterator for BindingsIter<'_> {}

impl<'a> IntoIterator for &Bindings<'a> {
    type Item = Binding;
    type IntoIter = BindingsIter<'a>;

    fn into_iter(self) -> BindingsIter<'a> {
        self.iter()
    }
}

impl Binding {
    /// What this binding, as long as it lives, adds to the hash of its log (protocol.md §7.2).
    pub fn hash(&self) -> u64 {
        fnv1a(Binding { op: BindingOp::Publish, ..*self }.draft().bytes())
    }

    fn emit(&self, out: &mut Vec<u8>) {
        self.draft().end(out);
    }

    fn draft(&self) -> Draft<BINDING_BYTES> {
        let mut draft = Draft::new();
        draft
            .u32(self.range.kind)
            .u32(self.range.lower)
            .u32(self.range.upper)
            .u32(self.port.0)
            .u64(self.key)
            .u8(self.scope as u8)
            .u8(self.op as u8)
            .u8(self.weight)
            .u8(if self.exclusive { EXCLUSIVE } else { 0 })
            .zero(12);
        draft
    }

    fn parse(b: &[u8; BINDING_BYTES]) -> Result<Binding, Malformed> {
        let range = ServiceRange::new(u32_at(b, 0), u32_at(b, 4), u32_at(b, 8));
        if range.lower > range.upper {
            return Err(fault(Fault::Value, 8));
        }
        if b[24] != Scope::Cluster as u8 {
            return Err(fault(Fault::Value, 24));
        }
        let op = match b[25] {
            1 => BindingOp::Publish,
            2 => BindingOp::Withdraw,
            _ => return Err(fault(Fault::Value, 25)),
        };
        if b[27] & !EXCLUSIVE != 0 {
            return Err(fault(Fault::Reserved, 27));
        }
        expect_zero(b, 28, BINDING_BYTES)?;
        let exclusive = b[27] & EXCLUSIVE != 0;
        let (port, key) = (PortId(u32_at(b, 12)), u64_at(b, 16));
        Ok(Binding { op, range, port, key, scope: Scope::Cluster, weight: b[26], exclusive })
    }
}
