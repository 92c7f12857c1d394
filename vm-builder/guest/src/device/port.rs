//! Virtio serial ports by name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use neonvm_types::guest::LOG_PORT;

const CLASS: &str = "/sys/class/virtio-ports";
const LINKS: &str = "/dev/virtio-ports";

/// Name and node of each port.
pub fn scan() -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(CLASS) else { return Vec::new() };
    let mut ports: Vec<(String, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).ok()?.trim().to_owned();
            (!name.is_empty()).then(|| (name, Path::new("/dev").join(entry.file_name())))
        })
        .collect();
    ports.sort();
    ports
}

/// Node of the port of this name, if it is there.
pub fn find(name: &str) -> Option<PathBuf> {
    scan().into_iter().find(|(found, _)| found == name).map(|(_, node)| node)
}

/// Whether the kernel has a serial device with ports that may still be announced.
pub fn may_appear() -> bool {
    fs::read_dir("/sys/bus/virtio/drivers/virtio_console").is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"virtio"))
    })
}

/// Makes the links by name. The log port has none: its name is a pipe of ours, which many may write to.
pub fn link_all() {
    let _ = fs::create_dir_all(LINKS);
    for (name, node) in scan() {
        if name == LOG_PORT || name.contains('/') || name == ".." || name == "." {
            continue;
        }
        let link = Path::new(LINKS).join(&name);
        if fs::read_link(&link).is_ok_and(|target| target == node) {
            continue;
        }
        let _ = fs::remove_file(&link);
        let _ = symlink(&node, &link);
    }
}
