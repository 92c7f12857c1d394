//! Manifests and indexes of OCI and of Docker schema 2.

use serde::Deserialize;

use crate::reference::Digest;
use crate::source::{Error, Platform};
use crate::store::Descriptor;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// What we accept as an answer.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";
/// Most layers of an image, and most entries of an index.
const COUNT_LIMIT: usize = 10_000;

/// An image of one platform.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// A platform in an index.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct IndexPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// An entry of an index.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct IndexEntry {
    #[serde(flatten)]
    pub(crate) descriptor: Descriptor,
    #[serde(default)]
    pub(crate) platform: Option<IndexPlatform>,
}

/// What a reference may lead to.
#[derive(Clone, Debug)]
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Vec<IndexEntry>),
}

impl Document {
    /// Reads a document. `content_type`: the type by its descriptor or its server, empty if there is none.
    pub(crate) fn parse(bytes: &[u8], content_type: &str, what: &str) -> Result<Self, Error> {
        let malformed = |problem: String| Error::Malformed { what: what.to_owned(), problem };
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
        let own = value.get("mediaType").and_then(serde_json::Value::as_str);
        let media_type = own.unwrap_or(content_type).split(';').next().unwrap_or_default().trim().to_owned();
        let is_index = match media_type.as_str() {
            OCI_INDEX | DOCKER_LIST => true,
            OCI_MANIFEST | DOCKER_MANIFEST => false,
            // Older OCI documents have no type, and some servers send none.
            "" | "application/json" | "text/plain" | "application/octet-stream"
                if value.get("schemaVersion").and_then(serde_json::Value::as_u64) == Some(2) =>
            {
                value.get("manifests").is_some()
            }
            _ => return Err(Error::MediaType { what: what.into(), media_type }),
        };
        if is_index {
            #[derive(Deserialize)]
            struct Index {
                manifests: Vec<IndexEntry>,
            }
            let index: Index = serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
            check_count(index.manifests.len(), what)?;
            return Ok(Self::Index(index.manifests));
        }
        let manifest: Manifest =
            serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        check_count(manifest.layers.len(), what)?;
        manifest.check(what)?;
        Ok(Self::Manifest(manifest))
    }
}

fn check_count(count: usize, what: &str) -> Result<(), Error> {
    if count > COUNT_LIMIT {
        return Err(Error::Limit {
            what: what.into(),
            limit: COUNT_LIMIT as u64,
            unit: "entries",
            flag: None,
        });
    }
    Ok(())
}

impl Manifest {
    /// Whether it is an image of the kind that has a root file system.
    fn check(&self, what: &str) -> Result<(), Error> {
        let config = self.config.media_type.as_str();
        if !CONFIGS.contains(&config) {
            return Err(Error::MediaType {
                what: format!("configuration of {what}"),
                media_type: config.into(),
            });
        }
        for layer in &self.layers {
            if !is_tar(&layer.media_type) {
                return Err(Error::MediaType {
                    what: format!("layer {} of {what}", layer.digest),
                    media_type: layer.media_type.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Layers that are tars, plain or compressed; the compression is recognised by the first bytes, since labels are often wrong.
fn is_tar(media_type: &str) -> bool {
    let Some(kind) = media_type.strip_prefix("application/vnd.oci.image.layer.") else {
        return matches!(
            media_type,
            "application/vnd.docker.image.rootfs.diff.tar.gzip"
                | "application/vnd.docker.image.rootfs.diff.tar.zstd"
                | "application/vnd.docker.image.rootfs.diff.tar"
                | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
                | "application/vnd.docker.image.rootfs.foreign.diff.tar"
        );
    };
    let kind = kind.strip_prefix("nondistributable.").unwrap_or(kind);
    matches!(kind, "v1.tar" | "v1.tar+gzip" | "v1.tar+zstd")
}

/// The entry of an index for a platform: the first that fits, exact variants before any. `image` is for errors.
pub(crate) fn choose<'a>(
    entries: &'a [IndexEntry],
    platform: &Platform,
    image: &str,
) -> Result<&'a IndexEntry, Error> {
    let fits = |entry: &&IndexEntry| match &entry.platform {
        Some(has) => platform.accepts(&has.os, &has.architecture, has.variant.as_deref()),
        // Nested indexes and images of one platform may leave it out.
        None => true,
    };
    let stated = |entry: &&IndexEntry| entry.platform.is_some();
    let mut fitting = entries.iter().filter(fits);
    let found = fitting.clone().find(stated).or_else(|| fitting.next());
    found.ok_or_else(|| {
        let mut available: Vec<String> = entries
            .iter()
            .filter_map(|entry| entry.platform.as_ref())
            // Attestations are in indexes as images of an unknown platform.
            .filter(|has| has.os != "unknown")
            .map(|has| {
                let variant = has.variant.as_deref().filter(|variant| !variant.is_empty());
                let variant = variant.map(|variant| format!("/{variant}")).unwrap_or_default();
                format!("{}/{}{variant}", has.os, has.architecture)
            })
            .collect();
        available.sort();
        available.dedup();
        Error::WrongPlatform { image: image.into(), wanted: platform.clone(), available }
    })
}

/// Names a document in errors.
pub(crate) fn named(place: &str, digest: Digest) -> String {
    format!("manifest {digest} of {place}")
}
