//! One stream of numbers from a seed (SplitMix64), so that a failure repeats.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number of the kind at which programs err: a bound, or next to one.
    pub fn odd_number(&mut self) -> u64 {
        const BOUNDS: [u64; 18] = [
            0,
            1,
            8,
            16,
            64,
            256,
            1_024,
            4_096,
            8_192,
            32_768,
            65_536,
            1 << 22,
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 48,
            1 << 63,
            u64::MAX,
        ];
        let near = (self.below(5) as u64).wrapping_sub(2);
        match self.below(8) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            _ => self.pick(&BOUNDS).wrapping_add(near),
        }
    }
}
