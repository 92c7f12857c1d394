//! Volumes of files for the guest: what a node mounted into the pod, read whole, with names and directories intact, and with the modes of
//! the VM's specification.

use std::collections::BTreeMap;
use std::path::Path;

use neonvm_api::virtual_machine::Disk;
use neonvm_hypervisor::disks::VolumeFile;

/// Directories in directories; Kubernetes has none this deep.
const DEEPEST: usize = 32;
/// Bytes of one volume. A config map or secret holds 1 MiB; the runtime volume may hold a guest program.
const LARGEST: u64 = 64 << 20;

/// Why there is no volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the mounted files at {path}: {source}")]
    Read { path: String, source: std::io::Error },
    #[error("the mounted files at {path} are larger than {LARGEST} bytes or nested too deep")]
    TooLarge { path: String },
}

/// Mode of a file for which a volume names none.
const MODE: u16 = 0o644;

/// Modes that files have in the guest: those of the VM's specification. A kubelet lets the group of a pod read them besides (`fsGroup`),
/// which is none of the guest's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    default: u16,
    /// By path.
    named: BTreeMap<String, u16>,
}

impl Default for Modes {
    fn default() -> Self {
        Self { default: MODE, named: BTreeMap::new() }
    }
}

impl Modes {
    /// Those of a disk of files.
    pub(crate) fn of(disk: &Disk) -> Self {
        let (default, items) = match (&disk.config_map, &disk.secret) {
            (Some(map), _) => (map.default_mode, map.items.as_deref()),
            (None, Some(secret)) => (secret.default_mode, secret.items.as_deref()),
            (None, None) => (None, None),
        };
        let mode = |mode: i32| u16::try_from(mode & 0o777).unwrap_or(MODE);
        let named = items.unwrap_or_default().iter();
        let named = named.filter_map(|item| Some((item.path.clone(), mode(item.mode?)))).collect();
        Self { default: default.map_or(MODE, mode), named }
    }

    fn file(&self, path: &str) -> u16 {
        self.named.get(path).copied().unwrap_or(self.default)
    }
}

/// The files below a mounted directory, without the node's own layout (`..data` and what it names).
pub(crate) fn mounted(directory: &Path, modes: &Modes) -> Result<Vec<VolumeFile>, Error> {
    let mut files = Vec::new();
    let mut left = LARGEST;
    collect(directory, "", DEEPEST, &mut left, &mut files)?;
    for file in &mut files {
        file.mode = modes.file(&file.path);
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn collect(
    directory: &Path,
    prefix: &str,
    depth: usize,
    left: &mut u64,
    files: &mut Vec<VolumeFile>,
) -> Result<(), Error> {
    let unreadable = |source| Error::Read { path: directory.display().to_string(), source };
    let too_large = || Error::TooLarge { path: directory.display().to_string() };
    let depth = depth.checked_sub(1).ok_or_else(too_large)?;
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with("..")) else { continue };
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        // Follows links: names at the top are links into the current set of files.
        let metadata = std::fs::metadata(entry.path()).map_err(unreadable)?;
        if metadata.is_dir() {
            collect(&entry.path(), &path, depth, left, files)?;
        } else if metadata.is_file() {
            *left = left.checked_sub(metadata.len()).ok_or_else(too_large)?;
            let content = std::fs::read(entry.path()).map_err(unreadable)?;
            files.push(VolumeFile { path, mode: MODE, content });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_files_keep_names_modes_and_directories() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("..2026");
        std::fs::create_dir_all(data.join("nested/deep")).unwrap();
        std::fs::write(data.join("My.Config.YAML"), "a").unwrap();
        std::fs::write(data.join("nested/deep/Key"), "b").unwrap();
        let disk = serde_json::json!({"name": "c", "mountPath": "/c", "secret": {"secretName": "s", "defaultMode": 0o400,
            "items": [{"key": "config", "path": "My.Config.YAML", "mode": 0o600}, {"key": "k", "path": "nested/deep/Key"}]}});
        let modes = Modes::of(&serde_json::from_value(disk).unwrap());
        for (target, name) in
            [("..2026", "..data"), ("..data/My.Config.YAML", "My.Config.YAML"), ("..data/nested", "nested")]
        {
            std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
        }
        let files = mounted(directory.path(), &modes).unwrap();
        let seen: Vec<(&str, u16)> = files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        assert_eq!(seen, [("My.Config.YAML", 0o600), ("nested/deep/Key", 0o400)]);
    }

    #[test]
    fn files_without_a_mode_have_that_of_kubernetes() {
        let map = serde_json::json!({"name": "c", "mountPath": "/c", "configMap": {"name": "m"}});
        let modes = Modes::of(&serde_json::from_value(map).unwrap());
        assert_eq!((modes.clone(), modes.file("x")), (Modes::default(), 0o644));
    }

    #[test]
    fn a_missing_mount_is_named() {
        let error = mounted(Path::new("/nowhere/at/all"), &Modes::default()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the mounted files at /nowhere/at/all"), "{error}");
    }
}
