//! rustls configurations from PEM texts. One stack: rustls with ring.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WantsClientCert};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ConfigBuilder, ServerConfig};

use crate::ca::{Error, Identity};
use crate::pem::{certificates, key, provider, roots};
use crate::shown::Shown;
use crate::trust::{Trust, if_shown, of_servers};

pub use crate::subject::{common_name, dns_names, organisations};
pub use crate::unchecked::unchecked;

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

fn trusting(
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}
