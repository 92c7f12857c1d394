//! Random numbers: one generator for each concern, so that a draw added in one place does not shift the others.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of a concern; `concern` is any distinct constant.
    pub(crate) fn new(seed: u64, concern: u64) -> Self {
        Self(mixed(seed.wrapping_add(STEP)) ^ mixed(concern.wrapping_mul(STEP)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// Below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// At least 0, below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let value = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        value
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of them; `None` if there is none.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all.get(index)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rngs {
    pub(crate) latency: Rng,
    pub(crate) faults: Rng,
    pub(crate) chaos: Rng,
    pub(crate) people: Rng,
    pub(crate) load: Rng,
    pub(crate) guest: Rng,
    pub(crate) moves: Rng,
    pub(crate) sizes: Rng,
    pub(crate) shapes: Rng,
}

impl Rngs {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            latency: Rng::new(seed, 1),
            faults: Rng::new(seed, 2),
            chaos: Rng::new(seed, 3),
            people: Rng::new(seed, 4),
            load: Rng::new(seed, 5),
            guest: Rng::new(seed, 6),
            moves: Rng::new(seed, 7),
            sizes: Rng::new(seed, 8),
            shapes: Rng::new(seed, 9),
        }
    }
}
