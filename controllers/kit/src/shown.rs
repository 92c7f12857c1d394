//! What TLS shows: exchanged while configurations that were made with it are in use.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::ca::{Error, Identity};
use crate::pem::{certificates, key, provider};

/// A certificate with its key. Handshakes show the one of the moment.
#[derive(Debug)]
pub struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    /// Shows this one.
    ///
    /// # Errors
    /// If it cannot be read, or the key is of another certificate.
    pub fn new(identity: &Identity) -> Result<Self, Error> {
        Ok(Self(RwLock::new(certified(identity)?)))
    }

    /// Shows this one from now on.
    ///
    /// # Errors
    /// As [`Shown::new`]; the old one stays then.
    pub fn replace(&self, identity: &Identity) -> Result<(), Error> {
        let next = certified(identity)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    fn get(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A certificate and its key as rustls has them, of one pair for certain.
fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let chain = certificates(identity.certificate.as_bytes(), "the certificate")?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key(&identity.key)?, &provider())?))
}
