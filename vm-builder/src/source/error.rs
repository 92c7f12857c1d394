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
    /// A reference or digest that is none.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A setting that cannot be.
    #[error("invalid {setting} {value:?}: {problem}")]
    Setting {
        setting: &'static str,
        /// What was given.
        value: String,
        /// Why it is invalid.
        problem: String,
    },
    /// No program of this host builds Dockerfiles.
    #[error("a Dockerfile is built by buildah, podman or docker, and none of them is installed")]
    NoContainerTool,
    /// The container tool did not build a Dockerfile.
    #[error("{}: {error}", path.display())]
    Dockerfile { path: PathBuf, error: tool::Error },
    /// No such source.
    #[error("no image source at {}", .0.display())]
    SourceMissing(PathBuf),
    /// A file or directory could not be used.
    #[error("cannot {action} {}: {error}", .path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        path: PathBuf,
        /// Error of the file system.
        error: io::Error,
    },
    /// The file system of a directory is full.
    #[error("no space left in {}", .0.display())]
    DiskFull(PathBuf),
    /// The registry has no such repository.
    #[error("registry {registry} has no repository {repository}")]
    RepositoryNotFound {
        /// Host.
        registry: String,
        repository: String,
    },
    /// The repository has no such tag or digest.
    #[error("repository {repository} of registry {registry} has no {target}")]
    ManifestUnknown {
        /// Host.
        registry: String,
        repository: String,
        /// `tag …` or `manifest sha256:…`.
        target: String,
    },
    /// A blob that a manifest names does not exist.
    #[error("{place} lacks blob {digest}")]
    BlobMissing {
        /// Registry and repository, or a path.
        place: String,
        digest: Digest,
    },
    /// Credentials are missing or wrong.
    #[error("registry {registry} refuses access to {repository}: {reason}")]
    Unauthorized {
        /// Host.
        registry: String,
        repository: String,
        /// What was tried, with the files that were read.
        reason: String,
    },
    /// A credential helper failed.
    #[error("credential helper {program} failed: {reason}")]
    Helper { program: String, reason: String },
    /// Content does not match its digest.
    #[error("{what} has digest {actual} instead of {expected}")]
    DigestMismatch {
        /// Which content, from where.
        what: String,
        expected: Digest,
        /// As computed.
        actual: Digest,
    },
    /// Content is not as long as announced.
    #[error("{what} has {actual} bytes instead of {expected}")]
    LengthMismatch {
        /// Which content, from where.
        what: String,
        /// Bytes, as announced.
        expected: u64,
        /// Bytes there are, at least.
        actual: u64,
    },
    /// The connection broke again and again.
    #[error("connection to registry {registry} broke while fetching {what}, {attempts} times: {reason}")]
    Interrupted {
        /// Host.
        registry: String,
        /// What was fetched.
        what: String,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// No server listens.
    #[error("registry {registry} cannot be reached: {reason}")]
    Unreachable {
        /// Host.
        registry: String,
        reason: String,
    },
    /// TLS failed.
    #[error("TLS with registry {registry} failed: {reason}")]
    Tls {
        /// Host.
        registry: String,
        reason: String,
    },
    /// The registry requests a wait beyond our limit, or keeps failing.
    #[error("registry {registry} answers {status} to {what}{}", .detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
    Answer {
        /// Host.
        registry: String,
        status: u16,
        /// To which question.
        what: String,
        /// The registry's message about it.
        detail: Option<String>,
        /// After which time it accepts another request.
        retry_after: Option<Duration>,
    },
    /// The registry breaks its protocol.
    #[error("registry {registry} breaks the protocol: {problem}")]
    Protocol {
        /// Host.
        registry: String,
        /// Description of the violation.
        problem: String,
    },
    /// The image exists for other platforms only.
    #[error("{image} is not for {wanted}, only for {}", list(.available))]
    WrongPlatform {
        image: String,
        wanted: Platform,
        /// What there is.
        available: Vec<String>,
    },
    /// A media type we cannot use.
    #[error("{what} has unsupported media type {media_type:?}")]
    MediaType { what: String, media_type: String },
    /// A document (manifest, configuration, index) that cannot be used.
    #[error("{what} is malformed: {problem}")]
    Malformed {
        /// The object with the violation.
        what: String,
        /// Description of the violation.
        problem: String,
    },
    /// A file that is of another kind than what is needed.
    #[error("{what} is {format}, not {wanted}")]
    Format {
        /// Path of the file, or what a registry sent.
        what: String,
        /// What it is, with its article.
        format: &'static str,
        /// What is needed.
        wanted: &'static str,
        /// What to do, imperative.
        remedy: &'static str,
    },
    /// A directory or an archive that is no image.
    #[error("{} is no image: it has no {missing}", .place.display())]
    NoImage {
        /// Directory or archive.
        place: PathBuf,
        /// Name of the file that images of this form have.
        missing: String,
    },
    /// An archive entry that cannot be applied.
    #[error("{layer}: entry {}: {problem}", printable(.entry))]
    Entry {
        layer: String,
        entry: Vec<u8>,
        /// Why it is invalid.
        problem: String,
    },
    /// An archive that ends early or is none.
    #[error("{layer}: {problem} at byte {offset}")]
    Archive {
        layer: String,
        /// Where in the uncompressed archive.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// A limit was exceeded.
    #[error("{what} exceeds the limit of {limit} {unit}")]
    Limit {
        /// The object that exceeds the limit.
        what: String,
        /// How much is allowed.
        limit: u64,
        /// Of what: `bytes`, `entries`.
        unit: &'static str,
        /// What raises it, if anything does.
        flag: Option<&'static str>,
    },
    /// More would fill the disk.
    #[error("less than {} MiB would be left free in {}", least >> 20, .directory.display())]
    LowSpace {
        /// Where it would be written.
        directory: PathBuf,
        /// Bytes that must stay free.
        least: u64,
    },
    /// An image that VMs cannot use as it is.
    #[error("{0} is an image without a VM disk or a kernel")]
    NoDisk(Reference),
    /// Something is in no cache and may not be fetched.
    #[error("{0} is not in the cache, and fetching is not allowed")]
    NotCached(String),
    /// An image that a layout, an archive or the store does not have.
    #[error("{} has no image {name:?}{}", .place.display(), names(.available))]
    ImageNotFound {
        /// Layout, archive or store.
        place: PathBuf,
        /// The requested name; empty: any.
        name: String,
        /// Names there are.
        available: Vec<String>,
    },
    /// Several images, and no name selects one.
    #[error("{} holds several images{}", .place.display(), names(.available))]
    Ambiguous {
        /// Layout or archive.
        place: PathBuf,
        /// Names there are.
        available: Vec<String>,
    },
    /// Another process holds a lock for too long.
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
    #[must_use]
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
