//! When certificates end and how long they live: metrics of each service, set whenever a certificate or an authority is put to use.
//!
//! What could not be renewed keeps its series, so an alert compares it with the time. There is one series for each certificate of a
//! service, and none for those of VMs.

use crate::ca::Purpose;
use crate::metrics::{Family, Gauge, Registry, double};
use crate::validity::Validity;

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

/// Ends and lives of the certificates in use. Clones share them.
#[derive(Clone, Debug)]
pub struct Expiry {
    end: Family<Gauge, 2>,
    life: Family<Gauge, 2>,
}

impl Expiry {
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let end = registry.gauges(
            "neonvm_certificate_expiry_timestamp_seconds",
            "When a certificate in use ends, in seconds since 1970; of trusted authorities the last one.",
            ["certificate", "purpose"],
        );
        let life = registry.gauges(
            "neonvm_certificate_lifetime_seconds",
            "From the beginning of a certificate in use to its end; of trusted authorities that of the last one.",
            ["certificate", "purpose"],
        );
        Self { end, life }
    }

    /// The certificate with this name is valid at these times.
    pub fn set(&self, certificate: &str, purpose: Use, validity: Validity) {
        let of = |seconds: i64| double(u64::try_from(seconds).unwrap_or(0));
        let labels = [certificate, purpose.label()];
        self.end.with(labels).set(of(validity.until));
        self.life.with(labels).set(of(validity.until.saturating_sub(validity.from)));
    }

    /// As [`Expiry::set`] with the certificate in a PEM text that ends last. A text without a certificate changes nothing: what is
    /// put to use was read before.
    pub fn set_last(&self, certificate: &str, purpose: Use, pem: &str) {
        if let Some(validity) = Validity::last(pem) {
            self.set(certificate, purpose, validity);
        }
    }
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
        let last_end = |pem| Validity::last(pem).map(|validity| validity.until);
        assert_eq!(last_end(&bundle), Some(9_000_000));
        assert_eq!(last_end(old.certificate()), Some(2_000_000));
        assert_eq!(last_end("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), None);
        assert_eq!(last_end(""), None);
    }

    #[test]
    fn what_cannot_be_read_leaves_the_end_before() {
        let registry = Registry::new();
        let expiry = Expiry::new(&registry);
        let until = |until| Validity { from: 400, until, spread: 0 };
        expiry.set("neonvm-agent:n1", Purpose::Client.into(), until(86_400));
        expiry.set("neonvm-agent:n1", Purpose::Server.into(), until(-1));
        let (authority, _) = Authority::generate_between("a", 1_000, 2_000_000).unwrap();
        expiry.set_last("neonvm-internal-ca", Use::Trusted, authority.certificate());
        expiry.set_last("neonvm-internal-ca", Use::Trusted, "nothing");
        let text = registry.page().finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-agent:n1\",purpose=\"client\"} 86400",
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-agent:n1\",purpose=\"server\"} 0",
                "neonvm_certificate_expiry_timestamp_seconds{certificate=\"neonvm-internal-ca\",purpose=\"trusted\"} 2000000",
                "neonvm_certificate_lifetime_seconds{certificate=\"neonvm-agent:n1\",purpose=\"client\"} 86000",
                "neonvm_certificate_lifetime_seconds{certificate=\"neonvm-agent:n1\",purpose=\"server\"} 0",
                "neonvm_certificate_lifetime_seconds{certificate=\"neonvm-internal-ca\",purpose=\"trusted\"} 1999000",
            ]
        );
    }
}
