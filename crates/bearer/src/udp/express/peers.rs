//! The neighbours that are known at a time.

use super::frame::Frame;
use super::peer::Peer;
use crate::{Address, Network};

/// Neighbours that are known at a time.
const PEERS_MAX: usize = 16;
/// A neighbour gives way to another when so many packets went to others since its last.
const STALE_PACKETS: u32 = 1_024;

pub(super) struct Peers {
    local: Network,
    known: Vec<Peer>,
    /// Packets that were to be sent to anybody.
    packets: u32,
}

impl Peers {
    /// None yet, for the bearer that is reached at `local`.
    pub fn new(local: Network) -> Peers {
        Peers { local, known: Vec::new(), packets: 0 }
    }

    /// The one at `address`, if it is known.
    pub fn at(&mut self, address: &Address) -> Option<&mut Peer> {
        self.known.iter_mut().find(|peer| peer.address == *address)
    }

    /// The known one that `frame` is from.
    pub fn sender(&mut self, frame: &Frame) -> Option<&mut Peer> {
        self.known.iter_mut().find(|peer| peer.is_from(frame))
    }

    /// The one at `address`, which is to get a packet; `None` if it is none, or others need the place more.
    pub fn for_packet(&mut self, address: &Address) -> Option<&mut Peer> {
        self.packets = self.packets.wrapping_add(1);
        let packets = self.packets;
        let peer = self.meet(address)?;
        peer.used = packets;
        Some(peer)
    }

    /// The one at `address`, which is known from now on; `None` if it is none, or others need the place more.
    pub fn meet(&mut self, address: &Address) -> Option<&mut Peer> {
        let index = match self.known.iter().position(|peer| peer.address == *address) {
            Some(index) => index,
            None if !self.local.reaches(address) => return None,
            None => self.place_for(Peer::new(*address, self.packets))?,
        };
        Some(&mut self.known[index])
    }

    fn place_for(&mut self, new: Peer) -> Option<usize> {
        if self.known.len() < PEERS_MAX {
            self.known.push(new);
            return Some(self.known.len() - 1);
        }
        let age = |peer: &Peer| self.packets.wrapping_sub(peer.used);
        let oldest = (0..PEERS_MAX).max_by_key(|index| age(&self.known[*index]))?;
        if age(&self.known[oldest]) < STALE_PACKETS {
            return None;
        }
        self.known[oldest] = new;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: usize) -> Address {
        Address::Ip(format!("10.0.0.{last}:7430").parse().unwrap())
    }

    /// Sixteen neighbours, each with one packet, the first of them first.
    fn full() -> Peers {
        let mut peers = Peers::new(Network { address: ip(200), prefix_bits: 24 });
        peers.packets = u32::MAX - 500;
        for last in 1..=PEERS_MAX {
            assert!(peers.for_packet(&ip(last)).is_some());
        }
        peers
    }

    #[test]
    fn who_is_no_neighbour_gets_no_place() {
        let mut peers = full();
        let elsewhere = Address::Ip("10.0.1.1:7430".parse().unwrap());
        for _ in 0..2 * STALE_PACKETS {
            assert!(peers.for_packet(&elsewhere).is_none() && peers.at(&elsewhere).is_none());
        }
        assert!(peers.at(&ip(1)).is_some());
    }

    #[test]
    fn the_one_that_got_nothing_for_the_longest_time_gives_way() {
        let mut peers = full();
        peers.for_packet(&ip(1));
        // The second's last packet was the second of sixteen, and the first has had one more.
        let since_second = PEERS_MAX as u32 - 1;
        for _ in since_second + 1..STALE_PACKETS {
            peers.for_packet(&ip(PEERS_MAX));
            assert!(peers.meet(&ip(100)).is_none(), "not yet");
        }
        peers.for_packet(&ip(PEERS_MAX));
        assert!(peers.meet(&ip(100)).is_some());
        let known = |peers: &mut Peers, last| peers.at(&ip(last)).is_some();
        assert!(!known(&mut peers, 2) && known(&mut peers, 100));
        assert!([1, 3, PEERS_MAX].iter().all(|last| known(&mut peers, *last)));
        assert!(
            peers.meet(&ip(2)).is_none(),
            "whoever came last is not the oldest, and the next is not old enough"
        );
    }
}
