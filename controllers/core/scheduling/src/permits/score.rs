//! How nodes are compared: best filled up to a peak, worse below and above, larger nodes first.

use super::{Pair, SettingsError};

/// The shape of the score over the share in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    /// At nothing in use; 0 to 1.
    pub min_usage: f64,
    /// At everything in use; 0 to 1.
    pub max_usage: f64,
    /// The share in use that scores 1; 0 to 1.
    pub peak: f64,
    /// Replace each score by a random one between 1 and itself.
    pub randomise: bool,
}

impl Default for Scoring {
    fn default() -> Self {
        Self { min_usage: 0.5, max_usage: 0.0, peak: 0.8, randomise: true }
    }
}

impl Scoring {
    pub(crate) fn validate(&self) -> Vec<SettingsError> {
        [
            ("scoring.minUsageScore", self.min_usage),
            ("scoring.maxUsageScore", self.max_usage),
            ("scoring.scorePeak", self.peak),
        ]
        .into_iter()
        .filter(|(_, value)| !(0.0..=1.0).contains(value))
        .map(|(key, value)| SettingsError { key, reason: format!("{value} must be between 0 and 1") })
        .collect()
    }

    fn at(&self, share: f64) -> f64 {
        if share < self.peak {
            self.min_usage + (1.0 - self.min_usage) / self.peak * share
        } else if share > self.peak {
            self.max_usage + (1.0 - self.max_usage) / (1.0 - self.peak) * (1.0 - share)
        } else {
            1.0
        }
    }

    /// 0 to 100: of a node that would have `reserved` of `total`, where the largest node has `largest`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
    pub(crate) fn score(&self, reserved: Pair<u128>, total: Pair<u64>, largest: Pair<u64>) -> u32 {
        let part = |reserved: u128, total: u64, largest: u64| {
            if reserved > u128::from(total) || total == 0 || largest == 0 {
                return 0.0;
            }
            self.at(reserved as f64 / total as f64) * (total as f64 / largest as f64).min(1.0)
        };
        let cpu = part(reserved.cpu, total.cpu, largest.cpu);
        let mem = part(reserved.mem, total.mem, largest.mem);
        // A hair is added, so that what should be 50 is not 49 for the sake of the last bit.
        (100.0 * cpu.min(mem) + 1e-9).clamp(0.0, 100.0) as u32
    }
}

/// A score between 1 and `score`, each as likely; 0 stays 0. `seed` should differ from call to call.
#[must_use]
pub fn randomised(score: u32, seed: u64) -> u32 {
    if score == 0 {
        return 0;
    }
    // SplitMix64.
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    u32::try_from(z % u64::from(score)).unwrap_or(0) + 1
}
