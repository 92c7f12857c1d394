//! Where an image comes from, and how it becomes a file tree.
//!
//! [`Source::parse`] reads what people write; [`load`] fetches what is missing into the cache, verifies every digest
//! on the way, applies the layers in order, and returns a [`Loaded`]: a [`Tree`] whose contents are still in the
//! cached archives. Nothing is unpacked to the host's file system.

mod counted;
mod digest;
mod docker_archive;
mod error;
mod formats;
mod ingest;
mod layout;
mod load;
mod loading;
mod parse;
mod platform;
mod progress;
mod root;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_disk::tree::{Sources, Tree};
use neonvm_types::guest::Process;

pub use digest::tree_digest;
pub use error::Error;
pub(crate) use error::printable;
pub(crate) use formats::Packing;
pub use load::load;
pub use platform::Platform;
pub use progress::{Progress, Quiet};
pub(crate) use root::HOST;

use crate::reference::{Digest, Reference};

/// An image, as named by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Registry(Reference),
    OciLayout {
        path: PathBuf,
        /// `org.opencontainers.image.ref.name` or a digest. None: the only image.
        name: Option<String>,
    },
    /// A tar of such a directory.
    OciArchive {
        path: PathBuf,
        /// As for a directory.
        name: Option<String>,
    },
    /// What `docker save` writes.
    DockerArchive {
        path: PathBuf,
        /// One of `RepoTags`. None: the only image.
        name: Option<String>,
    },
    RootTree(PathBuf),
    /// A tar of the root of a file system, plain or compressed with gzip, bzip2, xz or zstd.
    RootTar(PathBuf),
    Dockerfile {
        path: PathBuf,
        /// `NAME=VALUE` for its `ARG`s.
        arguments: Vec<String>,
    },
}

#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// When the registry is queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pull {
    /// It is queried for the meaning of a tag; only what the cache lacks is fetched. A digest in the cache needs no
    /// query.
    #[default]
    Always,
    /// A tag means what it meant when it was last fetched.
    Missing,
    /// Never: the cache has it all, or it is an error.
    Never,
}

/// Owner of the files of a root directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// As on the host.
    #[default]
    Keep,
    /// Everything belongs to root: for trees made without privileges.
    Root,
}

/// How much an image may hold before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all layers. Default 5,000,000.
    pub entries: u64,
    /// Bytes of all layers, uncompressed, and of all files. Default 128 GiB.
    pub bytes: u64,
    /// How many times its compressed size a layer may have, once it has more than 1 GiB; at least 1. Default 100.
    pub ratio: u64,
    /// Bytes that must stay free where the cache is. Default 256 MiB.
    pub free: u64,
    /// Bytes of names, link targets and attributes, which are held in memory. Default 1 GiB.
    pub metadata: u64,
    /// Longest path in bytes. Default 4096.
    pub path: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 5_000_000,
            bytes: 128 << 30,
            ratio: 100,
            free: 256 << 20,
            metadata: 1 << 30,
            path: 4096,
        }
    }
}

/// Logins that another user gave, such as a pull secret, instead of a file of this user. No helper program that they name is run.
#[derive(Clone, PartialEq, Eq)]
pub struct Logins {
    /// For people: `pull secret "x"`.
    pub name: String,
    /// The content, in the format of Docker's `config.json`; or why there is none, such as `does not exist`.
    pub content: std::result::Result<Vec<u8>, String>,
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct Network {
    /// Login given by hand; wins over all files.
    pub login: Option<Login>,
    /// Logins of others, before the files; the first wins.
    pub logins: Vec<Logins>,
    /// What the files are called in errors; none: by their paths.
    pub files_name: Option<String>,
    /// Files with logins, first wins: see [`crate::registry::auth_files`] for the usual ones.
    pub auth_files: Vec<PathBuf>,
    /// Plain HTTP is allowed for registries elsewhere, too (tried after HTTPS failed to answer as TLS).
    pub insecure: bool,
    /// Certificates (PEM) to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Layers at a time, at least 1. Default 3.
    pub parallel: usize,
    /// Deadline of a connection. Default 10 s.
    pub connect: Duration,
    /// How long nothing may arrive, and the period over which 1 KiB per second must. Default 30 s.
    pub stall: Duration,
    /// Attempts in a row without a byte of progress, or with fewer than 1 KiB per second. Default 5.
    pub attempts: u32,
    /// First pause between attempts; doubles up to 100 times that. Default 200 ms.
    pub pause: Duration,
    /// Longest `Retry-After` that is waited for. Default 60 s.
    pub patience: Duration,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            login: None,
            logins: Vec::new(),
            files_name: None,
            auth_files: Vec::new(),
            insecure: false,
            ca_file: None,
            parallel: 3,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            attempts: 5,
            pause: Duration::from_millis(200),
            patience: Duration::from_secs(60),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the cache; made if missing.
    pub cache: PathBuf,
    pub platform: Platform,
    /// When the registry is queried.
    pub pull: Pull,
    pub owner: Owner,
    pub limits: Limits,
    /// Cached content is hashed again before use.
    pub verify: bool,
    pub network: Network,
}

impl Options {
    /// Defaults with this cache directory, for the platform of this program.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            platform: Platform::host(),
            pull: Pull::default(),
            owner: Owner::default(),
            limits: Limits::default(),
            verify: false,
            network: Network::default(),
        }
    }
}

/// The settings in an image's configuration for running it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSettings {
    /// The program, in the form that the guest gets.
    pub process: Process,
    /// `Labels`.
    pub labels: BTreeMap<String, String>,
    /// `amd64`, `arm64`; of the options for sources without a configuration.
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// When it was made, RFC 3339, by the image's own record.
    pub created: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    /// Digest as stored by the source (compressed). None if the source names it by its uncompressed digest only.
    pub digest: Option<Digest>,
    pub diff_id: Digest,
    /// Bytes of the uncompressed tar.
    pub size: u64,
    /// Media type at the source; empty if it has none.
    pub media_type: String,
}

/// An image, ready to be put on a disk.
pub struct Loaded {
    /// Files of the image, all layers applied.
    pub tree: Tree,
    pub sources: Box<dyn Sources + Send>,
    pub settings: ImageSettings,
    /// Identity of the content: digest of the manifest of the platform; of the configuration for Docker archives;
    /// of the uncompressed tar for root tars; of all metadata and content for root directories.
    pub digest: Digest,
    /// The source for people: a full reference with digest, or a path.
    pub reference: String,
    /// Lowest first; none for root directories.
    pub layers: Vec<LayerInfo>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded")
            .field("reference", &self.reference)
            .field("digest", &self.digest)
            .field("settings", &self.settings)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}
