//! Registries with TLS, on loopback.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A server with its own certificate that forwards to a fake without TLS. Returns its port and certificate.
async fn server(fake: String) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (acceptor, fake) = (acceptor.clone(), fake.clone());
            tokio::spawn(async move {
                // Servers answer a request without TLS with a line of text.
                let mut first = [0];
                if stream.peek(&mut first).await.is_ok() && first[0] != 0x16 {
                    let answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                    return;
                }
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let Ok(mut to) = tokio::net::TcpStream::connect(fake).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut to).await;
            });
        }
    });
    (port, signed.cert.pem())
}

#[test]
fn a_certificate_must_be_trusted() {
    let fake = Fake::new();
    fake.add("a/b", "v1", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    let directory = tempfile::tempdir().unwrap();
    let mut options = sample::options(&directory.path().join("cache"));
    run(async {
        let (port, certificate) = server(fake.address.clone()).await;
        let source = Source::Registry(format!("localhost:{port}/a/b:v1").parse().unwrap());
        let error = load(&source, &options, &crate::source::Quiet).await.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }), "{error}");
        assert!(error.hint().unwrap().contains("--ca-file"));
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, certificate).unwrap();
        options.network.ca_file = Some(file.clone());
        let loaded = load(&source, &options, &crate::source::Quiet).await.unwrap();
        assert_eq!(sample::listed(&loaded), sample::expected());
        std::fs::write(&file, "nothing").unwrap();
        let error = load(&source, &options, &crate::source::Quiet).await.unwrap_err();
        assert!(error.to_string().contains("holds no certificate"), "{error}");
    });
}

/// The keys in the address and the content would not be encrypted.
#[test]
fn a_redirection_from_tls_to_plain_http_is_refused() {
    let fake = Fake::new();
    fake.add("a/b", "v1", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    let directory = tempfile::tempdir().unwrap();
    let mut options = sample::options(&directory.path().join("cache"));
    run(async {
        let (port, certificate) = server(fake.address.clone()).await;
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, &certificate).unwrap();
        options.network.ca_file = Some(file);
        fake.fault("/manifests/", Fault::Redirect(format!("http://{}/v2/a/b/manifests/v1", fake.address)));
        let source = Source::Registry(format!("localhost:{port}/a/b:v1").parse().unwrap());
        let error = load(&source, &options, &crate::source::Quiet).await.unwrap_err();
        assert!(error.to_string().contains("redirects from TLS to plain HTTP"), "{error}");
    });
}
