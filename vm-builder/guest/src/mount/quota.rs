//! Project quotas of ext4.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::device::BlockDevice;

/// Where images keep the program that switches the feature on.
const TUNE2FS: [&str; 3] = ["/sbin/tune2fs", "/usr/sbin/tune2fs", "/bin/tune2fs"];

/// Makes sure that the file system, not mounted yet, stores project quotas.
///
/// # Errors
/// When it does not and the image has no program that can change it, or that fails.
pub fn prepare(device: &BlockDevice) -> Result<(), String> {
    let Some(content) = device.content.as_ref().filter(|content| content.kind == "ext4") else {
        return Err(format!("quotas of {}: not an ext4 file system", device.name));
    };
    crate::boot::modules::load_quota();
    if content.project_quota {
        return Ok(());
    }
    let Some(program) = TUNE2FS.iter().find(|path| Path::new(path).exists()) else {
        return Err(format!(
            "quotas of {}: the file system was made without project quotas and the image has no tune2fs",
            device.name
        ));
    };
    let mut command = Command::new(program);
    command.args(["-Q", "prjquota"]).arg(device.node()).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    crate::system::before_exec(&mut command, crate::system::Signals::Unblocked, || Ok(()));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("quotas of {}: {program}: {status}", device.name)),
        Err(error) => Err(format!("quotas of {}: {program}: {error}", device.name)),
    }
}

/// Limits project 0 of the file system mounted at a directory, in KiB; 0: no limit.
pub fn limit(directory: &Path, kibibytes: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        let hint = match error.raw_os_error() {
            Some(libc::ESRCH | libc::EOPNOTSUPP) => " (the disk has no project quotas: set enableQuotas)",
            _ => "",
        };
        format!("set quota of {}: {error}{hint}", directory.display())
    };
    let file = File::open(directory).map_err(failed)?;
    crate::system::limit_project_quota(file.as_fd(), kibibytes).map_err(failed)
}
