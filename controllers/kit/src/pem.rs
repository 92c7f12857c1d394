//! Certificates and keys of PEM texts, as rustls takes them.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca::Error;

pub(crate) fn certificates(pem: &[u8], path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = || Error::Pem { path: path.to_owned(), wanted: "a certificate" };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| bad())?;
    if all.is_empty() { Err(bad()) } else { Ok(all) }
}

pub(crate) fn key(pem: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| Error::Pem { path: "the private key".into(), wanted: "a private key" })
}

pub(crate) fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem, "the certificate authority")? {
        store.add(certificate)?;
    }
    Ok(store)
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
