//! Why CPU cannot be limited.

use std::io;
use std::path::PathBuf;

/// Why CPU cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is no such controller here.
    #[error("there is no cgroup hierarchy with the cpu controller below {}", .0.display())]
    NoController(PathBuf),
    /// Rights are missing.
    #[error("not permitted to {what} {}", path.display())]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
    },
    /// A path that leads out of the hierarchy.
    #[error("`{0}` is not the path of a cgroup")]
    Path(String),
    /// Not all files of it were handed over.
    #[error("the file {0} of the cgroup is missing; are node service and runner of one version?")]
    Missing(&'static str),
    /// The kernel refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

impl CgroupError {
    /// Names what failed.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotPermitted { what, path }
            }
            _ => Self::Io { what, path, source },
        }
    }
}
