//! The authorities that TLS trusts: replaced while TLS configurations use them, like a service's own certificate.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error as TlsError, SignatureScheme};

use crate::ca::Error;
use crate::pem::{certificates, provider, roots};
use crate::pinned::Pinned;

/// The authorities of the moment, as clients and servers check certificates. A connection that is open stays open, whatever is
/// trusted later.
#[derive(Debug)]
pub struct Trust(RwLock<Arc<Trusted>>);

#[derive(Debug)]
struct Trusted {
    bundle: String,
    of_servers: Arc<dyn ServerCertVerifier>,
    of_clients: Arc<dyn ClientCertVerifier>,
}

impl Trusted {
    fn new(bundle: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            bundle: bundle.to_owned(),
            of_servers: of_servers(bundle.as_bytes())?,
            of_clients: if_shown(bundle)?,
        }))
    }
}

impl Trust {
    /// Trusts the authorities in a bundle of certificates, PEM.
    ///
    /// # Errors
    /// If it holds no certificate, or one that cannot be read.
    pub fn new(bundle: &str) -> Result<Self, Error> {
        Ok(Self(RwLock::new(Trusted::new(bundle)?)))
    }

    /// Trusts these from now on; whether they are others than before.
    ///
    /// # Errors
    /// As [`Trust::new`]; those before stay then.
    pub fn replace(&self, bundle: &str) -> Result<bool, Error> {
        if self.get().bundle == bundle {
            return Ok(false);
        }
        let next = Trusted::new(bundle)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(true)
    }

    /// The bundle of the moment, PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.get().bundle.clone()
    }

    fn get(&self) -> Arc<Trusted> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.get().of_servers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.get().of_servers.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.get().of_servers.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().of_servers.supported_verify_schemes()
    }
}

/// Takes clients without a certificate, and of those that show one only such of the authorities.
impl ClientCertVerifier for Trust {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Names of authorities are a hint to clients with several certificates; ours have one, and all our authorities have one name.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.get().of_clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.get().of_clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.get().of_clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.get().of_clients.supported_verify_schemes()
    }
}

/// Takes clients without a certificate, and of those that show one only such of the authority.
pub(crate) fn if_shown(authority: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let roots = Arc::new(roots(authority.as_bytes())?);
    WebPkiClientVerifier::builder_with_provider(roots, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|_| Error::Pem { path: "the certificate authority".into(), wanted: "a certificate" })
}

/// Checks certificates of servers against the authorities in a bundle.
pub(crate) fn of_servers(authority: &[u8]) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let bundle = certificates(authority, "the certificate authority")?;
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authority)?), provider())
        .build()
        .map_err(|_| Error::Pem { path: "the certificate authority".into(), wanted: "a certificate" })?;
    Ok(Arc::new(Pinned { usual, bundle }))
}
