//! Loading kernel modules in the order the builder of the initramfs found: some before the root device is looked for,
//! the others beside the workload.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::report;

pub const DIRECTORY: &str = "/modules";
/// Where those for later are found in the root file system.
pub const LATER: &str = "/run/neonvm/modules";
/// The list of what is loaded, one file name a line.
const ORDER: &str = "order";

/// Loads each file named in `order`, one a line, below the directory. Returns what failed; what is there already, as a
/// module or within the kernel, is no failure.
pub fn load(directory: &Path) -> Vec<String> {
    let order = std::fs::read_to_string(directory.join(ORDER)).unwrap_or_default();
    order
        .lines()
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.starts_with('#') && !name.contains(".."))
        .filter_map(|name| {
            load_one(&directory.join(name)).err().map(|error| format!("module {name}: {error}"))
        })
        .collect()
}

/// Loads what project quotas need now, if it was to be loaded later.
pub fn load_quota() {
    for name in ["quota_tree.ko", "quota_v2.ko"] {
        // Without such a file it is part of the kernel, or mounting reports the error.
        let _ = load_one(&Path::new(LATER).join(name));
    }
}

/// Deletes the modules that were loaded and keeps those of the list `later` over the change of root: their directory
/// is mounted at `place` too, so that nothing is copied. False: there are none.
pub fn keep(directory: &Path, place: &Path) -> io::Result<bool> {
    let later = fs::read_to_string(directory.join("later")).unwrap_or_default();
    if later.trim().is_empty() {
        return Ok(false);
    }
    for name in fs::read_to_string(directory.join(ORDER)).unwrap_or_default().lines() {
        let _ = fs::remove_file(directory.join(name.trim()));
    }
    fs::rename(directory.join("later"), directory.join(ORDER))?;
    fs::create_dir_all(place)?;
    mount_bind(directory, place)?;
    Ok(true)
}

/// The role `modules <directory>`: loads what [`keep`] has kept and gives its memory back.
pub fn run(arguments: &[String]) -> u8 {
    let [directory] = arguments else { return crate::system::refuse("usage: modules <directory>") };
    let directory = Path::new(directory);
    let problems = load(directory);
    if !problems.is_empty() {
        report::fail(&problems.join("; "));
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let _ = unmount(directory, UnmountFlags::DETACH);
    let _ = fs::remove_dir(directory);
    0
}

fn load_one(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    match rustix::system::finit_module(&file, c"", 0) {
        // There already, or this machine has nothing that the module is for.
        Ok(()) | Err(Errno::EXIST | Errno::BUSY | Errno::NODEV | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_is_named_and_no_name_climbs() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("order"), "# x\n\ngone.ko\n../etc/passwd\n").unwrap();
        let problems = load(directory.path());
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("module gone.ko: "));
        assert!(load(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn without_a_list_for_later_nothing_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!keep(directory.path(), &directory.path().join("place")).unwrap());
        fs::write(directory.path().join("later"), "\n").unwrap();
        assert!(!keep(directory.path(), &directory.path().join("place")).unwrap());
        assert!(!directory.path().join("place").exists());
    }

    #[test]
    fn the_directory_is_empty_and_gone_after_loading() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("modules");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("order"), "").unwrap();
        fs::write(place.join("x.ko"), "").unwrap();
        assert_eq!(run(&[place.to_string_lossy().into_owned()]), 0);
        assert!(!place.exists());
        assert_eq!(run(&[]), 1);
    }
}
