//! Doing the steps of the settings. One that fails does not keep the others from being done.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::copy::Covered;
use super::{MountFlags, base, mount, quota, swap};
use crate::config::mount_script::{MountStep, Step};
use crate::device::{BlockDevice, block};

#[derive(Debug, Default)]
pub struct Applied {
    pub problems: Vec<String>,
    /// What of it keeps the workload from being started: without a disk its data would go elsewhere.
    pub missing: Vec<String>,
    /// Directories with an ext4 file system smaller than its device.
    pub growable: Vec<PathBuf>,
}

/// Does each step in order. Devices are as scanned at the start.
pub fn apply(steps: &[Step], devices: &[BlockDevice], swap_label: &str) -> Applied {
    let mut applied = Applied::default();
    let mut with_quota: Vec<&str> = Vec::new();
    for step in steps {
        let result = match step {
            Step::MakeDirectory(path) => {
                fs::create_dir_all(path).map_err(|error| format!("make {path}: {error}"))
            }
            Step::Mode(path, mode) => fs::set_permissions(path, fs::Permissions::from_mode(*mode))
                .map_err(|error| format!("set permissions of {path}: {error}")),
            Step::ProjectQuota(label) => found(devices, label).and_then(|device| {
                quota::prepare(device)?;
                with_quota.push(label);
                Ok(())
            }),
            Step::Mount(step) => {
                let quota = step.label.as_deref().is_some_and(|label| with_quota.contains(&label));
                mount_step(step, quota, devices, &mut applied.growable)
            }
            Step::Swap(bytes) => found(devices, swap_label).and_then(|device| {
                let node = device.node().to_string_lossy().into_owned();
                swap::resize(&node, swap_label, *bytes, device.size)
                    .map_err(|error| format!("swap on {node}: {error}"))
            }),
            Step::SharedMemory(bytes) => {
                base::size_shared_memory(*bytes).map_err(|error| format!("size of /dev/shm: {error}"))
            }
        };
        match (result, step) {
            (Err(problem), Step::Mount(_)) => applied.missing.push(problem),
            (Err(problem), _) => applied.problems.push(problem),
            (Ok(()), _) => {}
        }
    }
    applied
}

fn found<'a>(devices: &'a [BlockDevice], label: &str) -> Result<&'a BlockDevice, String> {
    block::find(devices, label).ok_or_else(|| {
        format!("no disk with label or serial {label:?}; there are: {}", block::describe(devices))
    })
}

fn mount_step(
    step: &MountStep,
    quota: bool,
    devices: &[BlockDevice],
    growable: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let target = Path::new(&step.target);
    let mut flags = if step.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let Some(label) = &step.label else {
        let kind = step.kind.as_deref().unwrap_or("tmpfs");
        flags |= MountFlags::NOSUID | MountFlags::NODEV;
        let covered = Covered::open(target).filter(|_| kind == "tmpfs");
        mount(Path::new(kind), target, kind, flags, &step.options)
            .map_err(|error| format!("mount {kind} on {}: {error}", step.target))?;
        return fill(covered.filter(|_| !step.read_only), step, Covered::into_memory);
    };
    let device = found(devices, label)?;
    let content = device.content.as_ref();
    let kind = step.kind.as_deref().or_else(|| content.map(|content| content.kind)).unwrap_or("ext4");
    let mut options = step.options.clone();
    if quota {
        options.push_str(if options.is_empty() { "prjquota" } else { ",prjquota" });
    }
    if kind == "iso9660" {
        flags |= MountFlags::RDONLY;
        // Volumes of files carry no permissions; without this option some would be unreadable.
        if options.is_empty() {
            options.push_str("mode=0644");
        }
    }
    if kind == "swap" {
        return Err(format!("disk {label:?} holds swap, not a file system for {}", step.target));
    }
    let covered = Covered::open(target).filter(|_| kind == "ext4" && !step.read_only);
    mount(&device.node(), target, kind, flags, &options)
        .map_err(|error| explain(&error, device, kind, &step.target))?;
    fill(covered, step, Covered::into_disk)?;
    if !step.read_only && super::grow::is_smaller_than_device(device) {
        growable.push(target.to_owned());
    }
    Ok(())
}

/// Copies what the image has at the place of the mount.
fn fill(
    covered: Option<Covered>,
    step: &MountStep,
    copy: impl Fn(&Covered, &Path) -> Result<(), String>,
) -> Result<(), String> {
    covered.map_or(Ok(()), |covered| {
        copy(&covered, Path::new(&step.target))
            .map_err(|error| format!("copy what the image has in {}: {error}", step.target))
    })
}

fn explain(error: &io::Error, device: &BlockDevice, kind: &str, target: &str) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::ENODEV) => " (the kernel has no such file system)",
        Some(libc::EINVAL) => " (wrong file system or option)",
        _ => "",
    };
    format!("mount {} ({kind}, label {:?}) on {target}: {error}{hint}", device.name, device.label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::SWAP_LABEL;

    #[test]
    fn a_failed_step_does_not_stop_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let step = MountStep { label: Some("gone".into()), target: "/x".into(), ..MountStep::default() };
        let steps = [
            Step::Mount(step),
            Step::MakeDirectory(path.to_string_lossy().into_owned()),
            Step::Mode(path.to_string_lossy().into_owned(), 0o700),
            Step::ProjectQuota("gone".into()),
        ];
        let applied = apply(&steps, &[], SWAP_LABEL);
        assert_eq!((applied.problems.len(), applied.missing.len()), (1, 1), "{applied:?}");
        assert!(applied.missing[0].contains("\"gone\"") && applied.missing[0].contains("there are: none"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}
