//! Reproducible randomness.

/// `xorshift64*` (Marsaglia 2003, multiplier of Vigna 2016), with its first state made of the seed by `splitmix64`, so that seeds
/// that are near each other give different runs.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The generator cannot leave zero.
        Self(if mixed == 0 { 1 } else { mixed })
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`; 0 if there is nothing below it.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.next() >> 16) % end).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several; none if there are none.
    pub fn choose<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.below(all.len());
        all.get(at)
    }

    /// One of several, or else the default.
    pub fn pick<T: Copy + Default>(&mut self, all: &[T]) -> T {
        self.choose(all).copied().unwrap_or_default()
    }

    /// So many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }

    /// Changes, takes away or repeats some bytes.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => {
                    let byte = self.next().to_be_bytes()[0];
                    if let Some(place) = bytes.get_mut(at) {
                        *place = byte;
                    }
                }
                2 => {
                    let again =
                        bytes.get(at..).unwrap_or_default().iter().take(64).copied().collect::<Vec<u8>>();
                    bytes.extend(again);
                }
                _ => {
                    let length = self.below(9);
                    let noise = self.bytes(length);
                    bytes.splice(at..at, noise);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_a_run() {
        let run = |seed| {
            let mut random = Random::new(seed);
            let mut bytes = random.bytes(100);
            random.damage(&mut bytes);
            (bytes, random.next())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_ne!(run(0).1, 0);
    }

    #[test]
    fn nothing_is_chosen_of_nothing() {
        let mut random = Random::new(7);
        assert_eq!(random.choose::<u8>(&[]), None);
        assert_eq!(random.below(0), 0);
        random.damage(&mut Vec::new());
    }
}
