//! Control messages beside the data, read and written as bytes: length, level, type, value, padded to a word.

use libc::c_int;

/// Length of the header of one control message.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
const WORD_BYTES: usize = size_of::<usize>();

/// Room for all control messages of one datagram, aligned as the kernel wants it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control {
    pub bytes: [u8; Control::CAPACITY],
}

impl Control {
    /// Enough for a group's stride and ECN mark, and for an extended error with its offender's address.
    pub const CAPACITY: usize = 128;

    pub const fn empty() -> Control {
        Control { bytes: [0; Control::CAPACITY] }
    }

    /// Writes a message behind the first `length` bytes; how many there are then.
    pub fn put(&mut self, length: usize, level: c_int, kind: c_int, value: &[u8]) -> usize {
        let own = HEADER_BYTES + value.len();
        let out = &mut self.bytes[length..length + own];
        out[..WORD_BYTES].copy_from_slice(&own.to_ne_bytes());
        out[WORD_BYTES..WORD_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        out[WORD_BYTES + 4..HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        out[HEADER_BYTES..].copy_from_slice(value);
        length + own.next_multiple_of(WORD_BYTES)
    }

    /// The messages in the first `length` bytes: level, type and value.
    pub fn messages(&self, length: usize) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
        let mut rest = &self.bytes[..length.min(Control::CAPACITY)];
        std::iter::from_fn(move || {
            let length = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = c_int::from_ne_bytes(*rest.get(WORD_BYTES..)?.first_chunk()?);
            let kind = c_int::from_ne_bytes(*rest.get(WORD_BYTES + 4..)?.first_chunk()?);
            let value = rest.get(HEADER_BYTES..length)?;
            rest = rest.get(length.next_multiple_of(WORD_BYTES)..).unwrap_or_default();
            Some((level, kind, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_ends_the_walk() {
        let (size, class) = (1_472u16.to_ne_bytes(), 0xba_i32.to_ne_bytes());
        let mut control = Control::empty();
        let first = control.put(0, libc::SOL_UDP, libc::UDP_SEGMENT, &size);
        let length = control.put(first, libc::IPPROTO_IP, libc::IP_TOS, &class);
        let wanted =
            [(libc::SOL_UDP, libc::UDP_SEGMENT, &size[..]), (libc::IPPROTO_IP, libc::IP_TOS, &class[..])];
        assert_eq!(control.messages(length).collect::<Vec<_>>(), wanted);
        assert_eq!(control.messages(first).collect::<Vec<_>>(), wanted[..1]);
        assert_eq!(control.messages(HEADER_BYTES + 1).count(), 0);
        assert_eq!(control.messages(0).count(), 0);
        assert_eq!(Control::empty().messages(Control::CAPACITY).count(), 0);
    }
}
