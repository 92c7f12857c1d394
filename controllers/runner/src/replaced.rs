//! Notices when the node has replaced the files of a mounted config map or secret.
//!
//! The node writes a new set of files, and then replaces the symbolic link `..data`; that is what is waited for. Nothing is polled.

use std::path::Path;

use rustix::fs::inotify;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// The symbolic link that the node replaces.
pub(crate) const DATA: &str = "..data";

/// Reports that the symbolic link of a directory was replaced.
#[derive(Debug)]
pub(crate) struct Watcher(pipe::Receiver);

impl Watcher {
    /// Of these directories.
    ///
    /// # Errors
    /// If one is not there, or the kernel has no watches left.
    pub(crate) fn new<'a>(directories: impl IntoIterator<Item = &'a Path>) -> std::io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        for directory in directories {
            let what = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
            inotify::add_watch(&fd, directory, what)?;
        }
        // Not a pipe, but read like one: when there is something, and never blocking.
        Ok(Self(pipe::Receiver::from_file_unchecked(fd.into())?))
    }

    /// Waits until a symbolic link was replaced; does not return if the kernel reports nothing more.
    async fn changed(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            let Ok(count @ 1..) = self.0.read(&mut buffer).await else { return std::future::pending().await };
            // Events are a head and a name that ends with NUL (inotify(7)); only the name matters.
            let events = buffer.get(..count).unwrap_or_default();
            if events.windows(DATA.len() + 1).any(|name| name.split_last() == Some((&0, DATA.as_bytes()))) {
                return;
            }
        }
    }
}

/// Waits until the files of one of the directories were replaced; does not return if they are not watched.
pub(crate) async fn changed(watcher: &mut Option<Watcher>) {
    match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_replaced_link_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut watcher = Watcher::new([directory.path()]).unwrap();
        std::fs::write(path("other"), "").unwrap();
        std::os::unix::fs::symlink("..2", path("..tmp")).unwrap();
        std::fs::rename(path("..tmp"), path(DATA)).unwrap();
        tokio::time::timeout(Duration::from_secs(30), watcher.changed()).await.unwrap();
    }
}
