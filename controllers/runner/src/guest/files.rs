//! Files kept in step: what a node puts into a mounted config map or secret is pushed into the guest, at once when it changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use tokio::sync::mpsc;

use super::daemon::Daemon;
use crate::replaced::{Watcher, changed};
use crate::volume::Modes;
use neonvm_core_vm_lifecycle::runner::Event;

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// Attempts without an answer of the guest after which that is reported: a guest boots meanwhile, in a minute if it is emulated.
const PATIENCE: u32 = 16;

/// A directory of the pod and where its files appear in the guest.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) modes: Modes,
}

/// Pushes all pairs now, and each again when it changes, until dropped.
pub(crate) async fn keep(pairs: Vec<Pair>, daemon: Daemon, events: mpsc::Sender<Event>) {
    if pairs.is_empty() {
        return;
    }
    let mut watcher = match Watcher::new(pairs.iter().map(|pair| pair.source.as_path())) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "changes of mounted files will not be seen");
            None
        }
    };
    loop {
        push_all(&pairs, &daemon, &events).await;
        changed(&mut watcher).await;
    }
}

async fn push_all(pairs: &[Pair], daemon: &Daemon, events: &mpsc::Sender<Event>) {
    let (mut pause, mut attempts) = (RETRY_FIRST, 0);
    loop {
        let mut failure = None;
        for pair in pairs {
            if let Err(Failure { why, lasting }) = push(pair, daemon).await {
                // One that lasts is the better reason.
                if lasting || failure.is_none() {
                    failure = Some((format!("{}: {why}", pair.target), lasting));
                }
            }
        }
        let Some((why, lasting)) = failure else {
            let _ = events.send(Event::FilesSent).await;
            return;
        };
        attempts += 1;
        if lasting || attempts >= PATIENCE {
            let _ = events.send(Event::FilesFailed(why)).await;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_LONGEST);
    }
}

/// Why files were not sent.
struct Failure {
    why: String,
    /// The guest has refused them, or they cannot be read: another attempt ends in the same way unless something changes.
    lasting: bool,
}

async fn push(pair: &Pair, daemon: &Daemon) -> Result<(), Failure> {
    let (source, modes) = (pair.source.clone(), pair.modes.clone());
    let unreadable = |why: String| Failure { why, lasting: true };
    let body = tokio::task::spawn_blocking(move || payload(&source, &modes)).await;
    let body = body.map_err(|error| unreadable(error.to_string()))?.map_err(unreadable)?;
    let sent = daemon.put_files(&pair.target, body).await;
    sent.map_err(|error| Failure {
        lasting: matches!(error, super::daemon::Error::Status(..)),
        why: error.to_string(),
    })
}

/// The files of a directory as the daemon wants them, with directories and modes.
fn payload(directory: &Path, modes: &Modes) -> Result<Vec<u8>, String> {
    let files = crate::volume::mounted(directory, modes).map_err(|error| error.to_string())?;
    let all: BTreeMap<String, serde_json::Value> = files
        .into_iter()
        .map(|file| {
            let data = base64::engine::general_purpose::STANDARD.encode(file.content);
            (file.path, serde_json::json!({ "data": data, "mode": file.mode & 0o777 }))
        })
        .collect();
    serde_json::to_vec(&all).map_err(|error| error.to_string())
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
        std::fs::rename(directory.join("..tmp"), directory.join(crate::replaced::DATA)).unwrap();
        let _ = std::os::unix::fs::symlink("..data/Key.Name", directory.join("Key.Name"));
    }

    #[test]
    fn payloads_hold_the_files_and_nothing_of_the_layout() {
        let directory = directory();
        let data = directory.path().join("..1");
        std::fs::create_dir(data.join("sub")).unwrap();
        std::fs::write(data.join("sub/p.txt"), "").unwrap();
        std::os::unix::fs::symlink("..data/sub", directory.path().join("sub")).unwrap();
        let disk = serde_json::json!({"name": "c", "mountPath": "/c", "configMap": {"name": "m",
            "items": [{"key": "k", "path": "Key.Name", "mode": 0o400}]}});
        let modes = Modes::of(&serde_json::from_value(disk).unwrap());
        let sent: serde_json::Value =
            serde_json::from_slice(&payload(directory.path(), &modes).unwrap()).unwrap();
        let expected = serde_json::json!({"Key.Name": {"data": "b25l", "mode": 0o400}, "sub/p.txt": {"data": "", "mode": 0o644}});
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn files_that_cannot_be_read_are_reported_at_once() {
        let pairs = [Pair { source: "/nowhere/at/all".into(), target: "/x".into(), modes: Modes::default() }];
        let daemon = Daemon::new(crate::network::Reach::Forwards(std::sync::Arc::default()));
        let (events, mut reported) = mpsc::channel(8);
        let task = tokio::spawn(async move { push_all(&pairs, &daemon, &events).await });
        let Some(Event::FilesFailed(why)) = reported.recv().await else { panic!("no failure") };
        assert!(why.starts_with("/x: cannot read the mounted files at /nowhere"), "{why}");
        task.abort();
    }
}
