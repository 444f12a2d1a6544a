//! What travels: a train of datagrams of equal size (the last may be shorter), moved as one until something cuts it.

/// Number of an attachment of a node to a rail, dense over the network.
pub type Station = usize;

/// A train on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Who sent it.
    pub from: Station,
    /// Who shall get it; `None`: everyone on the rail.
    pub to: Option<Station>,
    /// All datagrams, one after the other.
    pub bytes: Vec<u8>,
    /// Bytes of each datagram but the last.
    pub segment: usize,
}

impl Unit {
    /// A train; `segment` is at least 1.
    pub fn new(from: Station, to: Option<Station>, bytes: Vec<u8>, segment: usize) -> Unit {
        debug_assert!(segment > 0);
        Unit { from, to, bytes, segment }
    }

    /// The datagrams. A train without bytes is one empty datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let empty = self.bytes.is_empty().then_some(&[][..]);
        empty.into_iter().chain(self.bytes.chunks(self.segment))
    }

    /// How many datagrams.
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.segment).max(1)
    }

    /// Each datagram as a train of its own.
    pub fn into_singles(self) -> impl Iterator<Item = Unit> {
        let (from, to) = (self.from, self.to);
        let singles: Vec<Vec<u8>> = self.datagrams().map(<[u8]>::to_vec).collect();
        singles.into_iter().map(move |bytes| {
            let segment = bytes.len().max(1);
            Unit { from, to, bytes, segment }
        })
    }

    /// The trains that remain when the datagrams of which `lost` says so are taken out: consecutive survivors stay
    /// together.
    pub fn without(self, mut lost: impl FnMut(usize, &[u8]) -> bool) -> Vec<Unit> {
        let verdicts: Vec<bool> = self.datagrams().enumerate().map(|(i, bytes)| lost(i, bytes)).collect();
        if !verdicts.contains(&true) {
            return vec![self];
        }
        let mut runs: Vec<Vec<u8>> = Vec::new();
        let mut open = false;
        for (datagram, lost) in self.datagrams().zip(verdicts) {
            match (lost, open) {
                (true, _) => open = false,
                (false, true) => runs.last_mut().expect("a run is open").extend_from_slice(datagram),
                (false, false) => {
                    runs.push(datagram.to_vec());
                    open = true;
                }
            }
        }
        runs.into_iter()
            .map(|bytes| {
                let segment = self.segment.min(bytes.len()).max(1);
                Unit { from: self.from, to: self.to, bytes, segment }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_of_a_train_keep_their_bounds() {
        let bytes: Vec<u8> = (0..25).collect();
        let unit = Unit::new(0, None, bytes, 10);
        assert_eq!(unit.count(), 3);
        let left = unit.clone().without(|i, _| i == 1);
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].bytes, (0..10).collect::<Vec<u8>>());
        assert_eq!((left[1].bytes.clone(), left[1].segment), ((20..25).collect::<Vec<u8>>(), 5));
        assert_eq!(unit.clone().without(|_, _| false), vec![unit.clone()]);
        assert!(unit.without(|_, _| true).is_empty());
    }

    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let unit = Unit::new(0, None, Vec::new(), 1);
        assert_eq!(unit.datagrams().count(), 1);
        assert_eq!(unit.into_singles().count(), 1);
    }
}
