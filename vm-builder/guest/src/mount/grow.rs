//! Growing ext4 file systems to their devices, while mounted. The kernel does it; it may take long on large disks, so
//! it is done by a child of init.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::device::BlockDevice;

/// Whether the file system does not use all of its device.
pub fn is_smaller_than_device(device: &BlockDevice) -> bool {
    let blocks = device.content.as_ref().and_then(|content| content.blocks);
    blocks.is_some_and(|(blocks, size)| device.size / u64::from(size) > blocks)
}

/// Grows the file system mounted at a directory to its device. Returns the number of bytes it has then, or None if
/// there was nothing to do.
pub fn grow(directory: &Path) -> io::Result<Option<u64>> {
    use std::os::unix::fs::MetadataExt;
    let file = File::open(directory)?;
    let number = file.metadata()?.dev();
    let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let path = std::fs::canonicalize(link)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let device = BlockDevice::inspect(name).ok_or(io::ErrorKind::NotFound)?;
    if !is_smaller_than_device(&device) {
        return Ok(None);
    }
    let Some((_, size)) = device.content.as_ref().and_then(|content| content.blocks) else {
        return Ok(None);
    };
    let blocks = device.size / u64::from(size);
    crate::system::grow_ext4(file.as_fd(), blocks)?;
    Ok(Some(blocks.saturating_mul(u64::from(size))))
}

/// The root's device among those scanned, by its device number.
pub fn root_is_smaller(devices: &[BlockDevice]) -> bool {
    use std::os::unix::fs::MetadataExt;
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
}
