//! Files that the host keeps up to date inside the guest.
//!
//! A directory so kept looks as a kubelet volume does: the files are in a directory named after the time, `..data`
//! links to it and is swapped in one step, and every file has a link through `..data`. What a change consists of is
//! decided in [`plan`], purely; this file executes it. A kill between any two steps leaves the old or the new files,
//! whole, and the next change removes what was left behind.

pub mod checksum;
pub mod name;
pub mod payload;
pub mod plan;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use payload::Payload;
use plan::{Entry, Kind, Step};

/// Why files could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Target { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: changed while it was read", .0.display())]
    Changed(PathBuf),
}

/// A directory kept up to date.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory `path`.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Checksum of the files as they are; see [`checksum`].
    pub fn checksum(&self) -> Result<String, Error> {
        let data = self.path.join(plan::DATA);
        let mut sum = checksum::Checksum::default();
        for name in self.files()? {
            add(&mut sum, name.as_os_str(), &data.join(&name))?;
        }
        Ok(sum.finish())
    }

    /// Paths of all files, in the order of their bytes.
    fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let data = self.path.join(plan::DATA);
        let (mut files, mut directories) = (Vec::new(), vec![PathBuf::new()]);
        while let Some(directory) = directories.pop() {
            let path = data.join(&directory);
            for entry in fs::read_dir(&path).map_err(at(&path))? {
                let entry = entry.map_err(at(&path))?;
                let kind = entry.file_type().map_err(at(&path))?;
                let name = directory.join(entry.file_name());
                if kind.is_file() {
                    files.push(name);
                } else if kind.is_dir() {
                    directories.push(name);
                }
            }
        }
        // Not the order of paths, by which `a/b` comes before `a.b`.
        files.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        Ok(files)
    }

    /// Whether the files have the owner and the modes that they are to have.
    fn has_modes(&self, payload: &Payload) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let data = self.path.join(plan::DATA);
        payload.names().all(|name| {
            let metadata = fs::symlink_metadata(data.join(name));
            metadata.is_ok_and(|metadata| metadata.mode() & 0o7777 == payload.mode(name))
        })
    }

    /// Makes the files those of `payload`, and no others.
    ///
    /// # Errors
    /// [`Error::Target`] when the directory does not exist, [`Error::Io`] when a step fails; then the files are still
    /// the old ones or already the new ones, whole.
    pub fn update(&self, payload: &Payload) -> Result<(), Error> {
        let entries = self.entries()?;
        let same = self.checksum().is_ok_and(|sum| sum == payload.checksum()) && self.has_modes(payload);
        let fresh = plan::directory_name(SystemTime::now());
        let steps = plan::plan(&entries, payload.names(), (!same).then_some(fresh.as_os_str()));
        for step in &steps {
            if let Err(error) = self.apply(step, payload) {
                // The next change would remove it too; what is left is for users that inspect it now.
                if self.current().as_deref() != Some(fresh.as_os_str()) {
                    let _ = fs::remove_dir_all(self.path.join(&fresh));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn current(&self) -> Option<OsString> {
        fs::read_link(self.path.join(plan::DATA)).ok().map(PathBuf::into_os_string)
    }

    fn entries(&self) -> Result<Vec<Entry>, Error> {
        let target = |source| Error::Target { path: self.path.clone(), source };
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(target)? {
            let entry = entry.map_err(target)?;
            let file_type = entry.file_type().map_err(target)?;
            let kind = if file_type.is_symlink() {
                Kind::Link(fs::read_link(entry.path()).map_err(target)?.into_os_string())
            } else if file_type.is_dir() {
                Kind::Directory
            } else {
                Kind::Other
            };
            entries.push(Entry { name: entry.file_name(), kind });
        }
        Ok(entries)
    }

    fn apply(&self, step: &Step, payload: &Payload) -> Result<(), Error> {
        match step {
            Step::MakeDirectory(name) => {
                let path = self.path.join(name);
                fs::DirBuilder::new().mode(0o755).create(&path).map_err(at(&path))?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(at(&path))
            }
            Step::WriteFile { directory, name } => {
                let path = self.path.join(directory).join(name);
                write(&path, payload.content(name), payload.mode(name)).map_err(at(&path))
            }
            Step::Sync(name) => {
                let path = name.as_ref().map_or_else(|| self.path.clone(), |name| self.path.join(name));
                File::open(&path).and_then(|file| file.sync_all()).map_err(at(&path))
            }
            Step::Link { name, target } => self.link(name, target),
            Step::Unlink(name) => {
                let path = self.path.join(name);
                fs::remove_file(&path).map_err(at(&path))
            }
            Step::RemoveDirectory(name) => {
                let path = self.path.join(name);
                fs::remove_dir_all(&path).map_err(at(&path))
            }
        }
    }

    /// Makes a link, or turns an existing one, in one step.
    fn link(&self, name: &OsStr, target: &OsStr) -> Result<(), Error> {
        let temporary = self.path.join(plan::TEMPORARY);
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&temporary)(error)),
            _ => {}
        }
        symlink(target, &temporary).map_err(at(&temporary))?;
        let path = self.path.join(name);
        fs::rename(&temporary, &path).map_err(at(&path))
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { path: path.clone(), source }
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600 & mode).open(path)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Adds a file to a checksum without holding it in memory.
fn add(sum: &mut checksum::Checksum, name: &OsStr, path: &Path) -> Result<(), Error> {
    let mut file = File::open(path).map_err(at(path))?;
    let length = file.metadata().map_err(at(path))?.len();
    sum.start(name, length);
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = 0u64;
    loop {
        let read = file.read(&mut buffer).map_err(at(path))?;
        if read == 0 {
            break;
        }
        seen = seen.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        sum.content(buffer.get(..read).unwrap_or_default());
    }
    if seen == length { Ok(()) } else { Err(Error::Changed(path.to_owned())) }
}

#[cfg(test)]
mod tests;
