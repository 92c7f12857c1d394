//! When certificates end: a metric of each service, set whenever a certificate or an authority is put to use.
//!
//! What could not be renewed keeps its series, so an alert compares it with the time. There is one series for each certificate of a
//! service, and none for those of VMs.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::ca::Purpose;
use crate::metrics::{Family, Gauge, Registry, double};

/// What a certificate is used for, in the label `purpose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Server,
    /// A client of the service shows it.
    Client,
    /// The authority with which this service signs.
    Authority,
    /// The last of the authorities that the service trusts: while one is handed over there are two, and the old one is to end.
    Trusted,
}

impl Use {
    const fn label(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Authority => "authority",
            Self::Trusted => "trusted",
        }
    }
}

impl From<Purpose> for Use {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Server => Self::Server,
            Purpose::Client => Self::Client,
        }
    }
}

/// The ends of the certificates in use. Clones share them.
#[derive(Clone, Debug)]
pub struct Expiry(Family<Gauge, 2>);

impl Expiry {
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self(registry.gauges(
            "neonvm_certificate_expiry_timestamp_seconds",
            "When a certificate in use ends, in seconds since 1970; of trusted authorities the last one.",
            ["certificate", "purpose"],
        ))
    }

    /// The certificate with this name ends at `until`, in seconds since 1970.
    pub fn set(&self, certificate: &str, purpose: Use, until: i64) {
        let until = double(u64::try_from(until).unwrap_or(0));
        self.0.with([certificate, purpose.label()]).set(until);
    }

    /// As [`Expiry::set`] with the last end of the certificates in a PEM text. A text without a certificate changes nothing: what is
    /// put to use was read before.
    pub fn set_last(&self, certificate: &str, purpose: Use, pem: &str) {
        if let Some(until) = last_end(pem) {
            self.set(certificate, purpose, until);
        }
    }
}

/// The last end of the certificates in a PEM text, in seconds since 1970; none if it holds no certificate that can be read.
#[must_use]
pub fn last_end(pem: &str) -> Option<i64> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok);
    let end = |der: CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    all.filter_map(end).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Authority;

    #[test]
    fn the_last_of_the_trusted_authorities_counts() {
        let (old, _) = Authority::generate_between("a", 1_000, 2_000_000).unwrap();
        let (new, _) = Authority::generate_between("a", 1_500, 9_000_000).unwrap();
        let bundle = format!("{}{}", new.certificate(), old.certificate());
        assert_eq!(last_end(&bundle), Some(9_000_000));
        assert_eq!(last_end(old.certificate()), Some(2_000_000));
        assert_eq!(last_end("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), None);
        assert_eq!(last_end(""), None);
    }

    #[test]
    fn what_cannot_be_read_leaves_the_end_before() {
        let registry = Registry::new();
        let expiry = Expiry::new(&registry);
        expiry.set("neonvm-agent:n1", Purpose::Client.into(), 86_400);
        expiry.set("neonvm-agent:n1", Purpose::Server.into(), -1);
        let (authority, _) = Authority::generate_between("a", 1_000, 2_000_000).unwrap();
        expiry.set_last("neonvm-internal-ca", Use::Trusted, authority.certificate());
        expiry.set_last("neonvm-internal-ca", Use::Trusted, "nothing");
        let text = registry.page().finish();
        let samples: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            samples,
            [
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-agent:n1\",purpose=\"client\"} 86400",
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-agent:n1\",purpose=\"server\"} 0",
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-internal-ca\",purpose=\"trusted\"} 2000000",
            ]
        );
    }
}
