//! What a certificate names: common name, organisations, DNS names.

use rustls::pki_types::CertificateDer;

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
