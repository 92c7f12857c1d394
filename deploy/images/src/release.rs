//! The images of a release: their labels, where they are, and whether they fit together.

use std::collections::BTreeMap;
use std::path::Path;

use neonvm_builder::reference::{Digest, Reference};
use neonvm_builder::store::{Blob, BlobContent, Image, Store};
use neonvm_types::version::{
    InformantProtoVersion, MonitorProtoVersion, PluginProtoVersion, ProtocolVersion as _, RunnerProtoVersion,
};
use serde::Deserialize;

use crate::Error;

/// Names of the images that a cluster needs: services, runner.
pub const NAMES: [&str; 2] = ["neond", "neonvm-runner"];
/// Directory of the images, beside programs and in cargo's target directory.
pub const DIRECTORY: &str = "images";
/// Label with the newest protocol versions that the programs of an image speak.
pub const PROTOCOLS: &str = "tech.neon.vm.protocols";
const VERSION: &str = "org.opencontainers.image.version";
const REVISION: &str = "org.opencontainers.image.revision";
const SOURCE: &str = "org.opencontainers.image.source";
/// Largest configuration of an image that is read, in bytes.
const MOST: u64 = 1 << 20;

/// An image's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    pub version: String,
    pub revision: String,
    pub source: String,
    /// See [`protocols`].
    pub protocols: String,
}

/// The newest protocol versions of this build, such as `informant=4 monitor=2 plugin=7 runner=1`.
#[must_use]
pub fn protocols() -> String {
    let versions = [
        ("informant", InformantProtoVersion::LATEST.number()),
        ("monitor", MonitorProtoVersion::LATEST.number()),
        ("plugin", PluginProtoVersion::LATEST.number()),
        ("runner", RunnerProtoVersion::LATEST.number()),
    ];
    versions.map(|(name, number)| format!("{name}={number}")).join(" ")
}

impl Labels {
    fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| labels.get(name).cloned().unwrap_or_default();
        Self {
            version: get(VERSION),
            revision: get(REVISION),
            source: get(SOURCE),
            protocols: get(PROTOCOLS),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    pub name: String,
    pub image: Image,
    pub labels: Labels,
    /// `linux/amd64`.
    pub platform: String,
}

impl Packed {
    #[must_use]
    pub fn size(&self) -> u64 {
        let blobs: u64 = self.blobs().map(|blob| blob.descriptor.size).sum();
        blobs.saturating_add(self.image.manifest.len() as u64)
    }

    #[must_use]
    pub fn digest(&self) -> Digest {
        self.image.digest()
    }

    fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.image.layers.iter().chain([&self.image.config])
    }
}

/// The name of an image: below a registry (`HOST[:PORT][/PREFIX]`), or as manifests name it.
///
/// # Errors
/// If the registry or the version cannot be part of a name.
pub fn reference(registry: Option<&str>, name: &str, version: &str) -> Result<Reference, Error> {
    let text = match registry.map(|registry| registry.trim_end_matches('/')) {
        Some(registry) => format!("{registry}/{name}:{version}"),
        None => format!("{name}:{version}"),
    };
    text.parse().map_err(|error| Error::Store(neonvm_builder::source::Error::Invalid(error)))
}

/// The images of the layout in a directory, in the order of [`NAMES`].
///
/// # Errors
/// If it is no layout, or one of the images is missing or damaged.
pub fn open(directory: &Path) -> Result<Vec<Packed>, Error> {
    let wrong = |problem: String| Error::Release { path: directory.to_owned(), problem };
    if !directory.join("oci-layout").is_file() {
        return Err(wrong("it holds no images (no file oci-layout)".to_owned()));
    }
    let store = Store::open(directory)?;
    let entries = store.list()?;
    let mut all = Vec::new();
    for name in NAMES {
        let has = |entry: &&neonvm_builder::store::Entry| {
            entry
                .reference
                .as_ref()
                .is_some_and(|reference| reference.repository().rsplit('/').next() == Some(name))
        };
        let mut fitting = entries.iter().filter(has);
        let entry = match (fitting.next(), fitting.next()) {
            (Some(entry), None) => entry,
            (None, _) => return Err(wrong(format!("it holds no image {name}"))),
            _ => {
                return Err(wrong(format!(
                    "it holds several images {name}; remove the old ones: rm -r it, and build again"
                )));
            }
        };
        let image = store.get(&entry.digest.to_string())?;
        let labels = labels(&image.config).map_err(wrong)?;
        all.push(Packed { name: name.to_owned(), image, labels, platform: entry.platform.clone() });
    }
    Ok(all)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    config: Section,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Section {
    labels: Option<BTreeMap<String, String>>,
}

fn labels(config: &Blob) -> Result<Labels, String> {
    let bytes = match &config.content {
        BlobContent::Bytes(bytes) => bytes.clone(),
        BlobContent::File(_) if config.descriptor.size > MOST => {
            return Err("the configuration of an image is too large".to_owned());
        }
        BlobContent::File(path) => {
            std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?
        }
    };
    let document: Document =
        serde_json::from_slice(&bytes).map_err(|error| format!("the configuration of an image: {error}"))?;
    Ok(Labels::from_labels(&document.config.labels.unwrap_or_default()))
}

/// What does not fit: images of another version than `version`, of other protocol versions than this build, of different commits.
#[must_use]
pub fn problems(images: &[Packed], version: &str) -> Vec<String> {
    let mut found = Vec::new();
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    for image in images {
        let (name, labels) = (&image.name, &image.labels);
        if labels.version != version {
            found.push(format!("{name} is of version {}, not {version}", known(&labels.version)));
        }
        let ours = protocols();
        if labels.protocols != ours {
            found.push(format!("{name} speaks protocols {}, not {ours}", known(&labels.protocols)));
        }
    }
    if let [first, rest @ ..] = images {
        let other = rest.iter().filter(|image| image.labels.revision != first.labels.revision);
        found.extend(
            other.map(|image| format!("{} and {} were built from different commits", first.name, image.name)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A layout with both images, empty.
    fn layout(directory: &Path, version: &str, protocols: &str, revisions: [&str; 2]) {
        let store = Store::open(directory).unwrap();
        for (name, revision) in NAMES.into_iter().zip(revisions) {
            let labels = [(VERSION, version), (REVISION, revision), (PROTOCOLS, protocols)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let layer = Blob::bytes("application/vnd.oci.image.layer.v1.tar+gzip", name.as_bytes().to_vec());
            let config = json!({ "architecture": "amd64", "os": "linux", "config": { "Labels": labels },
                "rootfs": { "type": "layers", "diff_ids": [layer.descriptor.digest.to_string()] } });
            let image = Image::new(&config, vec![layer], &labels).unwrap();
            store.put(&image, &reference(None, name, version).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_release_is_read_with_its_own_description() {
        let directory = tempfile::tempdir().unwrap();
        layout(directory.path(), "1.2.3", &protocols(), ["c0ffee"; 2]);
        let images = open(directory.path()).unwrap();
        assert_eq!(images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), NAMES);
        assert_eq!(images[0].labels.revision, "c0ffee");
        assert_eq!(images[1].platform, "linux/amd64");
        assert!(problems(&images, "1.2.3").is_empty());
    }

    #[test]
    fn what_does_not_fit_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        layout(directory.path(), "1.2.3", "monitor=1", ["a", "b"]);
        let found = problems(&open(directory.path()).unwrap(), "1.2.4");
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(found[0], "neond is of version 1.2.3, not 1.2.4");
        assert!(found[1].starts_with("neond speaks protocols monitor=1, not informant="), "{found:?}");
        assert_eq!(found[4], "neond and neonvm-runner were built from different commits");
    }

    #[test]
    fn a_directory_without_both_images_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = |path: &Path| open(path).unwrap_err().to_string();
        assert!(error(directory.path()).ends_with("it holds no images (no file oci-layout)"));
        Store::open(directory.path()).unwrap();
        assert!(error(directory.path()).ends_with("it holds no image neond"));
    }

    #[test]
    fn names_are_below_the_registry() {
        let name =
            |registry| reference(registry, "neond", "1.2.3").map(|reference| reference.to_string()).ok();
        assert_eq!(name(None).unwrap(), "docker.io/library/neond:1.2.3");
        assert_eq!(name(Some("localhost:5000/a/")).unwrap(), "localhost:5000/a/neond:1.2.3");
        assert_eq!(name(Some("UPPER/a b")), None);
    }
}
