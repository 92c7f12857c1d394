//! State that only its owner can open: files 0600 in directories 0700, from their first byte on.
//!
//! Code that creates state uses [`directory`], [`create`] and [`replace`]. [`secure`] verifies at start what earlier
//! versions or other programs made: it repairs modes, and refuses what belongs to another user.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Mode of a directory of state.
pub const DIRECTORY: u32 = 0o700;
/// Mode of a file of state.
pub const FILE: u32 = 0o600;

/// Directories below a cluster's with content of other users or in other modes: what pods see of volumes, names, images and the socket of
/// the node service, and write as logs and messages. Other users of this computer cannot reach it, because of the directories above.
pub const LEFT: [&str; 8] =
    ["volumes", "root", "etc", "images", "image-cache", "node-service", "logs", "containers"];

/// Paths that a log line names before it only counts the rest.
const NAMED: usize = 5;

/// What is wrong with an entry of a directory of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Other users can open it; its mode is given.
    Open(u32),
    /// It belongs to this user and not to the current one.
    Foreign(u32),
}

/// An entry with a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which file or directory.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: Problem,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match self.problem {
            Problem::Open(mode) => write!(f, "{path} has mode {mode:04o}, so that other users can open it"),
            Problem::Foreign(owner) => {
                write!(f, "{path} belongs to user {owner}, not to user {}", own_user())
            }
        }
    }
}

/// Why state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another user owns a part of it, and can change its mode and read it.
    #[error(
        "{path} belongs to user {owner}, not to user {own} who starts this; give it back with `chown -R {own} {root}`, or choose another --data-dir"
    )]
    Foreign {
        /// Which file or directory.
        path: String,
        /// User id of its owner.
        owner: u32,
        /// User id of the process.
        own: u32,
        /// The directory of all of it.
        root: String,
    },
    /// It cannot be read or repaired.
    #[error("cannot secure {path}")]
    File {
        /// Which file or directory.
        path: String,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
}

/// Makes a directory, and what is missing above it, with mode 0700. One that exists keeps its mode.
///
/// # Errors
/// If it cannot be made.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Options that make a file with mode 0600 and follow no link in its place. One that exists keeps its mode.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Makes a new file with mode 0600 in place of what has its name.
///
/// # Errors
/// If it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options().read(true).write(true).create_new(true).open(path)
}

/// Writes a file with mode 0600 to the disk; readers find the old content or the new one, never a part.
///
/// # Errors
/// If it cannot be written; the old content stays then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".new");
    let next = PathBuf::from(next);
    let write = || {
        let mut file = create(&next)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&next, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&next)))
}

/// Everything below a directory, and the directory itself, that others can open or own. Directories named in `leave`
/// are checked, their content is not. Links are not followed.
///
/// # Errors
/// If something cannot be read. What vanishes meanwhile is no error.
pub fn audit(root: &Path, leave: &[&str]) -> Result<Vec<Finding>, Error> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let failed = |source| Error::File { path: path.display().to_string(), source };
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata.map_err(failed)?,
        };
        if let Some(problem) = judge(metadata.uid(), metadata.mode(), metadata.is_symlink(), own_user()) {
            found.push(Finding { path: path.clone(), problem });
        }
        let is_left =
            path != root && path.file_name().is_some_and(|name| leave.iter().any(|left| name == *left));
        if !metadata.is_dir() || is_left {
            continue;
        }
        for entry in fs::read_dir(&path).map_err(failed)? {
            waiting.push(entry.map_err(failed)?.path());
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The decision about one entry.
fn judge(owner: u32, mode: u32, is_link: bool, own: u32) -> Option<Problem> {
    if owner != own {
        Some(Problem::Foreign(owner))
    } else if !is_link && mode & 0o077 != 0 {
        Some(Problem::Open(mode & 0o7777))
    } else {
        None
    }
}

/// What [`audit`] finds, if all of it can be repaired.
///
/// # Errors
/// If something belongs to another user, or cannot be read.
pub fn verify(root: &Path, leave: &[&str]) -> Result<Vec<Finding>, Error> {
    let findings = audit(root, leave)?;
    for finding in &findings {
        if let Problem::Foreign(owner) = finding.problem {
            let (path, root) = (finding.path.display().to_string(), root.display().to_string());
            return Err(Error::Foreign { path, owner, own: own_user(), root });
        }
    }
    Ok(findings)
}

/// Closes everything below a directory, and the directory itself, to other users, see [`audit`]. One line of the log names what was
/// repaired.
///
/// # Errors
/// If something belongs to another user, or cannot be repaired.
pub fn secure(root: &Path, leave: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let mut repaired = Vec::new();
    for Finding { path, problem } in verify(root, leave)? {
        let Problem::Open(mode) = problem else { continue };
        match fs::set_permissions(&path, Permissions::from_mode(mode & 0o7700)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::File { path: path.display().to_string(), source }),
            Ok(()) => repaired.push(path),
        }
    }
    if !repaired.is_empty() {
        let names: Vec<String> = repaired.iter().take(NAMED).map(|path| path.display().to_string()).collect();
        let more = match repaired.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        tracing::warn!("other users could open {}{more}: repaired", names.join(", "));
    }
    Ok(repaired)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{need, needs};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn open_to_all(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn state_is_closed_from_its_first_byte() {
        let home = tempfile::tempdir().unwrap();
        let below = home.path().join("a/b");
        directory(&below).unwrap();
        assert_eq!((mode(&home.path().join("a")), mode(&below)), (0o700, 0o700));
        let file = below.join("file");
        // What was there before, readable by all, does not pass its mode on.
        fs::write(&file, "old").unwrap();
        open_to_all(&file, 0o644);
        replace(&file, b"new").unwrap();
        assert_eq!((mode(&file), fs::read_to_string(&file).unwrap().as_str()), (0o600, "new"));
        open_to_all(&file, 0o644);
        drop(create(&file).unwrap());
        assert_eq!((mode(&file), fs::read_dir(&below).unwrap().count()), (0o600, 1));
    }

    #[test]
    fn a_link_in_place_of_a_file_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (victim, link) = (home.path().join("victim"), home.path().join("link"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(options().append(true).create(true).open(&link).is_err());
        replace(&link, b"mine").unwrap();
        drop(create(&link).unwrap());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn what_is_open_to_others_is_repaired_once() {
        let home = tempfile::tempdir().unwrap();
        let (root, left) = (home.path().join("cluster"), home.path().join("cluster/pods/volumes"));
        fs::create_dir_all(&left).unwrap();
        for (file, to) in
            [(root.join("state"), 0o644), (root.join("run"), 0o750), (left.join("theirs"), 0o644)]
        {
            fs::write(&file, "x").unwrap();
            open_to_all(&file, to);
        }
        for path in [&root, &root.join("pods"), &left] {
            open_to_all(path, 0o755);
        }
        let names: Vec<String> =
            audit(&root, &["volumes"]).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 5, "{names:?}");
        assert!(
            names.iter().any(|name| name.ends_with("state has mode 0644, so that other users can open it"))
        );
        assert_eq!(secure(&root, &["volumes"]).unwrap().len(), 5);
        assert_eq!((mode(&root), mode(&left), mode(&root.join("state"))), (0o700, 0o700, 0o600));
        // The right to run it stays the owner's.
        assert_eq!((mode(&root.join("run")), mode(&left.join("theirs"))), (0o700, 0o644));
        assert_eq!(secure(&root, &["volumes"]).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_belongs_to_another_user_is_refused_with_the_way_out() {
        need!(needs::root());
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("state");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        let refused = secure(home.path(), &[]).unwrap_err().to_string();
        let remedy = format!("`chown -R 0 {}`", home.path().display());
        assert!(
            refused.contains("belongs to user 65534, not to user 0") && refused.contains(&remedy),
            "{refused}"
        );
    }
}
