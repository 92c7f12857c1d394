//! Servers whose bundle is their own self-signed certificate, as many webhooks have it: trusted when they show exactly
//! that certificate, within its validity, for a name that stands in it.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The usual verifier, and the exception above where it refuses.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) usual: Arc<WebPkiServerVerifier>,
    pub(crate) bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if self.bundle.iter().any(|known| known.as_ref() == end_entity.as_ref()) => {
                check(end_entity, server_name, now).map_err(|why| why.unwrap_or(error))
            }
            usual => usual,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// `Err(None)`: the usual verifier's error stands.
fn check(
    der: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Option<Error>> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| None)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if seconds > validity.not_after.timestamp() {
        return Err(Some(CertificateError::Expired.into()));
    }
    if seconds < validity.not_before.timestamp() {
        return Err(Some(CertificateError::NotValidYet.into()));
    }
    let names = certificate.subject_alternative_name().ok().flatten();
    let listed =
        names.is_some_and(|names| names.value.general_names.iter().any(|entry| matches(entry, name)));
    if listed {
        Ok(ServerCertVerified::assertion())
    } else {
        Err(Some(CertificateError::NotValidForName.into()))
    }
}

fn matches(entry: &GeneralName<'_>, name: &ServerName<'_>) -> bool {
    match (entry, name) {
        (GeneralName::DNSName(pattern), ServerName::DnsName(name)) => {
            let (pattern, name) = (pattern.to_ascii_lowercase(), name.as_ref().to_ascii_lowercase());
            match pattern.strip_prefix("*.") {
                Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest == parent),
                None => pattern == name,
            }
        }
        (GeneralName::IPAddress(bytes), ServerName::IpAddress(ip)) => match std::net::IpAddr::from(*ip) {
            std::net::IpAddr::V4(ip) => *bytes == ip.octets(),
            std::net::IpAddr::V6(ip) => *bytes == ip.octets(),
        },
        _ => false,
    }
}
