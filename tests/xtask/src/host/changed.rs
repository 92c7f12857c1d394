//! Whether the sources that decide how VMs run on a host have changed since the checks passed on the emulated host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use sha2::{Digest as _, Sha256};

use crate::package::target;

/// The sources: what starts QEMU, what prepares devices, networks and cgroups for it, and the guest's kernel.
const SOURCES: [&str; 4] =
    ["controllers/hypervisor", "controllers/local/kubelet", "controllers/runner", "kernel"];

/// The sources, compared with those that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// The checks have never passed on this computer.
    NeverPassed,
    Unchanged,
    Changed,
}

/// Compares the sources with those that passed.
pub(crate) fn compare(root: &Path) -> anyhow::Result<Sources> {
    let Ok(passed) = std::fs::read(record(root)?) else { return Ok(Sources::NeverPassed) };
    Ok(if passed == digest(root)? { Sources::Unchanged } else { Sources::Changed })
}

/// Records that these sources have passed.
pub(super) fn passed(root: &Path) -> anyhow::Result<()> {
    Ok(std::fs::write(record(root)?, digest(root)?)?)
}

fn record(root: &Path) -> anyhow::Result<PathBuf> {
    Ok(target(root)?.join("host/passed"))
}

/// Digest of the names and contents of all files that are or may become part of the repository.
fn digest(root: &Path) -> anyhow::Result<Vec<u8>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"])
        .args(SOURCES)
        .current_dir(root)
        .output()?;
    ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
    let mut digest = Sha256::new();
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        digest.update(name);
        // A file that was deleted and not committed is listed.
        let bytes = std::fs::read(root.join(name)).unwrap_or_default();
        digest.update(bytes.len().to_le_bytes());
        digest.update(bytes);
    }
    Ok(digest.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(root: &Path, arguments: &[&str]) {
        assert!(Command::new("git").args(arguments).current_dir(root).status().unwrap().success());
    }

    #[test]
    fn every_file_of_the_sources_counts_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        git(root, &["init", "--quiet"]);
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("kernel/a", "1");
        write("cli/b", "1");
        git(root, &["add", "."]);
        let first = digest(root).unwrap();
        write("cli/b", "2");
        assert_eq!(digest(root).unwrap(), first);
        write("kernel/a", "2");
        let second = digest(root).unwrap();
        write("controllers/runner/new", "");
        let third = digest(root).unwrap();
        std::fs::remove_file(root.join("kernel/a")).unwrap();
        let all = [first, second, third, digest(root).unwrap()];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "{all:?}");
    }
}
