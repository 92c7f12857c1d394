//! The network namespace of the node.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::time::Instant;

/// The file system of namespaces (`linux/magic.h`).
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;
/// Pause between two checks of whether it is there.
const LOOK: Duration = Duration::from_millis(50);

/// The network namespace of the node.
#[derive(Debug)]
pub(crate) struct Namespace {
    path: Option<PathBuf>,
    file: Option<File>,
}

impl Namespace {
    /// Opens it; without a path it is that of the process. Not found, too, is one that is just being made: a file, on which
    /// the namespace is mounted a moment later.
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let file = path.as_ref().map(File::open).transpose()?;
        if let Some(file) = &file
            && rustix::fs::fstatfs(file)?.f_type != NSFS_MAGIC
        {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file is no namespace"));
        }
        Ok(Self { path, file })
    }

    /// Opens it as soon as it exists, within `patience`: a node may start all its services at the same time.
    pub(crate) async fn appears(path: Option<PathBuf>, patience: Duration) -> io::Result<Self> {
        let until = Instant::now() + patience;
        let mut is_logged = false;
        loop {
            match Self::open(path.clone()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::info!(?path, "waits for the network namespace of the node");
                    }
                }
                opened => return opened,
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the path still refers to the open namespace: a node that was set up again has another one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_is_being_made_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node");
        let open = || Namespace::open(Some(path.clone())).map(|namespace| namespace.is_current());
        assert_eq!(open().unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "").unwrap();
        let error = Namespace::appears(Some(path.clone()), Duration::ZERO).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::NotFound, "the file is no namespace")
        );
        let waiting = tokio::spawn(Namespace::appears(Some(path.clone()), Duration::from_secs(60)));
        tokio::time::sleep(LOOK * 3).await;
        assert!(!waiting.is_finished());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/net", &path).unwrap();
        let found = waiting.await.unwrap().unwrap();
        assert!(found.is_current());
    }
}
