//! Which authorities a process trusts that reads their certificates from an object that others can write, such as a Secret in the
//! namespace of a VM: those whose fingerprints it got in a way that cannot be changed later, and those that they certify.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::ca::Error;
use crate::pem::certificates;

/// SHA-256, in 64 hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The fingerprints of the certificates of a bundle, PEM: the SHA-256 of each.
///
/// # Errors
/// If it holds no certificate, or one that cannot be read.
pub fn fingerprints(bundle: &str) -> Result<Vec<String>, Error> {
    let all = certificates(bundle.as_bytes(), "the certificate authority")?;
    Ok(all.iter().map(|certificate| sha256(certificate)).collect())
}

/// Of a bundle, PEM, the certificates with these fingerprints, and those of authorities that one of them, or one that is admitted,
/// certifies; what certifies must be in the bundle. An authority that is handed over certifies the next one, see [`crate::ca::Authority::certify`].
///
/// # Errors
/// If a certificate cannot be read, or none is admitted.
pub fn admitted(bundle: &str, known: &[String]) -> Result<String, Error> {
    let all = certificates(bundle.as_bytes(), "the certificate authority")?;
    let parsed: Vec<(&CertificateDer<'_>, X509Certificate<'_>)> = all
        .iter()
        .filter_map(|der| Some((der, X509Certificate::from_der(der).ok()?.1)))
        .filter(|(_, certificate)| certificate.is_ca())
        .collect();
    let mut good: Vec<bool> = parsed.iter().map(|(der, _)| known.contains(&sha256(der))).collect();
    // Each round admits at least one more.
    for _ in 0..parsed.len() {
        let admit = |(index, (_, one)): (usize, &(&CertificateDer<'_>, X509Certificate<'_>))| {
            let by_one = parsed.iter().zip(&good).any(|((_, other), &is_good)| {
                is_good
                    && (is_same(one, other)
                        || (one.issuer() == other.subject()
                            && one.verify_signature(Some(other.public_key())).is_ok()))
            });
            good.get(index).is_some_and(|&already| already) || by_one
        };
        good = parsed.iter().enumerate().map(admit).collect();
    }
    let texts = parsed.iter().zip(good).filter(|(_, is_good)| *is_good);
    let text: String = texts.map(|((der, _), _)| text(der)).collect();
    if text.is_empty() {
        return Err(Error::Unknown(fingerprints(bundle)?.join(", "), known.join(", ")));
    }
    Ok(text)
}

/// Whether two certificates are of the same authority: of its name and its key.
fn is_same(one: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
    one.subject() == other.subject() && one.public_key().raw == other.public_key().raw
}

fn text(der: &CertificateDer<'_>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der.to_vec()), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Authority;

    fn certificates(text: &str) -> usize {
        text.matches("BEGIN CERTIFICATE").count()
    }

    #[test]
    fn only_known_authorities_and_those_that_they_certify_are_admitted() {
        let (first, _) = Authority::generate().unwrap();
        let (second, second_key) = Authority::generate().unwrap();
        let (third, third_key) = Authority::generate().unwrap();
        let known = fingerprints(first.certificate()).unwrap();
        assert_eq!(admitted(first.certificate(), &known).unwrap(), first.certificate().replace('\r', ""));
        // Of the same name, but certified by no known authority.
        let both = format!("{}{}", first.certificate(), second.certificate());
        assert_eq!(certificates(&admitted(&both, &known).unwrap()), 1);
        let error = admitted(second.certificate(), &known).unwrap_err().to_string();
        assert!(error.contains(&known[0]) && error.contains(&fingerprints(second.certificate()).unwrap()[0]));
        // A handover, and one after it.
        let (one, two) = (first.certify(&second_key, 600).unwrap(), second.certify(&third_key, 600).unwrap());
        let next = format!("{}{one}{}", second.certificate(), first.certificate());
        assert_eq!(certificates(&admitted(&next, &known).unwrap()), 3);
        let after = format!("{}{two}{next}", third.certificate());
        assert_eq!(certificates(&admitted(&after, &known).unwrap()), 5);
        let broken = format!("{}{two}{}", third.certificate(), first.certificate());
        assert_eq!(certificates(&admitted(&broken, &known).unwrap()), 1);
    }

    /// What an authority signs for a service or a runner makes no authority.
    #[test]
    fn a_certificate_of_a_service_makes_no_authority() {
        let (authority, _) = Authority::generate().unwrap();
        let known = fingerprints(authority.certificate()).unwrap();
        let leaf = authority.peer_for("x", &["x.example".to_owned()], 3600).unwrap();
        let bundle = format!("{}{}", authority.certificate(), leaf.certificate);
        assert_eq!(certificates(&admitted(&bundle, &known).unwrap()), 1);
        admitted("nothing", &known).unwrap_err();
    }
}
