//! Indexes, platforms, and documents that are no images.

use super::*;
use crate::source::Platform;

#[test]
fn platforms_are_chosen_from_indexes() {
    let fake = Fake::new();
    let amd = sample::image(&sample::layers(), Form::Gzip, "amd64");
    let arm = sample::image(&sample::layers(), Form::Zstd, "arm64");
    fake.add("a/b", "amd", &amd);
    let arm_reference = fake.add("a/b", "arm", &arm);
    let entry = |image: &crate::store::Image, os: &str, architecture: &str| {
        serde_json::json!({"mediaType": image.media_type, "digest": image.digest(),
            "size": image.manifest.len(), "platform": {"os": os, "architecture": architecture}})
    };
    let index = serde_json::json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry(&amd, "linux", "amd64"), entry(&arm, "linux", "arm64"), entry(&arm, "unknown", "unknown")],
    });
    let route = (String::new(), serde_json::to_vec(&index).unwrap());
    fake.state.lock().unwrap().routes.insert("/v2/a/b/manifests/multi".into(), route);
    let reference: Reference = format!("{}/a/b:multi", fake.address).parse().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let mut options = sample::options(cache.path());
    assert_eq!(pull(&reference, &options).unwrap().digest, amd.digest());
    options.platform = "linux/arm64/v8".parse::<Platform>().unwrap();
    assert_eq!(pull(&reference, &options).unwrap().settings.architecture, "arm64");
    options.platform = "linux/riscv64".parse().unwrap();
    let error = pull(&reference, &options).unwrap_err().to_string();
    assert!(error.ends_with("is not for linux/riscv64, only for linux/amd64, linux/arm64"), "{error}");
    let error = pull(&arm_reference, &options).unwrap_err().to_string();
    assert!(error.ends_with("only for linux/arm64"), "{error}");
}

#[test]
fn indexes_may_nest_but_not_for_ever() {
    let fake = Fake::new();
    let image = sample::image(&sample::layers(), Form::Gzip, "amd64");
    fake.add("a/b", "v1", &image);
    let mut inner = (image.media_type.clone(), image.manifest.clone());
    let cache = tempfile::tempdir().unwrap();
    for depth in 1..6 {
        let index = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{"mediaType": inner.0, "digest": crate::reference::Digest::from_bytes(&inner.1), "size": inner.1.len()}],
        });
        let bytes = serde_json::to_vec(&index).unwrap();
        inner = ("application/vnd.oci.image.index.v1+json".into(), bytes.clone());
        let mut state = fake.state.lock().unwrap();
        for target in [format!("deep{depth}"), crate::reference::Digest::from_bytes(&bytes).to_string()] {
            state.routes.insert(format!("/v2/a/b/manifests/{target}"), inner.clone());
        }
        drop(state);
        let reference = format!("{}/a/b:deep{depth}", fake.address).parse().unwrap();
        let pulled = pull(&reference, &sample::options(cache.path()));
        assert_eq!(pulled.is_ok(), depth < 4, "{depth}");
    }
}

#[test]
fn what_is_no_image_is_refused_by_its_type() {
    let fake = Fake::new();
    let cache = tempfile::tempdir().unwrap();
    let options = sample::options(cache.path());
    let image = sample::image(&sample::layers(), Form::Gzip, "amd64");
    let reference = fake.add("a/b", "v1", &image);
    let text = String::from_utf8(image.manifest.clone()).unwrap();
    let set = |body: Vec<u8>| {
        fake.state.lock().unwrap().routes.insert("/v2/a/b/manifests/v1".into(), (String::new(), body));
    };
    for (from, to) in [
        (
            "application/vnd.oci.image.layer.v1.tar+gzip",
            "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        ),
        ("application/vnd.oci.image.config.v1+json", "application/vnd.cncf.helm.config.v1+json"),
        (
            "application/vnd.oci.image.manifest.v1+json",
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
        ),
    ] {
        set(text.replace(from, to).into_bytes());
        let error = pull(&reference, &options).unwrap_err();
        assert!(matches!(&error, Error::MediaType { media_type, .. } if media_type == to), "{error}");
    }
    set(b"<html>".to_vec());
    assert!(matches!(pull(&reference, &options).unwrap_err(), Error::Malformed { .. }));
    set(vec![b' '; 9 << 20]);
    assert!(matches!(pull(&reference, &options).unwrap_err(), Error::Limit { .. }));
}
