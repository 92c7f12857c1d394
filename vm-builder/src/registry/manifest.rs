//! Manifests and indexes of OCI and of Docker schema 2.

use neonvm_types::objects;
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

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct IndexPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

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
    /// The media type of an image's manifest by its own statement; that of OCI if it has none.
    pub(crate) fn media_type(manifest: &[u8]) -> String {
        let value: Option<serde_json::Value> = serde_json::from_slice(manifest).ok();
        let own = value.as_ref().and_then(|value| value.get("mediaType")?.as_str());
        own.unwrap_or(OCI_MANIFEST).to_owned()
    }

    /// Reads a document. `content_type`: the type by its descriptor or its server, empty if there is none.
    pub(crate) fn parse(bytes: &[u8], content_type: &str, what: &str) -> Result<Self, Error> {
        let malformed = |problem: String| Error::Malformed { what: what.to_owned(), problem };
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| Error::no_document(what, bytes, &error))?;
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
            let index: Index = objects::from_value(value).map_err(|error| malformed(error.to_string()))?;
            check_count(index.manifests.len(), what)?;
            return Ok(Self::Index(index.manifests));
        }
        let manifest: Manifest = objects::from_value(value).map_err(|error| malformed(error.to_string()))?;
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

/// Mark of entries that are statements about others, such as how an image was built.
const ATTESTATION: &str = "vnd.docker.reference.type";

impl IndexEntry {
    /// The platform that it is for. Nested indexes and images of one platform may leave it out.
    fn stated(&self) -> Option<Platform> {
        let has = self.platform.as_ref()?;
        let platform = Platform::normalised(&has.os, &has.architecture, has.variant.as_deref());
        (!platform.os.is_empty() || !platform.architecture.is_empty()).then_some(platform)
    }

    /// Whether it is an image or an index, by what the entry states.
    fn may_be_image(&self) -> bool {
        let is_unknown = |text: &str| text.eq_ignore_ascii_case("unknown");
        let platform = self.platform.as_ref();
        !self.descriptor.annotations.contains_key(ATTESTATION)
            && !platform.is_some_and(|has| is_unknown(&has.os) || is_unknown(&has.architecture))
    }
}

/// The entry of an index for a platform: of several that it runs the one with the highest variant, the first of equal ones; one without
/// a platform if no other fits. `image` is for errors.
pub(crate) fn choose<'a>(
    entries: &'a [IndexEntry],
    platform: &Platform,
    image: &str,
) -> Result<&'a IndexEntry, Error> {
    let images = || entries.iter().filter(|entry| entry.may_be_image());
    let fitting = images().filter_map(|entry| Some((platform.fit(&entry.stated()?)?, entry)));
    let best = fitting.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, entry)| entry);
    let found = best.or_else(|| images().find(|entry| entry.stated().is_none()));
    found.ok_or_else(|| {
        let mut available: Vec<String> =
            images().filter_map(|entry| Some(entry.stated()?.to_string())).collect();
        available.sort();
        available.dedup();
        Error::WrongPlatform { image: image.into(), wanted: platform.limit(), available }
    })
}

/// What a user may want to know about a choice: that it was one among variants, and by what.
pub(crate) fn note(entries: &[IndexEntry], platform: &Platform, chosen: &IndexEntry) -> Option<String> {
    let taken = chosen.stated().filter(|taken| platform.variant.is_none() && taken.variant.is_some())?;
    let mut others: Vec<String> = entries
        .iter()
        .filter_map(IndexEntry::stated)
        .filter(|other| other.architecture == taken.architecture && other.variant != taken.variant)
        .map(|other| other.to_string())
        .collect();
    others.sort();
    others.dedup();
    (!others.is_empty()).then(|| {
        format!(
            "took {taken} and not {}: emulated VMs and the processor of this host run it; for nodes with older processors set --arch {}/v1",
            others.join(", "),
            taken.architecture
        )
    })
}

/// Names a document in errors.
pub(crate) fn named(place: &str, digest: Digest) -> String {
    format!("manifest {digest} of {place}")
}
