//! Device files that the user of a runner may open. Those of the node belong to root and a group whose number is another one in each
//! distribution, and a container gets a device with the owner and the mode that it has on the node. So each has a twin here, which every
//! user may open, in a directory that only root enters: what gives a process the device is its container's allocation.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Name of the directory in the node's `/dev`.
const DIRECTORY: &str = "neonvm";
/// Mode of the files.
const MODE: u32 = 0o666;
/// With it QEMU takes memory after the guest has moved (post-copy), where the system call is closed to containers.
pub(super) const FAULTS: &str = "userfaultfd";

/// Path on the node of the twin of a device.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new("/dev").join(DIRECTORY).join(name)
}

/// Makes the twin of a device that is at `device`, or finds it made; `devices`: where the node's `/dev` is for this process. Whether there is
/// one afterwards: `false` without the device.
///
/// # Errors
/// If the file system refuses.
pub(super) fn make(devices: &Path, device: &Path, name: &str) -> io::Result<bool> {
    let directory = devices.join(DIRECTORY);
    let twin = directory.join(name);
    let found = match std::fs::metadata(device) {
        Ok(found) if found.file_type().is_char_device() => found,
        _ => {
            // The module was unloaded: a file that leads nowhere, or to another device, is not given.
            remove(&twin)?;
            return Ok(false);
        }
    };
    let is_made = std::fs::symlink_metadata(&twin).is_ok_and(|made| {
        made.file_type().is_char_device() && made.rdev() == found.rdev() && made.mode() & 0o777 == MODE
    });
    if is_made {
        return Ok(true);
    }
    match std::fs::create_dir(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?,
    }
    remove(&twin)?;
    mknodat(CWD, &twin, FileType::CharacterDevice, Mode::from_raw_mode(MODE), found.rdev())?;
    // The mask of this process takes bits away.
    std::fs::set_permissions(&twin, std::fs::Permissions::from_mode(MODE))?;
    Ok(true)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use neonvm_test_support::{Missing, need, needs};

    use super::*;

    #[test]
    fn a_twin_is_open_to_every_user_and_follows_its_device() {
        need!(needs::root());
        let devices = tempfile::tempdir().unwrap();
        let made = make(devices.path(), Path::new("/dev/null"), "kvm");
        // A container may be kept from making devices.
        assert!(need!(
            made.map_err(|error| Missing::unavailable(format!("no device file can be made: {error}")))
        ));
        let twin = devices.path().join("neonvm/kvm");
        let look = || std::fs::metadata(&twin).unwrap();
        assert_eq!(
            (look().mode() & 0o777, look().rdev()),
            (0o666, std::fs::metadata("/dev/null").unwrap().rdev())
        );
        assert_eq!(std::fs::metadata(twin.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        let inode = look().ino();
        assert!(make(devices.path(), Path::new("/dev/null"), "kvm").unwrap());
        assert_eq!(look().ino(), inode, "it is left as it is");
        assert!(make(devices.path(), Path::new("/dev/zero"), "kvm").unwrap());
        assert_eq!(look().rdev(), std::fs::metadata("/dev/zero").unwrap().rdev());
        assert!(!make(devices.path(), Path::new("/dev/no-such-device"), "kvm").unwrap());
        assert!(!twin.exists());
        // A link in its place leads nowhere afterwards.
        std::os::unix::fs::symlink("/dev/full", &twin).unwrap();
        assert!(make(devices.path(), Path::new("/dev/null"), "kvm").unwrap());
        assert!(std::fs::symlink_metadata(&twin).unwrap().file_type().is_char_device());
    }

    #[test]
    fn what_is_no_device_has_no_twin() {
        let devices = tempfile::tempdir().unwrap();
        std::fs::write(devices.path().join("kvm"), "").unwrap();
        assert!(!make(devices.path(), &devices.path().join("kvm"), "kvm").unwrap());
        assert_eq!(path("kvm"), Path::new("/dev/neonvm/kvm"));
    }
}
