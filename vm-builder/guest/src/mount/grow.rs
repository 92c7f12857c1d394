//! Growing ext4 file systems to their devices, while mounted. The kernel does it; it may take long on large disks, so
//! it is done by a child of init, and, for a disk that becomes larger while the VM runs, by a thread of the daemon.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use neonvm_types::guest::FileSystem;

use super::table;
use crate::device::BlockDevice;

/// How the names of the VM's disks begin: virtio, whole.
const DISK: &str = "vd";

/// Whether the file system does not use all of its device.
pub fn is_smaller_than_device(device: &BlockDevice) -> bool {
    let blocks = device.content.as_ref().and_then(|content| content.blocks);
    blocks.is_some_and(|(blocks, size)| device.size / u64::from(size) > blocks)
}

/// Bytes of the file system on a device.
fn size(device: &BlockDevice) -> u64 {
    let blocks = device.content.as_ref().and_then(|content| content.blocks);
    blocks.map_or(0, |(blocks, size)| blocks.saturating_mul(u64::from(size)))
}

/// The device of the file system that a file is on.
pub(super) fn device_of(file: &File) -> io::Result<BlockDevice> {
    let number = file.metadata()?.dev();
    let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let path = std::fs::canonicalize(link)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    BlockDevice::inspect(name).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Grows the file system mounted at a directory to its device. Returns the number of bytes it has then, or None if
/// there was nothing to do.
pub fn grow(directory: &Path) -> io::Result<Option<u64>> {
    let file = File::open(directory)?;
    let device = device_of(&file)?;
    grow_on(&file, &device)
}

fn grow_on(file: &File, device: &BlockDevice) -> io::Result<Option<u64>> {
    if !is_smaller_than_device(device) {
        return Ok(None);
    }
    let Some((_, size)) = device.content.as_ref().and_then(|content| content.blocks) else {
        return Ok(None);
    };
    let blocks = device.size / u64::from(size);
    crate::system::grow_ext4(file.as_fd(), blocks)?;
    Ok(Some(blocks.saturating_mul(u64::from(size))))
}

/// Grows every ext4 file system that is mounted from a disk of the VM, and lists all of them. No caller names a path: what
/// a process of the guest has mounted elsewhere, from a loop device or a container's volume, is left alone. `root` stands
/// for `/`.
pub fn grow_all(root: &Path) -> Vec<FileSystem> {
    let mounts = table::mounts(root).into_iter().filter(|(_, kind)| kind == "ext4");
    let mut found = BTreeMap::new();
    for (target, _) in mounts {
        let directory = root.join(target.trim_start_matches('/'));
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(directory) else {
            continue;
        };
        // A mount over this one, or a link in its path, leads to another device: it counts as that one.
        let Some(device) = device_of(&file).ok().filter(is_disk) else { continue };
        found.entry(device.name.clone()).or_insert_with(|| {
            let grown = grow_on(&file, &device);
            if let Ok(Some(bytes)) = &grown {
                crate::log::of_daemon(&format!("{target} grown to {} MiB", bytes >> 20));
            }
            file_system(&device, grown)
        });
    }
    found.into_values().collect()
}

/// Whether a device of this name is a whole disk of the VM.
pub(super) fn is_whole(name: &str) -> bool {
    let letters = name.strip_prefix(DISK).unwrap_or_default();
    !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether it is a whole disk of the VM with ext4.
fn is_disk(device: &BlockDevice) -> bool {
    is_whole(&device.name) && device.content.as_ref().is_some_and(|content| content.kind == "ext4")
}

fn file_system(device: &BlockDevice, grown: io::Result<Option<u64>>) -> FileSystem {
    let before = size(device);
    let (size, problem) = match grown {
        Ok(grown) => (grown.unwrap_or(before), String::new()),
        Err(error) => (before, error.to_string()),
    };
    FileSystem { serial: device.serial.clone(), disk: device.size, size, problem }
}

/// The root's device among those scanned, by its device number.
pub fn root_is_smaller(devices: &[BlockDevice]) -> bool {
    let Ok(root) = std::fs::metadata("/") else { return false };
    devices.iter().any(|device| {
        std::fs::metadata(device.node()).is_ok_and(|node| node.rdev() == root.dev())
            && is_smaller_than_device(device)
    })
}

/// The role `grow`: grows each directory given; failures are reported through init.
pub fn run(directories: &[String]) -> u8 {
    let mut status = 0;
    for directory in directories {
        match grow(Path::new(directory)) {
            Ok(Some(bytes)) => crate::report::console(&format!("{directory} grown to {} MiB", bytes >> 20)),
            Ok(None) => {}
            Err(error) => {
                crate::report::fail(&format!("grow the file system at {directory}: {error}"));
                status = 1;
            }
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Superblock;

    #[test]
    fn whole_blocks_count() {
        let content = Superblock { kind: "ext4", blocks: Some((256, 4096)), ..Superblock::default() };
        let mut device =
            BlockDevice { size: 256 * 4096 + 4095, content: Some(content), ..BlockDevice::default() };
        assert!(!is_smaller_than_device(&device));
        device.size += 1;
        assert!(is_smaller_than_device(&device));
        device.content = None;
        assert!(!is_smaller_than_device(&device));
    }
    #[test]
    fn only_whole_disks_of_the_vm_with_ext4_are_grown() {
        let ext4 = |name: &str, kind| BlockDevice {
            name: name.into(),
            content: Some(Superblock { kind, ..Superblock::default() }),
            ..BlockDevice::default()
        };
        for name in ["vda", "vdz", "vdaa"] {
            assert!(is_disk(&ext4(name, "ext4")), "{name}");
            assert!(!is_disk(&ext4(name, "xfs")), "{name}");
        }
        for name in ["loop0", "vda1", "vd", "dm-0", "sda", "", "zram0"] {
            assert!(!is_disk(&ext4(name, "ext4")), "{name}");
        }
    }

    #[test]
    fn a_file_system_is_listed_with_its_size_or_the_reason() {
        let content = Superblock { kind: "ext4", blocks: Some((256, 4096)), ..Superblock::default() };
        let device = BlockDevice {
            serial: "data".into(),
            size: 2 << 20,
            content: Some(content),
            ..BlockDevice::default()
        };
        let one = |size, problem: &str| FileSystem {
            serial: "data".into(),
            disk: 2 << 20,
            size,
            problem: problem.into(),
        };
        assert_eq!(file_system(&device, Ok(Some(2 << 20))), one(2 << 20, ""));
        assert_eq!(file_system(&device, Ok(None)), one(1 << 20, ""));
        let full = io::Error::other("no room");
        assert_eq!(file_system(&device, Err(full)), one(1 << 20, "no room"));
    }
}
