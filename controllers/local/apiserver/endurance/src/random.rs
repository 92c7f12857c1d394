//! Reproducible randomness.

/// `xorshift64*` (Marsaglia 2003, multiplier of Vigna 2016): a whole run is given by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Any seed; zero, which the generator cannot leave, is replaced.
    pub(crate) fn new(seed: u64) -> Self {
        Self(if seed == 0 { 0x9e37_79b9_7f4a_7c15 } else { seed })
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end.max(1)
    }
}
