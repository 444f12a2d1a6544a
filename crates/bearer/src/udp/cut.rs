//! Cuts a gather list at datagram bounds, for trains that must go one by one.

use std::io::IoSlice;

/// The same bytes, in slices that never cross a datagram bound.
pub(super) struct Cut<'a> {
    slices: Vec<IoSlice<'a>>,
    /// Where the slices of each datagram end.
    ends: Vec<usize>,
}

impl<'a> Cut<'a> {
    /// Cuts `slices` into datagrams of `segment_bytes`; no bytes at all are one empty datagram.
    pub fn new(slices: &'a [IoSlice<'a>], segment_bytes: usize) -> Cut<'a> {
        let mut out = Cut { slices: Vec::with_capacity(slices.len() + 64), ends: Vec::with_capacity(64) };
        let mut room = segment_bytes;
        for slice in slices {
            let mut rest: &'a [u8] = slice;
            while !rest.is_empty() {
                if room == 0 {
                    out.ends.push(out.slices.len());
                    room = segment_bytes;
                }
                let (head, tail) = rest.split_at(rest.len().min(room));
                out.slices.push(IoSlice::new(head));
                room -= head.len();
                rest = tail;
            }
        }
        out.ends.push(out.slices.len());
        out
    }

    /// The slices of each datagram.
    pub fn segments(&self) -> Vec<&[IoSlice<'a>]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&start, &end)| &self.slices[start..end]).collect()
    }
}

/// All bytes of `segments`, one after the other.
pub(super) fn join(segments: &[&[IoSlice<'_>]]) -> Vec<u8> {
    segments.iter().flat_map(|slices| slices.iter()).flat_map(|slice| slice.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(parts: &[&str], segment_bytes: usize) -> Vec<String> {
        let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part.as_bytes())).collect();
        let cut = Cut::new(&slices, segment_bytes);
        cut.segments().iter().map(|one| String::from_utf8(join(&[one])).unwrap()).collect()
    }

    #[test]
    fn cuts_fall_where_the_datagrams_end() {
        assert_eq!(cut(&["ab", "cdefg", "", "h"], 3), ["abc", "def", "gh"]);
        assert_eq!(cut(&["abcdef"], 3), ["abc", "def"]);
        assert_eq!(cut(&["a", "b"], 1), ["a", "b"]);
        assert_eq!(cut(&["ab"], 10), ["ab"]);
        assert_eq!(cut(&[], 10), [""]);
    }
}
