//! The kernel's end of a network interface: with it packets pass between the guest's queues and the tap device without QEMU.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::Path;

const DEVICE: &str = "/dev/vhost-net";

/// One for an interface with one queue. `Ok(None)` if there is no such device: on nodes without the kernel module, and in
/// containers that it was not given to.
///
/// # Errors
/// A note for the log if there is one that cannot be used. Packets then pass through QEMU, as without one.
pub(crate) fn open() -> Result<Option<OwnedFd>, String> {
    open_at(Path::new(DEVICE))
}

fn open_at(path: &Path) -> Result<Option<OwnedFd>, String> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // A device file of a node whose kernel has no driver for it.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(None),
        Err(error) => {
            Err(format!("{}: {error}; packets of the network pass through QEMU instead", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_used_if_it_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("vhost-net");
        assert!(open_at(&device).unwrap().is_none());
        std::fs::write(&device, "").unwrap();
        assert!(open_at(&device).unwrap().is_some());
        let note = open_at(directory.path()).unwrap_err();
        assert!(note.ends_with("; packets of the network pass through QEMU instead"), "{note}");
    }
}
