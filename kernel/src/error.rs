//! What can go wrong, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

/// Why a kernel could not be built, fetched or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {verb} {}", path.display())]
    File { verb: &'static str, path: PathBuf, source: io::Error },
    #[error("{program} is not installed")]
    Missing { program: String, package: &'static str },
    #[error("{program} failed: {status}")]
    Program { program: String, status: String, output: Vec<String> },
    #[error("{file}:{line}: not a kernel option: {text}")]
    Fragment {
        file: String,
        /// Line, from 1.
        line: usize,
        text: String,
    },
    #[error("{option} is asked for twice with different values: {first} and {second}")]
    Contradiction {
        option: String,
        first: String,
        /// Second value, with its file.
        second: String,
    },
    #[error("{} of the requested kernel options did not come out as asked: {}", options.len(), options.join(", "))]
    Dropped { options: Vec<String> },
    #[error("no kernel source found: {}", looked.display())]
    NoSource { looked: PathBuf },
    #[error("the kernel source is version {found}, but {wanted} was asked for")]
    Version { found: String, wanted: String },
    #[error("{what} is not usable: {why}")]
    Malformed { what: String, why: String },
    #[error("this kernel has no module {name}")]
    NoModule { name: String },
    #[error("{what} has SHA-256 {found}, not {expected}")]
    Hash {
        what: String,
        /// Its SHA-256 in hexadecimal.
        found: String,
        expected: String,
    },
    #[error("cannot download {url}: {why}")]
    Download { url: String, why: String },
    #[error("no kernel of version {wanted:?} is known; known: {}", known.join(", "))]
    NotPinned { wanted: String, known: Vec<&'static str> },
    #[error("kernel {name:?} not found")]
    NotFound { name: String },
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What to do about it, imperative.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { package, .. } => Some(format!("install it: apt-get install {package}")),
            Self::NoSource { .. } => Some(
                "install it: apt-get install linux-source-6.1, or give a tarball with --source FILE".to_owned(),
            ),
            Self::Dropped { .. } => Some(
                "an option that another one needs is missing: see `make menuconfig` of this source, then add it to the fragment"
                    .to_owned(),
            ),
            Self::Contradiction { .. } => Some("keep one of the two".to_owned()),
            Self::Version { .. } => Some("give the matching source with --source FILE".to_owned()),
            Self::NoModule { .. } => Some(
                "take a kernel for VMs or the cloud, such as Debian's linux-image-VERSION-cloud-amd64, with --package FILE; or leave \
                 out its name, if --module gave it"
                    .to_owned(),
            ),
            Self::Hash { .. } => Some(
                "the file is damaged or another version: download it again, from another mirror if need be".to_owned(),
            ),
            Self::Download { .. } => Some(
                "check the network and the proxy (http_proxy); mirrors remove old versions: give one that has it with --mirror URL, such \
                 as http://snapshot.debian.org/archive/debian/DATE, or a package on disk with --package FILE"
                    .to_owned(),
            ),
            Self::NotPinned { .. } => Some("download its package and give it with --package FILE".to_owned()),
            Self::NotFound { .. } => Some("get one: neonctl kernel fetch".to_owned()),
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space or choose another directory".to_owned())
            }
            _ => None,
        }
    }

    pub(crate) fn malformed(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Malformed { what: what.into(), why: why.into() }
    }
}

/// Adds the operation and the path to an I/O error.
pub(crate) trait Doing<T> {
    fn doing(self, verb: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, verb: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| Error::File { verb, path: path.to_owned(), source })
    }
}
