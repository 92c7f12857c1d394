//! Directories that the host fills through the daemon before the workload may start.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::inotify;

use super::events;

/// The link the daemon sets when a set of files is complete.
const COMPLETE: &str = "..data";

#[derive(Debug, Default)]
pub(super) struct Synchronised {
    paths: Vec<PathBuf>,
    watcher: Option<File>,
}

impl Synchronised {
    /// Makes the directories and watches them.
    pub(super) fn watch(paths: &[String], epoll: &OwnedFd) -> Self {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        if paths.is_empty() {
            return Self::default();
        }
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let watcher = inotify::init(flags).ok();
        for path in &paths {
            let _ = fs::create_dir_all(path);
            if let Some(watcher) = &watcher {
                let what = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
                let _ = inotify::add_watch(watcher, path, what);
            }
        }
        if let Some(watcher) = &watcher {
            let _ = epoll::add(epoll, watcher, EventData::new_u64(events::SYNCHRONISED), EventFlags::IN);
        }
        Self { paths, watcher: watcher.map(File::from) }
    }

    /// Whether all files are there.
    pub(super) fn is_complete(&self) -> bool {
        self.paths.iter().all(|path| path.join(COMPLETE).exists())
    }

    /// Reads away the news.
    pub(super) fn drain(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            events::drain(watcher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_counts() {
        let directory = tempfile::tempdir().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let paths = ["a", "b"].map(|name| directory.path().join(name).to_string_lossy().into_owned());
        let mut synchronised = Synchronised::watch(&paths, &epoll);
        assert!(!synchronised.is_complete());
        for path in &paths {
            fs::create_dir(PathBuf::from(path).join(COMPLETE)).unwrap();
        }
        assert!(synchronised.is_complete());
        synchronised.drain();
        assert!(Synchronised::default().is_complete());
    }
}
