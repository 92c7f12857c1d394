//! The key by which clients recognise this VM.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

/// The key at the first of `paths` that has a usable one; otherwise a new one, kept at the first path that takes it.
pub(super) fn load(paths: &[PathBuf]) -> Result<PrivateKey, String> {
    let mut reasons = Vec::new();
    for path in paths {
        match read(path) {
            Ok(key) => return Ok(key),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => reasons.push(format!("{}: {error}", path.display())),
        }
    }
    let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).map_err(|error| error.to_string())?;
    for path in paths {
        match keep(path, &key) {
            Ok(()) => return Ok(key),
            // Another session was faster; a client must see one key.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read(path) {
                Ok(key) => return Ok(key),
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            },
            Err(error) => reasons.push(format!("{}: {error}", path.display())),
        }
    }
    Err(reasons.join("; "))
}

fn read(path: &Path) -> io::Result<PrivateKey> {
    let mode = fs::metadata(path)?.mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::other("others can read it"));
    }
    let key = PrivateKey::from_openssh(fs::read(path)?).map_err(io::Error::other)?;
    if key.algorithm() != Algorithm::Ed25519 || key.is_encrypted() {
        return Err(io::Error::other("not a plain ed25519 key"));
    }
    Ok(key)
}

/// Writes the key under another name and links it into place, so that no reader ever gets half of it.
fn keep(path: &Path, key: &PrivateKey) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let text = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
    let linked = written.and_then(|()| fs::hard_link(&temporary, path));
    let _ = fs::remove_file(&temporary);
    linked?;
    if let Ok(public) = key.public_key().to_openssh() {
        // For people; nothing reads it.
        let _ = fs::write(path.with_extension("pub"), format!("{public}\n"));
    }
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_used_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("etc/ssh/ssh_host_ed25519_key");
        let first = load(std::slice::from_ref(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(load(std::slice::from_ref(&path)).unwrap().public_key(), first.public_key());
        assert!(fs::read_to_string(path.with_extension("pub")).unwrap().starts_with("ssh-ed25519 "));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_that_cannot_be_used_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let (broken, good) = (root.path().join("broken"), root.path().join("run/key"));
        fs::write(&broken, "").unwrap();
        let paths = [broken.clone(), good.clone()];
        let key = load(&paths).unwrap();
        assert_eq!(load(&paths).unwrap().public_key(), key.public_key());
        assert!(good.exists());
        assert!(load(&[broken]).unwrap_err().contains("broken"));
    }
}
