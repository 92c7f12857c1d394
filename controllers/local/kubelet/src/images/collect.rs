//! Removing unused images.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Images;
use crate::files;

fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// Whether a name is that of something a process was making (`.NAME.PID.NUMBER`) that is no more.
fn is_abandoned(name: &str) -> bool {
    let mut parts = name.rsplit('.').skip(1);
    let pid = parts.next().and_then(|pid| pid.parse::<u32>().ok());
    name.starts_with('.') && pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

impl Images {
    /// A pod is gone: its images may be removed.
    pub(crate) fn release(&self, user: &str) {
        let users = fs::read_dir(self.users()).into_iter().flatten().flatten();
        for directory in users {
            if let Err(error) = files::remove(&directory.path().join(user)) {
                tracing::warn!(%error, user, "cannot be noted as no user of an image any more");
            }
        }
        self.collect();
    }

    /// Forgets users with a prefix, except some; removes what was being fetched when a node was killed.
    pub(crate) fn sweep(&self, prefix: &str, keep: &BTreeSet<String>) {
        for directory in fs::read_dir(self.users()).into_iter().flatten().flatten() {
            for user in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
                let name = user.file_name();
                let name = name.to_string_lossy();
                if name.strip_prefix(prefix).is_some_and(|uid| !keep.contains(uid)) {
                    let _ = fs::remove_file(user.path());
                }
            }
        }
        self.collect();
    }

    /// Removes unused images, those used longest ago first, until the rest is no more than may be kept.
    fn collect(&self) {
        if let Err(error) = self.try_collect() {
            tracing::warn!(%error, "unused images cannot be removed");
        }
    }

    fn try_collect(&self) -> io::Result<()> {
        let _exclusive = self.lock(true)?;
        let mut unused: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
        for entry in fs::read_dir(&self.config.directory)?.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let text = name.to_string_lossy();
            if !(text.starts_with("sha256-") || text.starts_with("file-")) {
                if is_abandoned(&text) {
                    files::remove(&path)?;
                }
                continue;
            }
            let users = self.users().join(&name);
            let used = fs::read_dir(&users).is_ok_and(|mut users| users.next().is_some());
            if !used {
                let modified = entry.metadata().and_then(|metadata| metadata.modified());
                let size = if text.starts_with("file-") { 0 } else { size(&path).max(1) };
                unused.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), path, size));
            }
        }
        unused.sort();
        // Links to files that were named directly are of no other use.
        let (links, mut disks): (Vec<_>, Vec<_>) = unused.into_iter().partition(|(.., size)| *size == 0);
        let mut total: u64 = disks.iter().map(|(.., size)| *size).sum();
        disks.retain(|(.., size)| {
            let goes = total > self.config.keep;
            if goes {
                total = total.saturating_sub(*size);
            }
            goes
        });
        for (_, path, _) in links.into_iter().chain(disks) {
            files::remove(&path)?;
            files::remove(&self.users().join(path.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }
}
