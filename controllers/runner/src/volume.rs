//! Volumes of files for the guest: what a node mounted into the pod, read whole, with names, modes and directories intact.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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

/// The files below a mounted directory, without the node's own layout (`..data` and what it names).
pub(crate) fn mounted(directory: &Path) -> Result<Vec<VolumeFile>, Error> {
    let mut files = Vec::new();
    let mut left = LARGEST;
    collect(directory, "", DEEPEST, &mut left, &mut files)?;
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
            let mode = u16::try_from(metadata.permissions().mode() & 0o7777).unwrap_or(0o400);
            files.push(VolumeFile { path, mode, content });
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
        std::fs::set_permissions(data.join("My.Config.YAML"), std::fs::Permissions::from_mode(0o440))
            .unwrap();
        for (target, name) in
            [("..2026", "..data"), ("..data/My.Config.YAML", "My.Config.YAML"), ("..data/nested", "nested")]
        {
            std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
        }
        let files = mounted(directory.path()).unwrap();
        let seen: Vec<(&str, u16)> = files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        assert_eq!(seen, [("My.Config.YAML", 0o440), ("nested/deep/Key", 0o644)]);
    }

    #[test]
    fn a_missing_mount_is_named() {
        let error = mounted(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the mounted files at /nowhere/at/all"), "{error}");
    }
}
