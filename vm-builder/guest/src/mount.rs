//! File systems: those every system has, those the VM requests, their growth, freezes and quotas, swap, and their end.

pub mod apply;
pub mod base;
pub mod copy;
pub mod freeze;
pub mod grow;
pub mod quota;
pub mod swap;
pub mod table;

use std::ffi::CString;
use std::io;
use std::path::Path;

pub use rustix::mount::MountFlags;

/// Mounts a file system; options are joined by commas, empty: none.
pub fn mount(source: &Path, target: &Path, kind: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    let options = CString::new(options).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(rustix::mount::mount(source, target, kind, flags, options.as_c_str())?)
}

/// Label of the swap area that older runners attach.
pub const SWAP_LABEL: &str = "swapdisk";
