//! Why the client is ours: what `oci-client` does that ours must not, beside what ours does. A test that fails with a newer
//! version shows that a part of ours can go.

use http::HeaderValue;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;

use super::*;

const TYPES: &[&str] = &["application/vnd.oci.image.manifest.v1+json"];

fn client(protocol: ClientProtocol, certificate: Option<String>) -> oci_client::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = certificate.map(String::into_bytes);
    let certificate = certificate.map(|data| Certificate { encoding: CertificateEncoding::Pem, data });
    let extra_root_certificates = certificate.into_iter().collect();
    oci_client::Client::try_from(ClientConfig {
        protocol,
        extra_root_certificates,
        ..ClientConfig::default()
    })
    .unwrap()
}

/// A registry with an image as `a/b:v1`.
fn registry() -> (Fake, Reference, oci_client::Reference) {
    let fake = Fake::new();
    let ours = fake.add("a/b", "v1", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    let theirs = oci_client::Reference::with_tag(fake.address.clone(), "a/b".into(), "v1".into());
    (fake, ours, theirs)
}

async fn manifest(
    client: &oci_client::Client,
    of: &oci_client::Reference,
) -> Result<usize, OciDistributionError> {
    let pulled = client.pull_manifest_raw(of, &RegistryAuth::Anonymous, TYPES).await;
    pulled.map(|(bytes, _)| bytes.len())
}

/// Ours waits as long as it is asked to, or names the delay.
#[test]
fn it_hides_status_and_delay_of_a_busy_registry() {
    let (fake, ours, theirs) = registry();
    let cache = tempfile::tempdir().unwrap();
    fake.fault("/manifests/", Fault::Status(429, Some(3600)));
    let hint = pull(&ours, &sample::options(cache.path())).unwrap_err().hint();
    assert!(hint.as_deref().is_some_and(|hint| hint.contains("3600 s")), "{hint:?}");
    fake.fault("/manifests/", Fault::Status(429, Some(3600)));
    let error = run(manifest(&client(ClientProtocol::Http, None), &theirs)).unwrap_err();
    assert!(matches!(error, OciDistributionError::RegistryError { .. }), "{error:?}");
    let shown = format!("{error:?}").replace(&fake.address, "");
    assert!(!shown.contains("3600") && !shown.contains("429"), "{shown}");
}

/// Ours ends at its limit, also with what comes with a failure.
#[test]
fn it_reads_answers_of_any_size() {
    let (fake, ours, theirs) = registry();
    let cache = tempfile::tempdir().unwrap();
    let size = 64 << 20;
    let route = (String::new(), vec![b' '; size]);
    fake.state.lock().unwrap().routes.insert("/v2/a/b/manifests/v1".into(), route);
    let error = pull(&ours, &sample::options(cache.path())).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert_eq!(run(manifest(&client(ClientProtocol::Http, None), &theirs)).unwrap(), size);
}

/// Ours takes the digest of what it sent.
#[test]
fn it_panics_at_a_pushed_digest_without_a_location() {
    let (fake, _, theirs) = registry();
    let path =
        fake.state.lock().unwrap().routes.keys().find(|path| path.contains("/manifests/sha256:")).cloned();
    let digest = path.unwrap().rsplit('/').next().unwrap().to_owned();
    fake.fault(&digest, Fault::Status(201, None));
    let theirs = theirs.clone_with_digest(digest);
    let pushed = run(async {
        let content = HeaderValue::from_static(TYPES[0]);
        let client = client(ClientProtocol::Http, None);
        tokio::spawn(async move { client.push_manifest_raw(&theirs, "{}", content).await }).await
    });
    assert!(pushed.unwrap_err().is_panic());
}

/// Ours refuses: the keys in the address and the content would not be encrypted.
#[test]
fn it_follows_from_tls_to_plain_http() {
    let (fake, ..) = registry();
    let directory = tempfile::tempdir().unwrap();
    let mut options = sample::options(&directory.path().join("cache"));
    run(async {
        let (port, certificate) = super::tls::server(fake.address.clone()).await;
        let to = || Fault::Redirect(format!("http://{}/v2/a/b/manifests/v1", fake.address));
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, &certificate).unwrap();
        options.network.ca_file = Some(file);
        fake.fault("/manifests/", to());
        let source = Source::Registry(format!("localhost:{port}/a/b:v1").parse().unwrap());
        let error = load(&source, &options, &crate::source::Quiet).await.unwrap_err();
        assert!(error.to_string().contains("redirects from TLS to plain HTTP"), "{error}");
        fake.fault("/manifests/", to());
        let theirs = oci_client::Reference::with_tag(format!("localhost:{port}"), "a/b".into(), "v1".into());
        manifest(&client(ClientProtocol::Https, Some(certificate)), &theirs).await.unwrap();
    });
}
