//! Little-endian fields at fixed places, read and written without a branch per field.

use super::{Fault, Malformed};

/// Boundary on which every frame starts, bytes.
const ALIGN: usize = 8;

/// Bytes from the end of something `len` bytes long to the next multiple of 8 (protocol.md §2.2).
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & (ALIGN - 1)
}

/// `len` and its padding.
pub(crate) const fn padded(len: usize) -> usize {
    len + padding(len)
}

/// A fault at `offset`, counted from the start of what is being parsed.
pub(crate) const fn fault(what: Fault, offset: usize) -> Malformed {
    Malformed { what, offset: if offset > u16::MAX as usize { u16::MAX } else { offset as u16 } }
}

/// `Err(Reserved)` at the first byte of `bytes[from..to]` that is not zero.
pub(crate) fn expect_zero(bytes: &[u8], from: usize, to: usize) -> Result<(), Malformed> {
    match bytes[from..to].iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => Err(fault(Fault::Reserved, from + at)),
    }
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// A structure of `N` bytes being written field by field: once inlined, all stores have constant places.
pub(crate) struct Draft<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Draft<N> {
    #[inline]
    pub(crate) fn new() -> Self {
        Draft { bytes: [0; N], at: 0 }
    }

    /// Begins with a frame header (protocol.md §2.2). `len` counts header and payload, not padding.
    #[inline]
    pub(crate) fn frame(kind: u8, flags: u8, len: usize) -> Self {
        let len = u16::try_from(len).expect("a frame is shorter than 64 KiB");
        let mut draft = Draft::new();
        draft.u8(kind).u8(flags).u16(len);
        draft
    }

    #[inline]
    pub(crate) fn put<const M: usize>(&mut self, field: [u8; M]) -> &mut Self {
        self.bytes[self.at..self.at + M].copy_from_slice(&field);
        self.at += M;
        self
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.put([value])
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(value.to_le_bytes())
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(value.to_le_bytes())
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(value.to_le_bytes())
    }

    /// `count` reserved bytes.
    #[inline]
    pub(crate) fn zero(&mut self, count: usize) -> &mut Self {
        self.at += count;
        self
    }

    /// The finished structure.
    pub(crate) fn bytes(&self) -> &[u8; N] {
        debug_assert_eq!(self.at, N, "every field is written");
        &self.bytes
    }

    /// Appends the finished structure.
    #[inline]
    pub(crate) fn end(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.at, N, "every field is written");
        out.extend_from_slice(&self.bytes);
    }
}

/// Appends the padding of a structure of `len` bytes.
pub(crate) fn pad(len: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; ALIGN][..padding(len)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_reaches_the_next_multiple_of_eight() {
        let pads: Vec<usize> = (0..10).map(padding).collect();
        assert_eq!(pads, [0, 7, 6, 5, 4, 3, 2, 1, 0, 7]);
        assert!((0..100).all(|len| padded(len).is_multiple_of(8) && padded(len) < len + 8));
    }

    #[test]
    fn fields_come_back_from_their_places() {
        let mut out = Vec::new();
        Draft::<16>::frame(9, 8, 0x1234).u8(1).zero(1).u16(0x5566).u64(0x0102_0304_0506_0708).end(&mut out);
        assert_eq!((out[0], out[1], u16_at(&out, 2), out[4]), (9, 8, 0x1234, 1));
        assert_eq!(
            (u16_at(&out, 6), u64_at(&out, 8), u32_at(&out, 12)),
            (0x5566, 0x0102_0304_0506_0708, 0x0102_0304)
        );
    }
}
