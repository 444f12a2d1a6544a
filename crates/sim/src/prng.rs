//! Random numbers that a seed repeats: xoshiro256++ seeded by splitmix64, split by name per component.
//!
//! Each component draws from a stream of its own, so that adding a fault (or one more draw inside a component)
//! does not re-randomise everything else of a seed.

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

/// One step of splitmix64: a good mixer of 64 bits, also used to derive seeds.
pub const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Prng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Prng {
        let mut word = seed;
        let mut state = [0; 4];
        for slot in &mut state {
            *slot = mix(word);
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Prng { state }
    }

    /// The stream of component `name`, number `index`, of a run with `seed`. It does not depend on what other
    /// components draw.
    pub fn for_component(seed: u64, name: &str, index: u64) -> Prng {
        let mut word = mix(seed);
        for byte in name.bytes() {
            word = mix(word ^ u64::from(byte));
        }
        Prng::new(mix(word ^ mix(index)))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        low + self.below((high - low).saturating_add(1))
    }

    /// True with probability `ppm` in a million.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Uniform in the logarithm over `low..=high`: each power of two is as likely as the next.
    pub fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let (low_bits, high_bits) = (low.ilog2(), high.ilog2());
        let bits = self.between(u64::from(low_bits), u64::from(high_bits)) as u32;
        let from = (1u64 << bits).max(low);
        let to = (1u64 << bits).saturating_mul(2).saturating_sub(1).min(high);
        self.between(from, to)
    }

    /// Time to the next event of a Poisson process with the given mean gap, in the unit of `mean`. Integers only,
    /// so that every machine draws the same: -ln(u) from the position of the first bit and a parabola.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let bits = self.next_u64() | 1;
        let zeros = bits.leading_zeros();
        // u = 2^-zeros * m with m in [1/2, 1): -ln(u) = zeros * ln 2 - ln m, and -ln m is close to a parabola.
        let mantissa = (bits << zeros) >> 48; // 16 bits, 32768..65536
        let m = mantissa - 32_768; // 0..32768
        let bow = (m * (32_768 - m)) >> 15;
        let minus_ln_m = 45_426 - ((m * 45_426) >> 15) - ((bow * 15_438) >> 15);
        let minus_ln_u = u64::from(zeros) * 45_426 + minus_ln_m; // in 1/65536
        ((u128::from(mean) * u128::from(minus_ln_u)) >> 16) as u64
    }

    /// One of `choices`, each as likely.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_draw_apart() {
        let mut a = Prng::for_component(7, "loss", 0);
        let first: Vec<u64> = (0..4).map(|_| a.next_u64()).collect();
        let mut b = Prng::for_component(7, "loss", 1);
        assert_ne!(first[0], b.next_u64());
        let mut again = Prng::for_component(7, "loss", 0);
        assert_eq!(first, (0..4).map(|_| again.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut prng = Prng::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..1_000 {
            seen[prng.between(3, 7) as usize - 3] += 1;
            assert!((10..=1_000).contains(&prng.log_uniform(10, 1_000)));
        }
        assert!(seen.iter().all(|n| *n > 120), "{seen:?}");
        assert_eq!(prng.below(0), 0);
    }

    #[test]
    fn chance_hits_its_share() {
        let mut prng = Prng::new(2);
        let hits = (0..100_000).filter(|_| prng.chance_ppm(50_000)).count();
        assert!((4_600..5_400).contains(&hits), "{hits}");
        assert!(!prng.chance_ppm(0));
    }

    #[test]
    fn exponential_has_its_mean_and_shape() {
        let mut prng = Prng::new(3);
        let draws: Vec<u64> = (0..100_000).map(|_| prng.exponential(10_000)).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((9_700..10_300).contains(&mean), "{mean}");
        // P(x > 2 * mean) = e^-2 = 13.5 %.
        let long = draws.iter().filter(|d| **d > 20_000).count();
        assert!((13_000..14_100).contains(&long), "{long}");
    }
}
