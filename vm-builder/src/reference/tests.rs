use proptest::prelude::*;

use super::*;

fn full(text: &str) -> String {
    text.parse::<Reference>().unwrap().to_string()
}

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn names_are_completed_as_docker_does() {
    let digest = format!("sha256:{HEX}");
    for (text, expected) in [
        ("postgres", "docker.io/library/postgres:latest".to_owned()),
        ("postgres:16", "docker.io/library/postgres:16".into()),
        ("docker.io/library/postgres:16", "docker.io/library/postgres:16".into()),
        ("index.docker.io/postgres", "docker.io/library/postgres:latest".into()),
        ("bitnami/postgres", "docker.io/bitnami/postgres:latest".into()),
        ("localhost/a", "localhost/a:latest".into()),
        ("localhost:5000/a/b:1.0_x-y", "localhost:5000/a/b:1.0_x-y".into()),
        ("[::1]:5000/a", "[::1]:5000/a:latest".into()),
        ("[::1]/a", "[::1]/a:latest".into()),
        ("GHCR.io/a/b", "ghcr.io/a/b:latest".into()),
        ("Host/a", "Host/a:latest".into()),
        ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest".into()),
        ("a__b/c--d.e", "docker.io/a__b/c--d.e:latest".into()),
    ] {
        assert_eq!(full(text), expected, "{text}");
    }
    let both = format!("host:5000/a/b:v1@{digest}");
    let reference: Reference = both.parse().unwrap();
    assert_eq!((reference.tag(), reference.target()), (Some("v1"), digest.clone()));
    assert_eq!(reference.to_string(), both);
    let only: Reference = format!("host:5000/a/b@{digest}").parse().unwrap();
    assert_eq!((only.tag(), only.repository()), (None, "a/b"));
}

#[test]
fn errors_name_the_part() {
    for (text, part) in [
        ("", "reference"),
        ("a@sha256:12", "digest"),
        ("a@sha512:12", "digest"),
        ("a@", "digest"),
        ("a:", "tag"),
        ("a:.x", "tag"),
        ("a:b:c", "tag"),
        ("a/B", "repository"),
        ("a//b", "repository"),
        ("-a", "repository"),
        ("a_", "repository"),
        ("a..b/c..d", "registry"),
        ("x/c..d", "repository"),
        ("host:0/a", "registry"),
        ("host:99999/a", "registry"),
        ("host:5000/", "repository"),
        ("[::1/a", "registry"),
        ("[x]/a", "registry"),
        ("ho..st/a", "registry"),
        ("/etc/passwd", "repository"),
        ("../a", "registry"),
        ("a b", "repository"),
    ] {
        let error = text.parse::<Reference>().unwrap_err();
        assert_eq!(error.part, part, "{text}: {error}");
    }
}

#[test]
fn loopback_is_recognised_without_dns() {
    for (text, expected) in [
        ("localhost:5000/a", true),
        ("127.9.9.9/a", true),
        ("[::1]:5000/a", true),
        ("localhost.example/a", false),
        ("10.0.0.1/a", false),
        ("a", false),
    ] {
        assert_eq!(text.parse::<Reference>().unwrap().is_loopback(), expected, "{text}");
    }
}

#[test]
fn digests_are_those_of_the_standard() {
    let empty = Digest::from_bytes(b"");
    assert_eq!(empty.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(empty.to_string().parse::<Digest>().unwrap(), empty);
    assert!(format!("sha256:{}", HEX.to_uppercase()).parse::<Digest>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics_and_what_is_accepted_is_stable(text in "[a-zA-Z0-9:/@._\\[\\]-]{0,40}|.{0,40}") {
        if let Ok(reference) = text.parse::<Reference>() {
            let printed = reference.to_string();
            prop_assert_eq!(printed.parse::<Reference>().unwrap(), reference);
        }
    }
}
