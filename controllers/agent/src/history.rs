//! What happened to each VM of the node, kept within bounds and across restarts of the agent, for `neonctl vm history`.
//!
//! [`Keep`] decides what is worth a record; [`files`] holds the records. A thread of its own writes them, so that a slow disk
//! delays no decision: what it cannot take in time is lost, and the log reports that.

mod files;
mod keep;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use neonvm_types::NamespacedName;
use neonvm_types::agent_history::Record;

use files::Files;
pub(crate) use keep::Keep;

/// Records that may wait for the disk.
const WAITING: usize = 4096;
/// Each so many lost records are reported.
const REPORT: u64 = 1000;

/// Where records go. Without a directory nowhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    directory: PathBuf,
    records: SyncSender<(NamespacedName, Record)>,
    lost: AtomicU64,
}

impl History {
    /// Begins to keep records in a directory. The thread ends when the last clone is dropped.
    ///
    /// # Errors
    /// If the directory cannot be made or written, or the thread cannot be started.
    pub(crate) fn start(directory: &Path) -> io::Result<(Self, JoinHandle<()>)> {
        let files = Files::open(directory)?;
        let (records, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("history".to_owned());
        let thread = thread.spawn(move || write(files, &waiting))?;
        let kept = Kept { directory: directory.to_owned(), records, lost: AtomicU64::new(0) };
        Ok((Self(Some(Arc::new(kept))), thread))
    }

    /// Whether anything is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps a record. Never waits.
    pub(crate) fn record(&self, vm: &NamespacedName, record: Record) {
        let Some(kept) = &self.0 else { return };
        if kept.records.try_send((vm.clone(), record)).is_err() {
            let lost = kept.lost.fetch_add(1, Ordering::Relaxed);
            if lost.is_multiple_of(REPORT) {
                tracing::warn!(
                    lost = lost + 1,
                    "records of the history are lost: the disk does not take them in time"
                );
            }
        }
    }

    /// The records of a VM from `since` on (milliseconds since 1970), and the last sample before; oldest first.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) async fn read(&self, vm: NamespacedName, since: i64) -> io::Result<Vec<Record>> {
        let Some(kept) = &self.0 else { return Ok(Vec::new()) };
        let directory = kept.directory.clone();
        let read = tokio::task::spawn_blocking(move || files::read(&directory, &vm, since));
        read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// Writes until all senders are gone.
fn write(mut files: Files, waiting: &Receiver<(NamespacedName, Record)>) {
    let mut failing = false;
    while let Ok((vm, record)) = waiting.recv() {
        let result = files.append(&vm, &record);
        if let Err(error) = &result
            && !failing
        {
            tracing::warn!(%vm, %error, "the history cannot be written");
        }
        failing = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::agent_history::Decided;

    use super::*;

    #[tokio::test]
    async fn records_are_there_again_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let vm = NamespacedName::new("default", "pg");
        for at in 1..=2 {
            let (history, thread) = History::start(directory.path()).unwrap();
            let decision = Decided { text: format!("decision {at}"), reason: None };
            history.record(&vm, Record { at, decision: Some(decision), ..Record::default() });
            drop(history);
            thread.join().unwrap();
        }
        let (history, _thread) = History::start(directory.path()).unwrap();
        let read = history.read(vm, 0).await.unwrap();
        assert_eq!(read.iter().map(|record| record.at).collect::<Vec<_>>(), [1, 2]);
        assert!(history.read(NamespacedName::new("default", "other"), 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn without_a_directory_nothing_is_kept() {
        let history = History::default();
        history.record(&NamespacedName::new("default", "pg"), Record::default());
        assert!(!history.is_kept());
        assert!(history.read(NamespacedName::new("default", "pg"), 0).await.unwrap().is_empty());
    }
}
