//! Volumes with files that change together: the directory holds links into `..data`, which is a link to the directory
//! with the files; an update makes a new directory and changes that one link. As kubelets lay such volumes out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path};

use crate::files;

/// The link to the files.
const DATA: &str = "..data";

/// Files of a volume: relative path, content, mode.
pub(crate) type Payload = BTreeMap<String, (Vec<u8>, u32)>;

/// Whether a path stays within its volume and clear of our own names.
pub(crate) fn is_proper(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some()
        && !path.starts_with("..")
        && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn holds(directory: &Path, payload: &Payload) -> bool {
    let mut count = 0;
    for (path, (content, mode)) in payload {
        let file = directory.join(path);
        let same_mode = fs::metadata(&file).is_ok_and(|m| m.permissions().mode() & 0o7777 == *mode);
        if !same_mode || fs::read(&file).ok().as_ref() != Some(content) {
            return false;
        }
        count += 1;
    }
    count == file_count(directory)
}

fn file_count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { file_count(&entry.path()) } else { 1 }).sum()
}

fn top(path: &str) -> &str {
    path.trim_start_matches("./").split('/').next().unwrap_or("")
}

/// Makes a volume hold these files and no others, which also belong to a group. Whether anything changed.
pub(crate) fn write(volume: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let data = volume.join(DATA);
    let old = fs::read_link(&data).ok();
    if old.is_some() && holds(&data, payload) {
        return Ok(false);
    }
    // A time as kubelets name it, and what makes it unique.
    let name = format!("..{}", files::beside(Path::new("data")).to_string_lossy().trim_start_matches('.'));
    let new = volume.join(&name);
    files::remove(&new)?;
    fs::create_dir(&new)?;
    for (path, (content, mode)) in payload {
        let file = new.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        files::replace(&file, content, *mode)?;
    }
    if let Some(group) = group {
        give(&new, group)?;
    }
    let next = volume.join("..data_tmp");
    files::remove(&next)?;
    symlink(&name, &next)?;
    fs::rename(&next, &data)?;
    let wanted: BTreeSet<&str> = payload.keys().map(|path| top(path)).collect();
    for name in &wanted {
        let link = volume.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link)?;
        }
    }
    for entry in fs::read_dir(volume)?.flatten() {
        let own = entry.file_name();
        let own = own.to_string_lossy();
        // Links of ours only: other volumes may be mounted within this one.
        let is_ours = fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(DATA));
        let is_stale = own.starts_with("..") && own != name && own != DATA;
        if is_stale || (is_ours && !own.starts_with("..") && !wanted.contains(own.as_ref())) {
            files::remove(&entry.path())?;
        }
    }
    Ok(true)
}

/// Gives what was just made to a group, which no other process has seen yet.
fn give(path: &Path, group: u32) -> io::Result<()> {
    files::give_to_group(path, group)?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        files.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o640))).collect()
    }

    #[test]
    fn files_change_together() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path();
        let read = |path: &str| fs::read_to_string(volume.join(path)).ok();
        assert!(write(volume, &payload(&[("a", "1"), ("d/b", "2"), ("gone", "3")]), None).unwrap());
        assert!(!write(volume, &payload(&[("a", "1"), ("d/b", "2"), ("gone", "3")]), None).unwrap());
        assert_eq!((read("a").as_deref(), read("d/b").as_deref()), (Some("1"), Some("2")));
        assert_eq!(fs::metadata(volume.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        let before = fs::read_link(volume.join(DATA)).unwrap();
        assert!(write(volume, &payload(&[("a", "1b"), ("d/b", "2"), ("new", "4")]), None).unwrap());
        assert_ne!(fs::read_link(volume.join(DATA)).unwrap(), before);
        assert_eq!(
            (read("a").as_deref(), read("gone"), read("new").as_deref()),
            (Some("1b"), None, Some("4"))
        );
        assert!(!volume.join(before).exists());
        assert!(write(volume, &Payload::new(), None).unwrap());
        assert_eq!(fs::read_dir(volume).unwrap().count(), 2);
    }

    #[test]
    fn paths_stay_within() {
        for good in ["a", "a/b", "a/..b", ".hidden"] {
            assert!(is_proper(good), "{good}");
        }
        for bad in ["", "/a", "../a", "a/../b", "..a"] {
            assert!(!is_proper(bad), "{bad}");
        }
    }
}
