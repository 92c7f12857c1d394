//! rustls configurations from PEM texts. One stack: rustls with ring.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};

use crate::ca::{Error, Identity};
use crate::certificate::Shown;
use crate::pinned::Pinned;
use crate::trust::Trust;

pub use crate::unchecked::unchecked;

fn certificates(pem: &[u8], path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = || Error::Pem { path: path.to_owned(), wanted: "a certificate" };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| bad())?;
    if all.is_empty() { Err(bad()) } else { Ok(all) }
}

fn key(pem: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| Error::Pem { path: "the private key".into(), wanted: "a private key" })
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem, "the certificate authority")? {
        store.add(certificate)?;
    }
    Ok(store)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server that takes client certificates of the authority, and clients without one.
///
/// # Errors
/// If a PEM text cannot be read.
pub fn server(identity: &Identity, authority: &str) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(if_shown(authority)?)
        .with_single_cert(
            certificates(identity.certificate.as_bytes(), "the server certificate")?,
            key(&identity.key)?,
        )?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// As [`server`], with a certificate and authorities that are exchanged while it serves. Nothing of a session outlives its connection: a resumed
/// one would show the certificate of then, whether or not it is valid still.
///
/// # Errors
/// If rustls refuses.
pub fn server_with(shown: Arc<Shown>, trust: Arc<Trust>) -> Result<ServerConfig, Error> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(trust)
        .with_cert_resolver(shown);
    Ok(without_sessions(config))
}

/// As [`server_with`], but without client certificates.
///
/// # Errors
/// If the provider has no protocol version.
pub fn open_server_with(shown: Arc<Shown>) -> Result<ServerConfig, Error> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    Ok(without_sessions(config))
}

fn without_sessions(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Takes clients without a certificate, and of those that show one only such of the authority.
pub(crate) fn if_shown(authority: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let roots = Arc::new(roots(authority.as_bytes())?);
    WebPkiClientVerifier::builder_with_provider(roots, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|_| Error::Pem { path: "the certificate authority".into(), wanted: "a certificate" })
}

/// A certificate and its key as rustls has them, of one pair for certain.
pub(crate) fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let chain = certificates(identity.certificate.as_bytes(), "the certificate")?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key(&identity.key)?, &provider())?))
}

/// A server without client certificates: a client that has one of an unknown authority may connect.
///
/// # Errors
/// If a PEM text cannot be read.
pub fn open_server(identity: &Identity) -> Result<ServerConfig, Error> {
    let certificates = certificates(identity.certificate.as_bytes(), "the server certificate")?;
    Ok(ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key(&identity.key)?)?)
}

/// A server that takes only clients with a certificate of the authority.
///
/// # Errors
/// If a PEM text cannot be read.
pub fn private_server(identity: &Identity, authority: &str) -> Result<ServerConfig, Error> {
    let roots = Arc::new(roots(authority.as_bytes())?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|_| Error::Pem { path: "the certificate authority".into(), wanted: "a certificate" })?;
    let certificates = certificates(identity.certificate.as_bytes(), "the server certificate")?;
    Ok(ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key(&identity.key)?)?)
}

/// A client that trusts `authority` (PEM) and shows `identity` if it has one.
///
/// # Errors
/// If a PEM text cannot be read.
pub fn client(identity: Option<&Identity>, authority: &[u8]) -> Result<ClientConfig, Error> {
    let builder = trusting(of_servers(authority)?)?;
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_auth_cert(
            certificates(identity.certificate.as_bytes(), "the client certificate")?,
            key(&identity.key)?,
        )?,
    })
}

/// As [`client`], with a certificate and authorities that are exchanged while connections are made. None of them takes up an earlier
/// session.
///
/// # Errors
/// If rustls refuses.
pub fn client_with(shown: Arc<Shown>, trust: Arc<Trust>) -> Result<ClientConfig, Error> {
    let mut config = trusting(trust)?.with_client_cert_resolver(shown);
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Checks certificates of servers against the authorities in a bundle.
pub(crate) fn of_servers(authority: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let bundle = certificates(authority, "the certificate authority")?;
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authority)?), provider())
        .build()
        .map_err(|_| Error::Pem { path: "the certificate authority".into(), wanted: "a certificate" })?;
    Ok(Arc::new(Pinned { usual, bundle }))
}

fn trusting(
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

/// Organisations in the subject of a certificate that TLS has verified. Empty if there are none or it cannot be read.
#[must_use]
pub fn organisations(certificate: &CertificateDer<'_>) -> Vec<String> {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let organisations = certificate.subject().iter_organization();
    organisations.filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
}

/// Common name in the subject of a certificate that TLS has verified. Empty if there is none or it cannot be read.
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> String {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return String::new() };
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}

/// DNS names in a certificate that TLS has verified. Empty if there are none or it cannot be read.
#[must_use]
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = names.value.general_names.iter();
    names
        .filter_map(
            |name| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None },
        )
        .collect()
}
