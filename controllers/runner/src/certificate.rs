//! What is wrong with a certificate, in words: libraries hide that deep inside of their errors, or in the name of an alert.

use std::error::Error;

use rustls::{AlertDescription as Alert, CertificateError as Why, Error as Tls};

/// Why a connection with another runner failed, for people. `it` is the other runner.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    let known = match cause(error) {
        Some(Tls::InvalidCertificate(Why::Expired | Why::ExpiredContext { .. })) => {
            "its certificate has expired"
        }
        Some(Tls::InvalidCertificate(Why::NotValidYet | Why::NotValidYetContext { .. })) => {
            "its certificate is not valid yet"
        }
        // All authorities have one name: of another one only the signature is wrong.
        Some(Tls::InvalidCertificate(Why::UnknownIssuer | Why::BadSignature)) => {
            "its certificate is of another authority"
        }
        Some(Tls::AlertReceived(Alert::CertificateExpired)) => {
            "by its clock the certificate of this runner has expired"
        }
        Some(Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError)) => {
            "for it the certificate of this runner is of another authority"
        }
        _ => return error.to_string(),
    };
    known.to_owned()
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Tls> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = error.downcast_ref::<Tls>() {
            return Some(tls);
        }
        // What an I/O error wraps is not its source: it speaks for it.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use neonvm_kit::ca::{Authority, Identity};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    const NAME: &str = "one.example";

    /// What each side says of the other.
    async fn meet(authority: &Authority, client: &Identity, server: &Identity) -> (String, String) {
        let trusted = authority.certificate();
        let client = neonvm_kit::tls::client(Some(client), trusted.as_bytes()).unwrap();
        let server = neonvm_kit::tls::private_server(server, trusted).unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let asks = async {
            let name = ServerName::try_from(NAME).unwrap();
            let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
            stream.write_all(b"?").await?;
            stream.read_u8().await
        };
        let answers = async {
            let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
            stream.read_u8().await?;
            stream.write_all(b"!").await?;
            stream.shutdown().await
        };
        let (asked, answered) = tokio::join!(asks, answers);
        let say = |result: Result<(), std::io::Error>| {
            // As a library of HTTP passes it on.
            result.map_or_else(|error| words(&std::io::Error::other(error)), |()| "well".to_owned())
        };
        (say(asked.map(drop)), say(answered))
    }

    #[tokio::test]
    async fn an_old_certificate_and_a_strange_one_are_named_on_both_sides() {
        let (authority, _) = Authority::generate().unwrap();
        let (other, _) = Authority::generate().unwrap();
        let names = [NAME.to_owned()];
        let good = authority.peer("x", &names).unwrap();
        let old = authority.peer_for("x", &names, -60).unwrap();
        let strange = other.peer("x", &names).unwrap();
        assert_eq!(meet(&authority, &good, &good).await, ("well".to_owned(), "well".to_owned()));
        let (client, server) = meet(&authority, &old, &good).await;
        assert_eq!(client, "by its clock the certificate of this runner has expired");
        assert_eq!(server, "its certificate has expired");
        let (client, server) = meet(&authority, &good, &old).await;
        assert_eq!(client, "its certificate has expired");
        assert_eq!(server, "by its clock the certificate of this runner has expired");
        let (client, server) = meet(&authority, &strange, &good).await;
        assert_eq!(client, "for it the certificate of this runner is of another authority");
        assert_eq!(server, "its certificate is of another authority");
        let (client, server) = meet(&authority, &good, &strange).await;
        assert_eq!(client, "its certificate is of another authority");
        assert_eq!(server, "for it the certificate of this runner is of another authority");
    }
}
