//! Files kept in step: what a node puts into a mounted config map or secret is pushed into the guest, at once when it changes.
//!
//! The node replaces the link `..data` when it has written a new set of files; that is what is waited for. Nothing is polled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use rustix::fs::inotify;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::daemon::Daemon;
use neonvm_core_runner::Event;

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// Failed attempts after which the failure is reported.
const PATIENCE: u32 = 6;
/// The link the node replaces.
const DATA: &str = "..data";

/// A directory of the pod and where its files appear in the guest.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
}

/// Pushes all pairs now, and each again when it changes, until dropped.
pub(crate) async fn keep(pairs: Vec<Pair>, daemon: Daemon, events: mpsc::Sender<Event>) {
    if pairs.is_empty() {
        return;
    }
    let mut watcher = match Watcher::new(&pairs) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "changes of mounted files will not be seen");
            None
        }
    };
    loop {
        push_all(&pairs, &daemon, &events).await;
        match &mut watcher {
            Some(watcher) => watcher.changed().await,
            None => std::future::pending().await,
        }
    }
}

async fn push_all(pairs: &[Pair], daemon: &Daemon, events: &mpsc::Sender<Event>) {
    let (mut pause, mut attempts) = (RETRY_FIRST, 0);
    loop {
        let mut failure = None;
        for pair in pairs {
            if let Err(why) = push(pair, daemon).await {
                failure = Some(format!("{}: {why}", pair.target));
            }
        }
        let Some(why) = failure else {
            let _ = events.send(Event::FilesSent).await;
            return;
        };
        attempts += 1;
        if attempts >= PATIENCE {
            let _ = events.send(Event::FilesFailed(why)).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_LONGEST);
    }
}

async fn push(pair: &Pair, daemon: &Daemon) -> Result<(), String> {
    let source = pair.source.clone();
    let body =
        tokio::task::spawn_blocking(move || payload(&source)).await.map_err(|error| error.to_string())??;
    daemon.put_files(&pair.target, body).await.map_err(|error| error.to_string())
}

/// The files of a directory as the daemon wants them.
fn payload(directory: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("cannot read the mounted files: {error}");
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.starts_with("..") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            return Err(format!(
                "{name}/ is a directory; only files without a directory can be kept in step"
            ));
        }
        let content = std::fs::read(&path).map_err(unreadable)?;
        let data = base64::engine::general_purpose::STANDARD.encode(content);
        files.insert(name, serde_json::json!({ "data": data }));
    }
    serde_json::to_vec(&files).map_err(|error| error.to_string())
}

/// Waits for replaced links.
struct Watcher(pipe::Receiver);

impl Watcher {
    fn new(pairs: &[Pair]) -> std::io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        for pair in pairs {
            let what = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
            inotify::add_watch(&fd, &pair.source, what)?;
        }
        // Not a pipe, but read like one: when there is something, and never blocking.
        Ok(Self(pipe::Receiver::from_file_unchecked(fd.into())?))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "1", "one");
        directory
    }

    /// As a node does: a new directory, then the link is replaced.
    fn write(directory: &Path, version: &str, text: &str) {
        let data = directory.join(format!("..{version}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("Key.Name"), text).unwrap();
        std::os::unix::fs::symlink(format!("..{version}"), directory.join("..tmp")).unwrap();
        std::fs::rename(directory.join("..tmp"), directory.join(DATA)).unwrap();
        let _ = std::os::unix::fs::symlink("..data/Key.Name", directory.join("Key.Name"));
    }

    #[test]
    fn payloads_hold_the_files_and_nothing_of_the_layout() {
        let directory = directory();
        assert_eq!(payload(directory.path()).unwrap(), br#"{"Key.Name":{"data":"b25l"}}"#);
        std::fs::create_dir(directory.path().join("nested")).unwrap();
        assert!(payload(directory.path()).unwrap_err().contains("nested/ is a directory"));
    }

    #[tokio::test]
    async fn a_replaced_link_is_noticed() {
        let directory = directory();
        let pairs = [Pair { source: directory.path().to_owned(), target: "/x".into() }];
        let mut watcher = Watcher::new(&pairs).unwrap();
        std::fs::write(directory.path().join("other"), "").unwrap();
        write(directory.path(), "2", "two");
        tokio::time::timeout(Duration::from_secs(30), watcher.changed()).await.unwrap();
    }
}
