//! Indexes, platforms, and documents that are no images.

use super::*;
use crate::registry::manifest::{IndexEntry, choose, note};
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

/// An index of images whose manifests name only themselves: what is chosen is seen by its digest.
fn chosen(platforms: &[&str], wanted: &str) -> Result<usize, Error> {
    let entries: Vec<serde_json::Value> = platforms
        .iter()
        .enumerate()
        .map(|(number, text)| {
            let mut parts = text.split('/');
            let (os, architecture, variant) = (parts.next(), parts.next(), parts.next());
            let digest = crate::reference::Digest::from_bytes(&[number as u8]);
            let mut entry = serde_json::json!({"digest": digest, "size": 1});
            if architecture.is_some() {
                entry["platform"] = serde_json::json!({"os": os, "architecture": architecture});
            }
            if let Some(variant) = variant {
                entry["platform"]["variant"] = variant.into();
            }
            if os == Some("attestation") {
                entry["annotations"] =
                    serde_json::json!({"vnd.docker.reference.type": "attestation-manifest"});
            }
            entry
        })
        .collect();
    let entries: Vec<IndexEntry> = serde_json::from_value(entries.into()).unwrap();
    let entry = choose(&entries, &wanted.parse().unwrap(), "x")?;
    Ok(entries.iter().position(|other| other.descriptor.digest == entry.descriptor.digest).unwrap())
}

#[test]
fn the_highest_variant_that_runs_is_chosen_in_any_order_and_spelling() {
    for (platforms, wanted, expected) in [
        (&["linux/amd64/v3", "linux/amd64", "unknown/unknown"][..], "linux/amd64/v1", Some(1)),
        (&["linux/amd64/v3", "linux/amd64"], "linux/amd64/v2", Some(1)),
        (&["linux/amd64/v3", "linux/amd64"], "linux/amd64/v3", Some(0)),
        (&["linux/amd64", "linux/amd64/v2", "linux/amd64/v4", "linux/amd64/v3"], "linux/amd64/v3", Some(3)),
        (&["linux/amd64/v4", "linux/amd64/v1"], "linux/amd64", Some(1)),
        (&["linux/amd64/v4"], "linux/amd64", None),
        (&["linux/x86_64"], "linux/amd64", Some(0)),
        (&["Linux/X86-64", "linux/aarch64"], "linux/arm64", Some(1)),
        (&["linux/arm64/v9", "linux/arm64/v8"], "linux/arm64", Some(1)),
        (&["linux/arm/v5", "linux/armhf", "linux/arm/v6"], "linux/arm", Some(1)),
        (&["linux/arm64", "linux/armel"], "linux/arm", Some(1)),
        (&["unknown/unknown", "Unknown/amd64", "attestation"], "linux/amd64", None),
        (&["attestation", "nested"], "linux/amd64", Some(1)),
        (&["nested", "linux/amd64"], "linux/amd64", Some(1)),
        (&["linux/amd64", "linux/amd64/v1"], "linux/amd64", Some(0)),
        (&["windows/amd64", "linux/riscv64"], "linux/amd64", None),
        (&[], "linux/amd64", None),
    ] {
        assert_eq!(chosen(platforms, wanted).ok(), expected, "{platforms:?} for {wanted}");
    }
    let error =
        chosen(&["linux/amd64/v4", "linux/x86_64/v3", "unknown/unknown"], "linux/amd64/v2").unwrap_err();
    assert_eq!(error.to_string(), "x is not for linux/amd64/v2, only for linux/amd64/v3, linux/amd64/v4");
}

#[test]
fn a_choice_among_variants_is_reported_unless_it_was_requested() {
    let entries: Vec<IndexEntry> = serde_json::from_value(serde_json::json!([
        {"digest": crate::reference::Digest::from_bytes(b"1"), "size": 1, "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": crate::reference::Digest::from_bytes(b"2"), "size": 1,
         "platform": {"os": "linux", "architecture": "amd64", "variant": "v2"}},
    ]))
    .unwrap();
    let text = note(&entries, &"linux/amd64".parse().unwrap(), &entries[1]).unwrap();
    assert!(text.starts_with("took linux/amd64/v2 and not linux/amd64: "), "{text}");
    assert!(text.ends_with("--arch amd64/v1"), "{text}");
    assert_eq!(note(&entries, &"linux/amd64/v2".parse().unwrap(), &entries[1]), None);
    assert_eq!(note(&entries, &"linux/amd64".parse().unwrap(), &entries[0]), None);
}

#[test]
fn configurations_name_their_platform_in_any_spelling() {
    let fake = Fake::new();
    let cache = tempfile::tempdir().unwrap();
    for (tag, architecture, wanted, is_taken) in [
        ("a", "x86_64", "linux/amd64", true),
        ("b", "aarch64", "linux/arm64", true),
        ("c", "AMD64", "linux/x86-64", true),
        ("d", "aarch64", "linux/amd64", false),
    ] {
        let image = sample::image(&sample::layers(), Form::Gzip, architecture);
        let reference = fake.add("a/b", tag, &image);
        let mut options = sample::options(cache.path());
        options.platform = wanted.parse().unwrap();
        assert_eq!(pull(&reference, &options).is_ok(), is_taken, "{architecture} for {wanted}");
    }
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
    set(b"<!DOCTYPE html>\n<html>Log in</html>".to_vec());
    let error = pull(&reference, &options).unwrap_err();
    assert!(matches!(&error, Error::Format { format: "an HTML page", .. }), "{error}");
    assert!(error.hint().unwrap().contains("proxy"));
    set(b"{\"schemaVersion\": 2,".to_vec());
    assert!(matches!(pull(&reference, &options).unwrap_err(), Error::Malformed { .. }));
    set(vec![b' '; 9 << 20]);
    assert!(matches!(pull(&reference, &options).unwrap_err(), Error::Limit { .. }));
}
