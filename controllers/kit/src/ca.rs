//! A certificate authority: made once, kept on disk or in a secret, signs servers and clients.

mod request;

use std::fs;
use std::path::Path;

use neonvm_api::lifetimes::Lifetimes;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

pub use request::{Purpose, Request, Subject};

/// Common name of an authority without a configured name.
const NAME: &str = "neonvm-ca";
/// Life of an authority unless another is chosen, in seconds: ten years.
const AUTHORITY: i64 = Lifetimes::DEFAULT.authority();
/// Validity of what it signs, in days; services renew at start.
const LEAF_DAYS: i64 = 365;
/// Clocks of peers may run behind by this much.
const CLOCK_SKEW: i64 = 600;

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot access {path}")]
    File {
        path: String,
        /// Error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The certificate library refused.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// rustls refused.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// More than one organisation.
    #[error("a certificate cannot name more than one organisation")]
    Organisations,
    /// None of the authorities is known.
    #[error("none of the authorities is known: they have the fingerprints {0}, and {1} is expected")]
    Unknown(String, String),
    /// A PEM file holds something else.
    #[error("{path} does not hold {wanted} in PEM form")]
    Pem {
        path: String,
        /// What it should hold.
        wanted: &'static str,
    },
}

/// A certificate with its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority with its key.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// Certificates of those that are trusted beside it, PEM.
    beside: String,
}

fn name(common: &str, organisations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for organisation in organisations {
        name.push(DnType::OrganizationName, *organisation);
    }
    name.push(DnType::CommonName, common);
    name
}

/// Seconds by which a certificate of this life begins before it is made. Of a short life it is a part: the certificate is renewed by
/// the time between its beginning and its end.
pub(crate) fn clock_skew(life: i64) -> i64 {
    CLOCK_SKEW.min(life / 10).max(0)
}

/// When a certificate was made that begins and ends at these times: the reverse of [`clock_skew`]. In seconds since 1970.
pub(crate) fn made(from: i64, until: i64) -> i64 {
    let life = until.saturating_sub(from);
    from.saturating_add(CLOCK_SKEW.min(life / 11).max(0))
}

fn authority_params(common: &str, life: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(common, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    live(&mut params, life);
    params
}

impl Authority {
    /// Opens the authority kept in `directory` (`ca.crt`, `ca.key`), or makes one there.
    ///
    /// # Errors
    /// If the files cannot be read, written or understood.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let (certificate, key) = (directory.join("ca.crt"), directory.join("ca.key"));
        if certificate.exists() && key.exists() {
            let key = KeyPair::from_pem(&read(&key)?)?;
            let certificate = read(&certificate)?;
            // The issuer needs the name and the key only; both are those of the kept certificate.
            return Ok(Self::with(authority_params(NAME, AUTHORITY), key, certificate));
        }
        let pair = KeyPair::generate()?;
        let params = authority_params(NAME, AUTHORITY);
        let signed = params.self_signed(&pair)?;
        write_private(&key, &pair.serialize_pem())?;
        write_private(&certificate, &signed.pem())?;
        Ok(Self::with(params, pair, signed.pem()))
    }

    /// A new authority, and its private key in PEM form for the caller to keep.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn generate() -> Result<(Self, String), Error> {
        Self::generate_for(NAME, AUTHORITY)
    }

    /// As [`Authority::generate`], with a common name and a life in seconds. Authorities that must not be taken for each other differ
    /// in the name.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn generate_for(common: &str, life: i64) -> Result<(Self, String), Error> {
        Self::generate_with(authority_params(common, life))
    }

    /// As [`Authority::generate_for`], valid between these two times in seconds since 1970.
    ///
    /// # Errors
    /// If the certificate cannot be made, or there are no such times.
    pub fn generate_between(common: &str, from: i64, until: i64) -> Result<(Self, String), Error> {
        let time = |seconds| {
            let bad = |_| Error::Pem { path: "a time in seconds".into(), wanted: "a date" };
            OffsetDateTime::from_unix_timestamp(seconds).map_err(bad)
        };
        let mut params = authority_params(common, AUTHORITY);
        (params.not_before, params.not_after) = (time(from)?, time(until)?);
        Self::generate_with(params)
    }

    fn generate_with(params: CertificateParams) -> Result<(Self, String), Error> {
        let pair = KeyPair::generate()?;
        let certificate = params.self_signed(&pair)?.pem();
        let key = pair.serialize_pem();
        Ok((Self::with(params, pair, certificate), key))
    }

    fn with(params: CertificateParams, key: KeyPair, certificate: String) -> Self {
        Self { issuer: Issuer::new(params, key), certificate, beside: String::new() }
    }

    /// Trusted together with the authorities of these certificates, PEM: [`Authority::bundle`] has all of them.
    #[must_use]
    pub fn beside(mut self, certificates: &str) -> Self {
        certificates.clone_into(&mut self.beside);
        self
    }

    /// An authority from PEM texts, as kept in a secret.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key)?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| Error::Pem {
            path: "the certificate of the authority".into(),
            wanted: "a certificate",
        })?;
        let params = authority_params(&crate::subject::common_name(&der), AUTHORITY);
        Ok(Self::with(params, key, certificate.to_owned()))
    }

    /// A certificate, PEM, of another authority with this private key, PEM, and our name, for so many seconds: clients and servers
    /// that trust this authority may trust that one.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn certify(&self, key: &str, life: i64) -> Result<String, Error> {
        let key = KeyPair::from_pem(key)?;
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let name = der.map(|der| crate::subject::common_name(&der)).unwrap_or_default();
        Ok(authority_params(&name, life).signed_by(&key, &self.issuer)?.pem())
    }

    /// Its private key, PEM.
    pub(crate) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Certificates of those that are trusted beside it, PEM; empty if there are none.
    pub(crate) fn trusted_beside(&self) -> &str {
        &self.beside
    }

    /// The authority's own certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The certificates to trust, PEM: itself, and during a hand-over the authority that signs next or the one that signed before.
    #[must_use]
    pub fn bundle(&self) -> String {
        match self.beside.as_str() {
            "" => self.certificate.clone(),
            beside => format!("{}\n{beside}", self.certificate.trim_end()),
        }
    }

    /// A server certificate for these DNS names and IP addresses.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn server(&self, common: &str, names: &[String]) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign_for(params, name(common, &[]), Duration::days(LEAF_DAYS))
    }

    /// A certificate of one of several equals that call each other: for these names, as a server and as a client, valid for this many
    /// seconds from now; a negative number makes one that has expired.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn peer_for(&self, common: &str, names: &[String], seconds: i64) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for(params, name(common, &[]), Duration::seconds(seconds))
    }

    /// As [`Authority::server`], valid for this many seconds from now.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn server_for(&self, common: &str, names: &[String], seconds: i64) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign_for(params, name(common, &[]), Duration::seconds(seconds))
    }

    /// A client certificate for a user in at most one group, as Kubernetes reads them: common name and organisation.
    ///
    /// # Errors
    /// If the certificate cannot be made, or there are more groups: the names that are made here have one place for each
    /// attribute, and a group must not get lost.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, Error> {
        self.client_for(user, groups, Duration::days(LEAF_DAYS).whole_seconds())
    }

    /// As [`Authority::client`], valid for this many seconds from now.
    ///
    /// # Errors
    /// As [`Authority::client`].
    pub fn client_for(&self, user: &str, groups: &[&str], seconds: i64) -> Result<Identity, Error> {
        if groups.len() > 1 {
            return Err(Error::Organisations);
        }
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for(params, name(user, groups), Duration::seconds(seconds))
    }

    fn sign_for(
        &self,
        mut params: CertificateParams,
        subject: DistinguishedName,
        life: Duration,
    ) -> Result<Identity, Error> {
        params.distinguished_name = subject;
        complete(&mut params, life);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// What all certificates have in common.
fn complete(params: &mut CertificateParams, life: Duration) {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.use_authority_key_identifier_extension = true;
    live(params, life.whole_seconds());
}

/// From now on for `life` seconds.
fn live(params: &mut CertificateParams, life: i64) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::seconds(clock_skew(life));
    params.not_after = now + Duration::seconds(life);
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.display().to_string(), source })
}

/// Writes a file that only its owner can open; readers find the old content or the new one.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    crate::private::replace(path, text.as_bytes())
        .map_err(|source| Error::File { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn authority_survives_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open(directory.path()).unwrap();
        let second = Authority::open(directory.path()).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        let mode = fs::metadata(directory.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn peers_are_known_by_their_names() {
        let (authority, _) = Authority::generate().unwrap();
        let peer = authority.peer_for("one", &["a.example".into(), "b.example".into()], 60).unwrap();
        crate::tls::private_server(&peer, authority.certificate()).unwrap();
        let certificate = CertificateDer::from_pem_slice(peer.certificate.as_bytes()).unwrap();
        assert_eq!(crate::tls::dns_names(&certificate), ["a.example", "b.example"]);
        assert!(crate::tls::organisations(&certificate).is_empty());
    }

    #[test]
    fn server_and_client_trust_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let server = authority.server("api", &["localhost".into(), "127.0.0.1".into()]).unwrap();
        let client = authority.client("admin", &["system:masters"]).unwrap();
        let config = crate::tls::server(&server, authority.certificate()).unwrap();
        assert_eq!(config.alpn_protocols, vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
        crate::tls::client(Some(&client), authority.certificate().as_bytes()).unwrap();
        assert!(crate::tls::client(None, b"not a certificate").is_err());
    }
}
