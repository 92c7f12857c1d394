//! How long certificates live, and the times that follow from it.

use std::time::Duration;

/// Longest time between two checks whether something is due.
const LOOK: Duration = Duration::from_secs(600);
/// An authority lives at least this many lives of certificates: of those one passes before the next authority signs, and more than three
/// while the one before is still trusted.
const AUTHORITY: u64 = 10;

/// Lifetimes of the internal authority and of what it signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    certificate: i64,
    authority: i64,
}

/// Why lifetimes cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLifetimes {
    /// A certificate has to live for a minute.
    #[error("a certificate lives for at least 60 s, not {0} s")]
    Short(u64),
    /// The longest is a hundred years.
    #[error("{0} s are more than a hundred years")]
    Long(u64),
    /// Certificates would end with their authority.
    #[error("an authority lives at least {AUTHORITY} times as long as a certificate of {0} s, so not {1} s")]
    Authority(u64, u64),
}

impl Lifetimes {
    /// The usual ones, in seconds: a day, and ten years.
    pub const DEFAULT: Self = Self { certificate: 86_400, authority: 3650 * 86_400 };

    /// Lifetimes in seconds.
    ///
    /// # Errors
    /// If the certificate's is below a minute, or that of the authority below ten times the certificate's or above a hundred years.
    pub fn new(certificate: u64, authority: u64) -> Result<Self, InvalidLifetimes> {
        if certificate < 60 {
            return Err(InvalidLifetimes::Short(certificate));
        }
        if authority > 36_500 * 86_400 {
            return Err(InvalidLifetimes::Long(authority));
        }
        if authority / AUTHORITY < certificate {
            return Err(InvalidLifetimes::Authority(certificate, authority));
        }
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        Ok(Self { certificate: seconds(certificate), authority: seconds(authority) })
    }

    /// Life of a certificate, in seconds. It is renewed when two thirds of it are over.
    #[must_use]
    pub const fn certificate(&self) -> i64 {
        self.certificate
    }

    /// Life of an authority, in seconds.
    #[must_use]
    pub const fn authority(&self) -> i64 {
        self.authority
    }

    /// Time between two checks of certificates and authorities: ten minutes, and less for short lives.
    #[must_use]
    pub fn look(&self) -> Duration {
        Duration::from_secs(self.certificate.unsigned_abs() / 60).min(LOOK)
    }
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_outlives_what_it_signs() {
        assert_eq!(Lifetimes::new(86_400, 3650 * 86_400), Ok(Lifetimes::DEFAULT));
        assert_eq!(Lifetimes::new(59, 600), Err(InvalidLifetimes::Short(59)));
        let short = Lifetimes::new(86_400, 9 * 86_400).unwrap_err();
        assert_eq!(
            short.to_string(),
            "an authority lives at least 10 times as long as a certificate of 86400 s, so not 777600 s"
        );
        Lifetimes::new(u64::MAX, u64::MAX).unwrap_err();
        let short = Lifetimes::new(60, 600).unwrap();
        assert_eq!((short.look().as_secs(), Lifetimes::DEFAULT.look().as_secs()), (1, 600));
    }
}
