//! The NAME_DIGEST frame: what a replica of a binding log should look like (protocol.md §4.10, §7.2).

use super::field::{Draft, fault, u32_at, u64_at};
use super::flow::exact;
use super::frame::{DigestSays, NameDigest, kind};
use super::{Fault, Malformed};
use crate::id::{Incarnation, NodeId};

/// Bits 0-1 of the flags.
const SAYS: u8 = 0x03;

impl NameDigest {
    pub(crate) const BYTES: usize = 40;

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Draft::<{ NameDigest::BYTES }>::frame(kind::NAME_DIGEST, self.says as u8, NameDigest::BYTES)
            .u32(self.control)
            .u64(self.origin.0)
            .u64(self.incarnation.0)
            .u64(self.log_seq)
            .u64(self.hash)
            .end(out);
    }

    pub(crate) fn parse(frame: &[u8]) -> Result<NameDigest, Malformed> {
        let b = exact::<{ NameDigest::BYTES }>(frame, SAYS)?;
        let says = match b[1] {
            0 => DigestSays::State,
            1 => DigestSays::Anew,
            2 => DigestSays::Again,
            _ => return Err(fault(Fault::Value, 1)),
        };
        let origin = NodeId(u64_at(b, 8));
        if origin == NodeId(0) {
            return Err(fault(Fault::Value, 8));
        }
        let (incarnation, log_seq, hash) = (Incarnation(u64_at(b, 16)), u64_at(b, 24), u64_at(b, 32));
        Ok(NameDigest { control: u32_at(b, 4), says, origin, incarnation, log_seq, hash })
    }
}
