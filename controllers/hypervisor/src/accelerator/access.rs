//! Access to `/dev/kvm`: it is the one file that QEMU opens itself.

use std::os::unix::fs::MetadataExt as _;

use crate::machine::Identity;

pub(super) const DEVICE: &str = "/dev/kvm";

/// Group of the device, to be one of QEMU's.
pub(crate) fn device_group() -> Option<u32> {
    std::fs::metadata(DEVICE).ok().map(|file| file.gid())
}

/// Whether a QEMU that runs as `identity`, and in the group of the device, may use KVM. If not, it must run as another
/// user or without KVM.
#[must_use]
pub fn device_is_open_to(identity: Identity) -> bool {
    let Ok(file) = std::fs::metadata(DEVICE) else { return false };
    is_open(file.mode(), file.uid() == identity.user)
}

/// The kernel checks one class only: owner, else group.
fn is_open(mode: u32, owner: bool) -> bool {
    let wanted = if owner { 0o600 } else { 0o060 };
    mode & wanted == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_class() {
        assert!(is_open(0o660, false) && is_open(0o666, false) && is_open(0o600, true));
        assert!(!is_open(0o600, false) && !is_open(0o066, true) && !is_open(0o640, false));
    }
}
