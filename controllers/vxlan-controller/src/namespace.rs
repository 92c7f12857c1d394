//! The network namespace of the node.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The network namespace of the node.
#[derive(Debug)]
pub(crate) struct Namespace {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl Namespace {
    /// Opens it; without a path it is that of the process.
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let file = path.as_ref().map(File::open).transpose()?;
        Ok(Self { path, file })
    }

    /// Whether its path still leads to it: a node that was set up anew has another.
    pub(crate) fn is_current(&self) -> bool {
        let (Some(path), Some(file)) = (&self.path, &self.file) else { return true };
        let (Ok(named), Ok(held)) = (std::fs::metadata(path), file.metadata()) else { return false };
        (named.dev(), named.ino()) == (held.dev(), held.ino())
    }

    /// Runs something in it. Blocks.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let Some(file) = &self.file else { return work() };
        let inside = move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        };
        // The thread ends with its work: no other work can find itself in a strange namespace.
        std::thread::scope(|scope| {
            let thread =
                std::thread::Builder::new().name("in-namespace".into()).spawn_scoped(scope, inside)?;
            thread.join().map_err(|_| io::Error::other("the work in the namespace failed"))?
        })
    }
}
