//! An image as manifest and blobs, ready to be stored or pushed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::reference::{Digest, Hasher};
use crate::source::Error;

/// Media type of the manifests that we make.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of the configurations that we make.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of an uncompressed layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Names content: type, digest, length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Notes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Refuses content of another length or digest; `what` is for the error.
    pub(crate) fn check(&self, what: &str, content: Hasher) -> Result<(), Error> {
        let (what, length) = (what.to_owned(), content.length());
        if length != self.size {
            return Err(Error::LengthMismatch { what, expected: self.size, actual: length });
        }
        let actual = content.finish();
        if actual != self.digest {
            return Err(Error::DigestMismatch { what, expected: self.digest, actual });
        }
        Ok(())
    }
}

/// Where the bytes of a blob are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobContent {
    Bytes(Vec<u8>),
    File(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub descriptor: Descriptor,
    /// Bytes.
    pub content: BlobContent,
}

impl Blob {
    /// A blob of bytes.
    pub fn bytes(media_type: &str, bytes: Vec<u8>) -> Self {
        let descriptor = Descriptor {
            media_type: media_type.into(),
            digest: Digest::from_bytes(&bytes),
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
        };
        Self { descriptor, content: BlobContent::Bytes(bytes) }
    }

    /// A blob that is a file; it is read once for its digest.
    pub fn file(media_type: &str, path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let (digest, size) = std::fs::File::open(&path)
            .and_then(|mut file| Digest::of_reader(&mut file))
            .map_err(|error| Error::io("read", &path, error))?;
        let descriptor =
            Descriptor { media_type: media_type.into(), digest, size, annotations: BTreeMap::new() };
        Ok(Self { descriptor, content: BlobContent::File(path) })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Bytes of the manifest, as its digest covers them.
    pub manifest: Vec<u8>,
    pub media_type: String,
    pub config: Blob,
    /// Lowest first.
    pub layers: Vec<Blob>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'a str,
    config: &'a Descriptor,
    layers: Vec<&'a Descriptor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

impl Image {
    /// An OCI image of a configuration document ([`CONFIG`]; `rootfs.diff_ids` are the caller's) and layers.
    /// The same input gives the same bytes.
    pub fn new(
        config: &serde_json::Value,
        layers: Vec<Blob>,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let malformed = |error: serde_json::Error| Error::Malformed {
            what: "image configuration".into(),
            problem: error.to_string(),
        };
        let config = Blob::bytes(CONFIG, serde_json::to_vec(config).map_err(malformed)?);
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST,
            config: &config.descriptor,
            layers: layers.iter().map(|layer| &layer.descriptor).collect(),
            annotations,
        };
        let manifest = serde_json::to_vec(&manifest).map_err(malformed)?;
        Ok(Self { manifest, media_type: MANIFEST.into(), config, layers })
    }

    pub fn digest(&self) -> Digest {
        Digest::from_bytes(&self.manifest)
    }
}
