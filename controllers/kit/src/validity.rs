//! From when until when a certificate is valid, and when it is due.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::ca::Identity;

/// From when until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: i64,
    /// Last second of validity, as a Unix time.
    pub until: i64,
    /// Spreads renewals of certificates that were made together: part of 256 of the time that a renewal may be early.
    pub spread: u8,
}

impl Validity {
    /// Of a certificate; none if it cannot be read.
    #[must_use]
    pub fn from_identity(identity: &Identity) -> Option<Self> {
        Self::from_der(&CertificateDer::from_pem_slice(identity.certificate.as_bytes()).ok()?)
    }

    /// Of the certificate in a PEM text that ends last; none if the text holds no certificate that can be read.
    #[must_use]
    pub fn last(pem: &str) -> Option<Self> {
        let all = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
        all.filter_map(|der| Self::from_der(&der)).max_by_key(|validity| validity.until)
    }

    fn from_der(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        // The last byte of a signature is as good as random, and the same at each call.
        let spread = der.last().copied().unwrap_or(0);
        Some(Self { from: validity.not_before.timestamp(), until: validity.not_after.timestamp(), spread })
    }

    /// When it was made, in seconds since 1970; it begins a little earlier.
    #[must_use]
    pub fn made(&self) -> i64 {
        crate::ca::made(self.from, self.until)
    }

    /// The clock of this computer, in seconds since 1970.
    #[must_use]
    pub fn now() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    /// When it is renewed: after two thirds of its life, up to a tenth of it earlier.
    #[must_use]
    pub fn renewal(&self) -> i64 {
        let life = self.until.saturating_sub(self.from).max(0);
        let early = (life / 10).saturating_mul(i64::from(self.spread)) / 256;
        self.from.saturating_add(life / 3 * 2).saturating_sub(early)
    }
}
