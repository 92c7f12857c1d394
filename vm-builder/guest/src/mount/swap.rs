//! Swap of a chosen size on a device that may be larger.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;

/// Swap areas are written in pages; all VMs we run on have pages of this size.
const PAGE: u64 = 4096;
/// Fewer pages than this the kernel refuses.
const FEWEST: u64 = 10;

/// Turns swap off, and on again with this many bytes; 0: it stays off.
///
/// # Errors
/// The kernel's error; `InvalidInput` if the device is too small.
pub fn resize(node: &str, label: &str, bytes: u64, device_bytes: u64) -> io::Result<()> {
    match crate::system::swap_off(node) {
        Ok(()) => {}
        // It was not on.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        // Without memory for what is swapped out it stays as it is, which the caller must handle.
        Err(error) => return Err(error),
    }
    if bytes == 0 {
        return Ok(());
    }
    if bytes > device_bytes {
        let text = format!("{bytes} bytes asked for, the device has {device_bytes}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let header = header(bytes / PAGE, label)?;
    let device = OpenOptions::new().read(true).write(true).open(node)?;
    device.write_all_at(&header, 0)?;
    device.sync_all()?;
    crate::system::swap_on(node)
}

/// First page of a swap area (`union swap_header` of the kernel), version 1.
fn header(pages: u64, label: &str) -> io::Result<Vec<u8>> {
    let last = pages.checked_sub(1).and_then(|last| u32::try_from(last).ok());
    let last = last.filter(|_| pages >= FEWEST).ok_or(io::ErrorKind::InvalidInput)?;
    let mut page = vec![0_u8; 1024];
    page.extend(1_u32.to_le_bytes());
    page.extend(last.to_le_bytes());
    page.extend(0_u32.to_le_bytes());
    let mut uuid = [0_u8; 16];
    rustix::rand::getrandom(&mut uuid[..], rustix::rand::GetRandomFlags::INSECURE)?;
    page.extend(uuid);
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().take(15).zip(label.bytes()) {
        *to = from;
    }
    page.extend(name);
    page.resize(usize::try_from(PAGE).unwrap_or_default().saturating_sub(10), 0);
    page.extend(b"SWAPSPACE2");
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Superblock;

    #[test]
    fn the_header_is_found_again_by_its_label() {
        let page = header(1024, "swapdisk").unwrap();
        assert_eq!(page.len(), 4096);
        let found = Superblock::parse(&page).unwrap();
        assert_eq!((found.kind, found.label.as_str()), ("swap", "swapdisk"));
        assert!(!found.uuid.is_empty());
        assert_eq!(page[1028..1032], 1023_u32.to_le_bytes());
    }

    #[test]
    fn sizes_no_kernel_takes_are_refused() {
        assert!(header(9, "s").is_err() && header(0, "s").is_err() && header(1 << 33, "s").is_err());
        assert!(header(1 << 20, "a label longer than sixteen bytes").is_ok());
    }
}
