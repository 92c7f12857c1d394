//! Kernels on this machine: one directory each, with a manifest. They appear whole or not at all.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::error::Doing as _;

/// The ELF kernel with a PVH entry.
pub const VMLINUX: &str = "vmlinux";
/// The same kernel as a bzImage.
pub const VMLINUZ: &str = "vmlinuz";
/// The initramfs, if the kernel needs one.
pub const INITRAMFS: &str = "initramfs.cpio";
/// The configuration it was built with.
pub const CONFIG: &str = "config";
const MANIFEST: &str = "kernel.json";
/// Name of the link to the kernel that is used when none is named.
const DEFAULT: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub name: String,
    /// Version, as `uname -r` prints it.
    pub version: String,
    /// Where it comes from: a package with its version, or a source.
    pub origin: String,
    pub built: bool,
    /// SHA-256 of each file, in hexadecimal.
    pub files: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub directory: PathBuf,
    pub manifest: Manifest,
}

impl Kernel {
    /// What QEMU's `-kernel` gets: the ELF file, which starts faster, or the bzImage if there is none.
    pub fn image(&self) -> PathBuf {
        let name = if self.manifest.files.contains_key(VMLINUX) { VMLINUX } else { VMLINUZ };
        self.directory.join(name)
    }

    /// What QEMU's `-initrd` gets.
    pub fn initramfs(&self) -> Option<PathBuf> {
        self.manifest.files.contains_key(INITRAMFS).then(|| self.directory.join(INITRAMFS))
    }

    /// Compares every file with the manifest.
    ///
    /// # Errors
    /// Names the first file that is missing or differs.
    pub fn verify(&self) -> Result<(), Error> {
        for (name, digest) in &self.manifest.files {
            let path = self.directory.join(name);
            if sha256(&path)? != *digest {
                return Err(Error::malformed(
                    path.display().to_string(),
                    "it is not the file that was stored",
                ));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The store at a directory, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// An empty directory for a kernel that is being made. It vanishes unless it is [put](Self::put).
    pub fn workshop(&self) -> Result<tempfile::TempDir, Error> {
        std::fs::create_dir_all(&self.directory).doing("make", &self.directory)?;
        tempfile::Builder::new()
            .prefix(".making-")
            .tempdir_in(&self.directory)
            .doing("make a directory in", &self.directory)
    }

    /// Stores what a workshop holds under a name, in place of what had it, and makes it the default if `default`.
    pub fn put(
        &self,
        workshop: tempfile::TempDir,
        mut manifest: Manifest,
        default: bool,
    ) -> Result<Kernel, Error> {
        manifest.files.clear();
        for name in [VMLINUX, VMLINUZ, INITRAMFS, CONFIG] {
            let path = workshop.path().join(name);
            if path.exists() {
                manifest.files.insert(name.to_owned(), sha256(&path)?);
            }
        }
        let path = workshop.path().join(MANIFEST);
        let text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
        std::fs::write(&path, text + "\n").doing("write", &path)?;
        let target = self.directory.join(&manifest.name);
        // A directory cannot replace one that holds files: the old one steps aside first.
        let old = self.directory.join(format!(".old-{}", manifest.name));
        if old.exists() {
            std::fs::remove_dir_all(&old).doing("remove", &old)?;
        }
        if target.exists() {
            std::fs::rename(&target, &old).doing("move", &target)?;
        }
        let made = workshop.keep();
        std::fs::rename(&made, &target).doing("move", &made)?;
        let _ = std::fs::remove_dir_all(&old);
        if default {
            self.make_default(&manifest.name)?;
        }
        Ok(Kernel { directory: target, manifest })
    }

    /// Makes a kernel the one that is used when none is named.
    pub fn make_default(&self, name: &str) -> Result<(), Error> {
        let link = self.directory.join(DEFAULT);
        let next = self.directory.join(format!(".{DEFAULT}-{}", std::process::id()));
        let _ = std::fs::remove_file(&next);
        std::os::unix::fs::symlink(name, &next).doing("link", &next)?;
        std::fs::rename(&next, &link).doing("link", &link)
    }

    /// A kernel by name, or the default.
    pub fn get(&self, name: Option<&str>) -> Result<Kernel, Error> {
        let wanted = name.unwrap_or(DEFAULT);
        let missing = || Error::NotFound { name: wanted.to_owned() };
        let plain = !wanted.is_empty() && !wanted.contains('/') && !wanted.starts_with('.');
        let directory = plain.then(|| self.directory.join(wanted)).ok_or_else(missing)?;
        let directory = directory.canonicalize().map_err(|_| missing())?;
        let path = directory.join(MANIFEST);
        let text = std::fs::read(&path).doing("read", &path)?;
        let manifest = serde_json::from_slice(&text)
            .map_err(|error| Error::malformed(path.display().to_string(), error.to_string()))?;
        Ok(Kernel { directory, manifest })
    }

    /// All kernels by name, and the name of the default. Directories without a readable manifest are left out.
    pub fn list(&self) -> Result<(Vec<Kernel>, Option<String>), Error> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), None)),
            Err(error) => return Err(error).doing("read", &self.directory),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut kernels: Vec<Kernel> =
            names.filter(|name| name != DEFAULT).filter_map(|name| self.get(Some(&name)).ok()).collect();
        kernels.sort_by(|a, b| a.manifest.name.cmp(&b.manifest.name));
        Ok((kernels, self.get(None).ok().map(|kernel| kernel.manifest.name)))
    }

    /// Removes a kernel.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let kernel = self.get(Some(name))?;
        if self.get(None).is_ok_and(|default| default.directory == kernel.directory) {
            let link = self.directory.join(DEFAULT);
            std::fs::remove_file(&link).doing("remove", &link)?;
        }
        std::fs::remove_dir_all(&kernel.directory).doing("remove", &kernel.directory)
    }
}

/// The SHA-256 of a file in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = std::fs::File::open(path).doing("read", path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).doing("read", path)?;
        match buffer.get(..read) {
            Some([]) | None => break,
            Some(bytes) => hash.update(bytes),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &Store, name: &str, text: &str, default: bool) -> Kernel {
        let workshop = store.workshop().unwrap();
        std::fs::write(workshop.path().join(VMLINUX), text).unwrap();
        let manifest = Manifest {
            name: name.into(),
            version: "6.1".into(),
            origin: "test".into(),
            built: true,
            files: BTreeMap::new(),
        };
        store.put(workshop, manifest, default).unwrap()
    }

    #[test]
    fn kernels_appear_whole_and_replace_one_another() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path().join("kernels"));
        assert_eq!(store.list().unwrap(), (vec![], None));
        assert_eq!(store.get(None).unwrap_err().hint().unwrap(), "get one: neonctl kernel fetch");
        put(&store, "a", "old", true);
        let new = put(&store, "a", "new", false);
        put(&store, "b", "b", false);
        assert_eq!(std::fs::read_to_string(new.image()).unwrap(), "new");
        let (all, default) = store.list().unwrap();
        assert_eq!((all.len(), default.as_deref()), (2, Some("a")));
        assert_eq!(store.get(None).unwrap(), new.clone());
        new.verify().unwrap();
        std::fs::write(new.image(), "changed").unwrap();
        assert!(new.verify().unwrap_err().to_string().contains("it is not the file that was stored"));
        drop(store.workshop().unwrap());
        store.remove("a").unwrap();
        assert!(store.get(None).is_err() && store.get(Some("../x")).is_err());
        let left: Vec<_> = std::fs::read_dir(directory.path().join("kernels")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
