//! What a probe found, kept until the machine boots again or its device changes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::probe::ProbeResult;

/// What a result holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    boot: String,
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

#[derive(Serialize, Deserialize)]
struct Entry {
    key: Key,
    result: ProbeResult,
}

impl Key {
    /// The key now; `None` if it cannot be determined, so nothing is kept.
    pub(super) fn now(device: &Path) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let metadata = fs::metadata(device).ok()?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Some(Self { boot, device: metadata.dev(), inode: metadata.ino(), changed })
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("kvm-probe.json")
}

/// The result for a key. What cannot be read is as if it were not there.
pub(super) fn read(directory: &Path, key: &Key) -> Option<ProbeResult> {
    let bytes = fs::read(file(directory)).ok()?;
    let entry: Entry = serde_json::from_slice(&bytes).ok()?;
    (entry.key == *key).then_some(entry.result)
}

/// Keeps a result. Nothing depends on it, so failures are no errors.
pub(super) fn write(directory: &Path, key: Key, result: &ProbeResult) {
    let put = || -> std::io::Result<()> {
        fs::create_dir_all(directory)?;
        let entry = serde_json::to_vec(&Entry { key, result: result.clone() })?;
        let aside = directory.join(format!("kvm-probe.{}.new", std::process::id()));
        fs::write(&aside, entry)?;
        fs::rename(&aside, file(directory))
    };
    if let Err(error) = put() {
        tracing::debug!(%error, "the result of the accelerator's probe is not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_kept_for_their_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let key = Key::now(Path::new("/dev/null")).unwrap();
        assert_eq!(read(directory.path(), &key), None);
        let result = ProbeResult { usable: false, reason: "no".into(), micros: 1 };
        write(directory.path(), key.clone(), &result);
        assert_eq!(read(directory.path(), &key), Some(result));
        let other = Key { boot: "another".into(), ..key.clone() };
        assert_eq!(read(directory.path(), &other), None);
        fs::write(file(directory.path()), b"{\"key\":").unwrap();
        assert_eq!(read(directory.path(), &key), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
