//! `index.json` of the store. What others have written into it stays.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use neonvm_types::objects;
use serde::{Deserialize, Serialize};

use super::{Descriptor, MANIFEST};
use crate::cache::{DOCUMENT_LIMIT, read_limited};
use crate::reference::Digest;
use crate::source::Error;

const NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    manifests: Vec<Item>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize, Serialize)]
struct Item {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

impl Item {
    fn name(&self) -> Option<&str> {
        self.descriptor.annotations.get(NAME).map(String::as_str)
    }
}

/// Whether a file `oci-layout` is of a supported version.
pub(super) fn check_marker(bytes: &[u8], path: &Path) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Marker {
        image_layout_version: String,
    }
    let wrong = |problem: String| Error::Malformed { what: path.display().to_string(), problem };
    let marker: Marker = objects::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    if marker.image_layout_version.starts_with("1.") {
        return Ok(());
    }
    Err(wrong(format!("unknown version {:?}", marker.image_layout_version)))
}

impl Index {
    pub(super) fn read(root: &Path) -> Result<Self, Error> {
        let path = root.join("index.json");
        match read_limited(&path, DOCUMENT_LIMIT) {
            Ok(bytes) => objects::from_slice(&bytes).map_err(|error| Error::Malformed {
                what: path.display().to_string(),
                problem: error.to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self {
                schema_version: 2,
                media_type: Some("application/vnd.oci.image.index.v1+json".into()),
                manifests: Vec::new(),
                rest: BTreeMap::new(),
            }),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Malformed { what: "index.json".into(), problem: error.to_string() })
    }

    /// Digests of images, with their names; an image with several names comes several times.
    pub(super) fn images(&self) -> impl Iterator<Item = (Digest, Option<&str>)> {
        self.manifests.iter().map(|item| (item.descriptor.digest, item.name()))
    }

    pub(super) fn digest_of(&self, name: &str) -> Option<Digest> {
        self.images().find(|(_, has)| *has == Some(name)).map(|(digest, _)| digest)
    }

    pub(super) fn media_type(&self, digest: Digest) -> String {
        let item = self.manifests.iter().find(|item| item.descriptor.digest == digest);
        item.map(|item| item.descriptor.media_type.clone())
            .filter(|text| !text.is_empty())
            .unwrap_or(MANIFEST.into())
    }

    /// Gives an image a name; an image that had it loses it, but stays.
    pub(super) fn add(&mut self, media_type: &str, digest: Digest, size: u64, name: &str) {
        for item in &mut self.manifests {
            if item.name() == Some(name) {
                item.descriptor.annotations.remove(NAME);
            }
        }
        self.manifests.retain(|item| item.descriptor.digest != digest || item.name().is_some());
        let annotations = BTreeMap::from([(NAME.to_owned(), name.to_owned())]);
        let descriptor = Descriptor { media_type: media_type.into(), digest, size, annotations };
        self.manifests.push(Item { descriptor, rest: BTreeMap::new() });
        self.drop_doubles();
    }

    /// Removes a name of an image, or all its names.
    pub(super) fn remove(&mut self, digest: Digest, name: Option<&str>) {
        self.manifests.retain(|item| {
            item.descriptor.digest != digest || name.is_some_and(|name| item.name() != Some(name))
        });
    }

    /// Removes images without a name. Whether there was any.
    pub(super) fn remove_unnamed(&mut self, keep: &dyn Fn(Digest) -> bool) -> bool {
        let before = self.manifests.len();
        self.manifests.retain(|item| item.name().is_some() || keep(item.descriptor.digest));
        before != self.manifests.len()
    }

    /// An image without a name is listed once, and not if it has one.
    fn drop_doubles(&mut self) {
        let named: Vec<Digest> =
            self.images().filter(|(_, name)| name.is_some()).map(|(digest, _)| digest).collect();
        let mut seen = Vec::new();
        self.manifests.retain(|item| {
            if item.name().is_some() {
                return true;
            }
            let digest = item.descriptor.digest;
            let is_new = !named.contains(&digest) && !seen.contains(&digest);
            seen.push(digest);
            is_new
        });
    }
}
