//! What keeps a client safe from its registry, and what `oci-client` (0.18) lacks: delays that are reported, limits of answers, no way
//! from TLS to plain HTTP.

use super::*;

/// A registry with an image as `a/b:v1`.
fn registry() -> (Fake, Reference) {
    let fake = Fake::new();
    let reference = fake.add("a/b", "v1", &sample::image(&sample::layers(), Form::Gzip, "amd64"));
    (fake, reference)
}

#[test]
fn the_delay_of_a_busy_registry_is_named() {
    let (fake, reference) = registry();
    let cache = tempfile::tempdir().unwrap();
    fake.fault("/manifests/", Fault::Status(429, Some(3600)));
    let hint = pull(&reference, &sample::options(cache.path())).unwrap_err().hint();
    assert!(hint.as_deref().is_some_and(|hint| hint.contains("3600 s")), "{hint:?}");
}

#[test]
fn an_answer_ends_at_its_limit() {
    let (fake, reference) = registry();
    let cache = tempfile::tempdir().unwrap();
    let route = (String::new(), vec![b' '; 64 << 20]);
    fake.state.lock().unwrap().routes.insert("/v2/a/b/manifests/v1".into(), route);
    let error = pull(&reference, &sample::options(cache.path())).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

/// The keys in the address and the content would not be encrypted.
#[test]
fn a_redirection_from_tls_to_plain_http_is_refused() {
    let (fake, _) = registry();
    let directory = tempfile::tempdir().unwrap();
    let mut options = sample::options(&directory.path().join("cache"));
    run(async {
        let (port, certificate) = super::tls::server(fake.address.clone()).await;
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, &certificate).unwrap();
        options.network.ca_file = Some(file);
        fake.fault("/manifests/", Fault::Redirect(format!("http://{}/v2/a/b/manifests/v1", fake.address)));
        let source = Source::Registry(format!("localhost:{port}/a/b:v1").parse().unwrap());
        let error = load(&source, &options, &crate::source::Quiet).await.unwrap_err();
        assert!(error.to_string().contains("redirects from TLS to plain HTTP"), "{error}");
    });
}
