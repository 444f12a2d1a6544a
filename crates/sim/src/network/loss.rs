//! Which units get lost: one small state per direction of a pair of stations.

use super::conditions::{Loss, PacketKind};
use super::peek;
use crate::prng::Prng;

/// Memory of the loss process of one direction.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LossState {
    bad: bool,
    counted: u32,
}

impl LossState {
    /// Whether the next unit is lost. `datagram` is its first datagram, `full_bytes` the size of a full one.
    pub(super) fn loses(&mut self, loss: Loss, datagram: &[u8], full_bytes: usize, prng: &mut Prng) -> bool {
        match loss {
            Loss::None => false,
            Loss::Bernoulli { ppm } => prng.chance_ppm(ppm),
            Loss::GilbertElliott { to_bad_ppm, to_good_ppm, bad_loss_ppm } => {
                let turn_ppm = if self.bad { to_good_ppm } else { to_bad_ppm };
                self.bad ^= prng.chance_ppm(turn_ppm);
                self.bad && prng.chance_ppm(bad_loss_ppm)
            }
            Loss::EveryNth { n } => {
                self.counted += 1;
                let hit = self.counted >= n.max(1);
                if hit {
                    self.counted = 0;
                }
                hit
            }
            Loss::Selected { kind, ppm } => is_kind(kind, datagram, full_bytes) && prng.chance_ppm(ppm),
        }
    }
}

fn is_kind(kind: PacketKind, datagram: &[u8], full_bytes: usize) -> bool {
    match kind {
        PacketKind::Acks => peek::has_frame(datagram, peek::FRAME_ACK),
        PacketKind::FullSize => datagram.len() + 64 >= full_bytes,
        PacketKind::Handshake => peek::packet_type(datagram).is_some_and(|kind| kind != peek::TYPE_DATA),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(loss: Loss) -> usize {
        let (mut state, mut prng) = (LossState::default(), Prng::new(5));
        (0..100_000).filter(|_| state.loses(loss, &[0; 100], 1_472, &mut prng)).count()
    }

    #[test]
    fn each_process_loses_its_share() {
        assert_eq!(share(Loss::None), 0);
        assert_eq!(share(Loss::EveryNth { n: 10 }), 10_000);
        assert!((9_500..10_500).contains(&share(Loss::Bernoulli { ppm: 100_000 })));
        // In the bad state a sixth of the time, losing half.
        let burst = Loss::GilbertElliott { to_bad_ppm: 10_000, to_good_ppm: 50_000, bad_loss_ppm: 500_000 };
        assert!((7_300..9_300).contains(&share(burst)), "{}", share(burst));
        assert_eq!(share(Loss::Selected { kind: PacketKind::FullSize, ppm: 1_000_000 }), 0);
    }
}
