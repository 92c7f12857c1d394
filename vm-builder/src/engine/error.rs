//! Why a disk could not be built, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

use crate::fragments;
use crate::source::{self, Platform};
use crate::spec;
use crate::tool;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("nothing to write: neither an output file nor a tag is given")]
    NoOutput,
    #[error("cannot push an image without a tag")]
    PushWithoutTag,
    #[error("directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error("the guest program {} cannot be used: {reason}", path.display())]
    Guest { path: PathBuf, reason: String },
    #[error("image {image} holds no /disk.qcow2")]
    NoDisk { image: String },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Source(#[from] source::Error),
    #[error(transparent)]
    Spec(#[from] spec::Error),
    #[error(transparent)]
    Fragments(#[from] fragments::Error),
    #[error(transparent)]
    Taken(#[from] crate::inject::Taken),
    #[error(transparent)]
    FileSystem(#[from] neonvm_disk::ext4::Error),
    #[error(transparent)]
    Attributes(#[from] crate::attributes::Error),
    #[error("cannot {verb} {}", path.display())]
    File { verb: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { verb, path: path.to_owned(), source }
    }

    pub(crate) fn guest(path: &Path, error: &io::Error) -> Self {
        Self::Guest { path: path.to_owned(), reason: error.to_string() }
    }

    /// What to do about it, imperative.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoOutput => "give -O FILE, or -t NAME for the local image store",
            Self::PushWithoutTag => "name it: -t registry.example/name:tag --push",
            Self::NoDirectory(_) => "make it first, or choose another output",
            Self::Guest { .. } => "build it with cargo xtask guest, or give its path with --guest",
            Self::NoDisk { .. } => "make a disk of it: neonctl vm build --from IMAGE -O disk.qcow2",
            Self::Source(error) => return error.hint(),
            Self::Fragments(fragments::Error::Tool(tool::Error::Missing { .. })) => {
                "install it: apt-get install buildah crun; images without `build` and `merge` need none"
            }
            Self::Fragments(fragments::Error::OfDockerfile) => {
                "move them into the Dockerfile, or build from another source"
            }
            Self::Attributes(_) => {
                "remove the attribute from the file before it is packed (setfattr -x NAME FILE, setfacl -b FILE): a disk without it could give other access"
            }
            Self::Interrupted | Self::FileSystem(_) | Self::Taken(_) | Self::Spec(_) | Self::Fragments(_) => {
                return None;
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some space, or choose another directory"
            }
            Self::File { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// What stands behind the first line, outer to inner.
    pub fn causes(&self) -> Vec<String> {
        match self {
            Self::Fragments(fragments::Error::Tool(error))
            | Self::Source(source::Error::Dockerfile { error, .. }) => of_tool(error),
            Self::File { source, .. } => vec![reason(source)],
            Self::Spec(spec::Error::Read { source, .. }) => vec![reason(source)],
            _ => Vec::new(),
        }
    }
}

/// The causes of a container tool's failure.
fn of_tool(error: &tool::Error) -> Vec<String> {
    match error {
        tool::Error::Failed { last_lines, .. } => last_lines.clone(),
        tool::Error::File { source, .. } => vec![reason(source)],
        tool::Error::Missing { .. } => Vec::new(),
    }
}

/// An I/O error without the number that the library adds.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// A guest program that a kernel of the platform could not start is refused now, not at boot.
pub(super) fn check_guest(path: &Path, bytes: &[u8], platform: &Platform) -> Result<(), Error> {
    let refuse = |reason: &str| Err(Error::Guest { path: path.to_owned(), reason: reason.to_owned() });
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return refuse("it is not a 64-bit program for Linux");
    }
    let machine = bytes
        .get(18..20)
        .map(|two| u16::from_le_bytes([two.first().copied().unwrap_or(0), two.get(1).copied().unwrap_or(0)]));
    let wanted = if platform.architecture == "arm64" { 183 } else { 62 };
    if machine != Some(wanted) {
        return refuse(&format!("it is not for {}", platform.architecture));
    }
    // PT_INTERP names a loader that an image need not have.
    if has_interpreter(bytes) {
        return refuse("it is linked dynamically");
    }
    Ok(())
}

fn has_interpreter(elf: &[u8]) -> bool {
    let word =
        |at: usize| elf.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes);
    let half = |at: usize| elf.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes);
    let (Some(table), Some(size), Some(count)) = (word(32), half(54), half(56)) else { return false };
    let Ok(table) = usize::try_from(table) else { return false };
    (0..usize::from(count)).any(|index| {
        let at = table.saturating_add(index * usize::from(size));
        at.checked_add(4).and_then(|end| elf.get(at..end)) == Some(&[3, 0, 0, 0])
    })
}
