//! Certificate requests: made with a key that stays where it is, and signed for a subject that is not taken from them.

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, KeyPair,
};
use time::Duration;

use super::{Authority, Error, name};

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Client,
    Server,
}

impl Purpose {
    #[must_use]
    pub const fn usage(self) -> &'static str {
        match self {
            Self::Client => "client auth",
            Self::Server => "server auth",
        }
    }
}

/// The subject of a certificate, and its usages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    /// Organisation, from which servers derive what a client may do.
    pub organisation: Option<String>,
    /// Names by which clients verify a server.
    pub dns_names: Vec<String>,
    pub purpose: Purpose,
}

impl Subject {
    #[must_use]
    pub fn client(common_name: String, organisation: &str) -> Self {
        let organisation = Some(organisation.to_owned());
        Self { common_name, organisation, dns_names: Vec::new(), purpose: Purpose::Client }
    }

    #[must_use]
    pub const fn server(common_name: String, dns_names: Vec<String>) -> Self {
        Self { common_name, organisation: None, dns_names, purpose: Purpose::Server }
    }
}

/// A request with verified proof of possession of its key.
#[derive(Debug)]
pub struct Request(CertificateSigningRequestParams);

impl Request {
    /// Makes a request, PEM, and the key that it is for, PEM. It contains nothing but a common name.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(common_name: &str) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(common_name, &[]);
        Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
    }

    /// Reads a request, PEM.
    ///
    /// # Errors
    /// If it cannot be read, or its signature is wrong.
    pub fn parse(pem: &str) -> Result<Self, Error> {
        Ok(Self(CertificateSigningRequestParams::from_pem(pem)?))
    }

    /// Common name of its subject; empty if there is none.
    #[must_use]
    pub fn common_name(&self) -> String {
        match self.0.params.distinguished_name.get(&DnType::CommonName) {
            Some(DnValue::Utf8String(text)) => text.clone(),
            Some(DnValue::PrintableString(text)) => text.as_str().to_owned(),
            Some(DnValue::Ia5String(text)) => text.as_str().to_owned(),
            _ => String::new(),
        }
    }
}

impl Authority {
    /// Signs the key of a request; nothing else of it is taken. PEM.
    ///
    /// # Errors
    /// If a name is not valid.
    pub fn sign_request(&self, request: &Request, subject: &Subject, seconds: i64) -> Result<String, Error> {
        let mut params = CertificateParams::new(subject.dns_names.clone())?;
        params.extended_key_usages = vec![match subject.purpose {
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let organisations: Vec<&str> = subject.organisation.iter().map(String::as_str).collect();
        params.distinguished_name = name(&subject.common_name, &organisations);
        super::complete(&mut params, Duration::seconds(seconds));
        let public_key = request.0.public_key.clone();
        let signed = CertificateSigningRequestParams { params, public_key };
        Ok(signed.signed_by(&self.issuer)?.pem())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;

    #[test]
    fn of_a_request_only_the_key_is_signed() {
        let key = KeyPair::generate().unwrap();
        let mut greedy = CertificateParams::new(vec!["scheduler.neonvm".to_owned()]).unwrap();
        greedy.distinguished_name = name("me", &["neonvm:controllers"]);
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        greedy.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pem = greedy.serialize_request(&key).unwrap().pem().unwrap();
        let request = Request::parse(&pem).unwrap();
        assert_eq!(request.common_name(), "me");
        let (authority, _) = Authority::generate().unwrap();
        let subject = Subject::client("user".to_owned(), "people");
        let signed = authority.sign_request(&request, &subject, 600).unwrap();
        let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
        assert_eq!(crate::tls::common_name(&der), "user");
        assert_eq!(crate::tls::organisations(&der), ["people"]);
        assert!(crate::tls::dns_names(&der).is_empty());
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(!certificate.is_ca());
        let usage = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(certificate.public_key().subject_public_key.data.as_ref(), key.public_key_raw());
        let validity = certificate.validity();
        let life = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert_eq!(life, 600 + 60);
    }

    #[test]
    fn a_key_that_is_not_held_is_not_signed() {
        let (pem, _) = Request::make("x").unwrap();
        assert_eq!(Request::parse(&pem).unwrap().common_name(), "x");
        let mut der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .unwrap()
            .as_ref()
            .to_vec();
        // The last byte belongs to the signature.
        *der.last_mut().unwrap() ^= 1;
        assert!(CertificateSigningRequestParams::from_der(&der.into()).is_err());
        assert!(
            Request::parse("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
                .is_err()
        );
    }
}
