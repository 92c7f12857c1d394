//! Why an image could not be loaded, stored or pushed: one line each, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Platform;
use super::formats::{Format, foreign};
use crate::reference::{Digest, Invalid, Reference};
use crate::tool;

/// What to do without a source, and without a container tool.
const FORMS: &str = "give a reference (docker://…), oci:, oci-archive:, docker-archive:, dir:, tar: or dockerfile: and a path";
const TOOLS: &str =
    "install one, such as buildah, or build the image elsewhere and give it with --from IMAGE";

/// Failure of loading, storing or pushing an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("invalid {setting} {value:?}: {problem}")]
    Setting { setting: &'static str, value: String, problem: String },
    #[error("a Dockerfile is built by buildah, podman or docker, and none of them is installed")]
    NoContainerTool,
    #[error("{}: {error}", path.display())]
    Dockerfile { path: PathBuf, error: tool::Error },
    #[error("no image source at {}", .0.display())]
    SourceMissing(PathBuf),
    #[error("cannot {action} {}: {error}", .path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error("no space left in {}", .0.display())]
    DiskFull(PathBuf),
    #[error("registry {registry} has no repository {repository}")]
    RepositoryNotFound { registry: String, repository: String },
    #[error("repository {repository} of registry {registry} has no {target}")]
    ManifestUnknown {
        registry: String,
        repository: String,
        /// `tag …` or `manifest sha256:…`.
        target: String,
    },
    #[error("{place} lacks blob {digest}")]
    BlobMissing { place: String, digest: Digest },
    #[error("registry {registry} refuses access to {repository}: {reason}")]
    Unauthorized { registry: String, repository: String, reason: String },
    #[error("credential helper {program} failed: {reason}")]
    Helper { program: String, reason: String },
    #[error("{what} has digest {actual} instead of {expected}")]
    DigestMismatch {
        /// Which content, from where.
        what: String,
        expected: Digest,
        /// As computed.
        actual: Digest,
    },
    #[error("{what} has {actual} bytes instead of {expected}")]
    LengthMismatch {
        /// Which content, from where.
        what: String,
        /// Bytes, as announced.
        expected: u64,
        /// Bytes there are, at least.
        actual: u64,
    },
    #[error("connection to registry {registry} broke while fetching {what}, {attempts} times: {reason}")]
    Interrupted { registry: String, what: String, attempts: u32, reason: String },
    #[error("registry {registry} cannot be reached: {reason}")]
    Unreachable { registry: String, reason: String },
    #[error("TLS with registry {registry} failed: {reason}")]
    Tls { registry: String, reason: String },
    /// The registry requests a wait beyond our limit, or keeps failing.
    #[error("registry {registry} answers {status} to {what}{}", .detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    Answer {
        registry: String,
        status: u16,
        what: String,
        /// The registry's message about it.
        detail: Option<String>,
        /// After which time it accepts another request.
        retry_after: Option<Duration>,
    },
    #[error("registry {registry} breaks the protocol: {problem}")]
    Protocol { registry: String, problem: String },
    #[error("{image} is not for {wanted}, only for {}", list(.available))]
    WrongPlatform { image: String, wanted: Platform, available: Vec<String> },
    #[error("{what} has unsupported media type {media_type:?}")]
    MediaType { what: String, media_type: String },
    /// A document (manifest, configuration, index) that cannot be used.
    #[error("{what} is malformed: {problem}")]
    Malformed { what: String, problem: String },
    #[error("{what} is {format}, not {wanted}")]
    Format {
        /// Path of the file, or what a registry sent.
        what: String,
        format: &'static str,
        wanted: &'static str,
        /// What to do, imperative.
        remedy: &'static str,
    },
    #[error("{} is no image: it has no {missing}", .place.display())]
    NoImage {
        place: PathBuf,
        /// Name of the file that images of this form have.
        missing: String,
    },
    #[error("{layer}: entry {}: {problem}", printable(.entry))]
    Entry { layer: String, entry: Vec<u8>, problem: String },
    #[error("{layer}: {problem} at byte {offset}")]
    Archive { layer: String, offset: u64, problem: String },
    #[error("{what} exceeds the limit of {limit} {unit}")]
    Limit {
        what: String,
        limit: u64,
        /// Of what: `bytes`, `entries`.
        unit: &'static str,
        /// What raises it, if anything does.
        flag: Option<&'static str>,
    },
    #[error("less than {} MiB would be left free in {}", least >> 20, .directory.display())]
    LowSpace {
        directory: PathBuf,
        /// Bytes that must stay free.
        least: u64,
    },
    #[error("{0} is an image without a VM disk or a kernel")]
    NoDisk(Reference),
    #[error("{0} is not in the cache, and fetching is not allowed")]
    NotCached(String),
    #[error("{} has no image {name:?}{}", .place.display(), names(.available))]
    ImageNotFound {
        place: PathBuf,
        /// The requested name; empty: any.
        name: String,
        available: Vec<String>,
    },
    #[error("{} holds several images{}", .place.display(), names(.available))]
    Ambiguous { place: PathBuf, available: Vec<String> },
    #[error("another process has been busy with {} for too long", .0.display())]
    Locked(PathBuf),
}

impl Error {
    /// A file that is no archive.
    pub(crate) fn no_archive(what: impl Into<String>, format: Format) -> Self {
        let wanted = "an archive of a root file system or of an image";
        Self::Format { what: what.into(), format: format.name, wanted, remedy: format.remedy }
    }

    /// A document that is not JSON: of another format, such as the page of a proxy, or damaged.
    pub(crate) fn no_document(what: impl Into<String>, bytes: &[u8], problem: &serde_json::Error) -> Self {
        let format = foreign(bytes);
        if format.name.contains("HTML") || format.name.contains("XML") || bytes.is_empty() {
            let remedy = "a proxy or a login page may have answered in its place: check the address and the settings of the proxy";
            return Self::Format {
                what: what.into(),
                format: format.name,
                wanted: "a document of an image",
                remedy,
            };
        }
        Self::Malformed { what: what.into(), problem: problem.to_string() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, error: io::Error) -> Self {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Self::DiskFull(path.parent().unwrap_or(path).to_path_buf());
        }
        Self::Io { action, path: path.to_path_buf(), error }
    }

    /// What the user can do about it: one line.
    pub fn hint(&self) -> Option<String> {
        let text: &str = match self {
            Self::Invalid(_) => {
                "write [registry/]repository[:tag][@sha256:digest], e.g. docker.io/library/postgres:16"
            }
            Self::SourceMissing(_) => FORMS,
            Self::DiskFull(_) => {
                "free some space, remove old cache content (image prune), or choose another cache directory"
            }
            Self::RepositoryNotFound { .. } => {
                "check the name; many registries report the same for private repositories without a login"
            }
            Self::ManifestUnknown { .. } => "check the tag or digest",
            Self::BlobMissing { .. } => "the image is incomplete there: push it again",
            Self::Unauthorized { .. } => {
                "log in (docker login, podman login), or give --username with the password in NEONCTL_REGISTRY_PASSWORD"
            }
            Self::Helper { .. } => {
                "check credHelpers and credsStore of the configuration file, and that the program works"
            }
            Self::DigestMismatch { .. } => {
                "the content is corrupt or was tampered with: fetch again, and ask who runs the source if it persists"
            }
            Self::LengthMismatch { .. } => {
                "the source or a proxy before it is broken: try again, or another mirror"
            }
            Self::Interrupted { .. } => {
                "run the command again: what was fetched is kept and the rest resumed"
            }
            Self::Unreachable { .. } => "check the name, the port, the network and proxy settings",
            Self::Tls { .. } => {
                "give the registry's certificate authority (--ca-file), or allow plain HTTP if it has no TLS (--insecure)"
            }
            Self::Answer { retry_after: Some(wait), .. } => {
                return Some(format!("it asks to be tried again in {} s", wait.as_secs()));
            }
            Self::Answer { .. } => "try again later",
            Self::Protocol { .. } => "check that this is the address of a container registry",
            Self::WrongPlatform { .. } => "choose one of these with --arch, or another image",
            Self::MediaType { .. } => {
                "images of Docker schema 2 and OCI with tar, gzip or zstd layers are supported; convert it, e.g. with skopeo copy"
            }
            Self::Format { remedy, .. } => remedy,
            Self::NoImage { .. } => {
                "oci: and oci-archive: take an OCI layout, docker-archive: what docker save writes; give a root file system with tar:FILE or dir:DIR"
            }
            Self::Malformed { .. } | Self::Archive { .. } | Self::Entry { .. } => {
                "the image is damaged or hostile: build or fetch it again"
            }
            Self::Limit { flag: Some(flag), .. } => {
                return Some(format!("if you trust the image, allow it more: {flag}"));
            }
            Self::LowSpace { .. } => {
                "free some space, remove old cache content (image prune), or allow less to be left: --min-free"
            }
            Self::Limit { .. } => "this is far beyond real images; use a smaller one",
            Self::NoDisk(reference) => {
                return Some(format!("make a disk of it: neonctl vm build --from {reference} -t NAME"));
            }
            Self::NotCached(_) => "allow fetching (--pull always or missing)",
            Self::ImageNotFound { .. } | Self::Ambiguous { .. } => "append :name to the path",
            Self::Locked(_) => "end the other process, or wait for it",
            Self::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "run as a user who may read it"
            }
            Self::NoContainerTool => TOOLS,
            Self::Setting { .. } | Self::Io { .. } | Self::Dockerfile { .. } => return None,
        };
        Some(text.to_owned())
    }
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "unknown platforms".into() } else { items.join(", ") }
}

fn names(items: &[String]) -> String {
    if items.is_empty() { String::new() } else { format!(" (it has {})", items.join(", ")) }
}

/// A name of any bytes for people: escaped, and cut if it is long.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = format!("\"{}\"", bytes.get(..200).unwrap_or(bytes).escape_ascii());
    if bytes.len() > 200 {
        text.push('…');
    }
    text
}
