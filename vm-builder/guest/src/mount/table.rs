//! The table of mounts, and unmounting all of it.

use std::fs;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use super::MountFlags;

/// Types that hold nothing to be written back; they are left to the end of the VM.
const VIRTUAL: [&str; 7] = ["proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "mqueue", "rootfs"];

/// Unmounts what can be, last mounted first, makes the rest read-only, and writes everything back.
pub fn unmount_all() -> Vec<String> {
    let mut problems = Vec::new();
    let mounts = mounts(Path::new("/"));
    for (target, kind) in mounts.iter().rev() {
        if target == "/" || VIRTUAL.contains(&kind.as_str()) || target.starts_with("/dev") {
            continue;
        }
        if let Err(error) = unmount(target.as_str(), UnmountFlags::empty()) {
            // Still in use: at least nothing more is written to it.
            let read_only = rustix::mount::mount_remount(target.as_str(), MountFlags::RDONLY, c"").is_ok();
            let detached = unmount(target.as_str(), UnmountFlags::DETACH).is_ok();
            if !(read_only || detached) {
                problems.push(format!("unmount {target}: {error}"));
            }
        }
    }
    rustix::fs::sync();
    if let Err(error) = rustix::mount::mount_remount("/", MountFlags::RDONLY, c"") {
        problems.push(format!("make / read-only: {error}"));
    }
    rustix::fs::sync();
    problems
}

/// Target and type of each mount, in the order in which they were made. `root` stands for `/`.
pub(super) fn mounts(root: &Path) -> Vec<(String, String)> {
    parse(&fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default())
}

/// Target and type of each line of `/proc/self/mounts`.
fn parse(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let target = fields.nth(1)?;
            Some((unescape(target), fields.next()?.to_owned()))
        })
        .collect()
}

/// The kernel writes space, tab, newline, backslash and `#` as three octal digits.
fn unescape(text: &str) -> String {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 8).ok())
        });
        match digits {
            Some(byte) => {
                result.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                result.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&result).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_are_unescaped() {
        let text = "/dev/vda / ext4 rw 0 0\n/dev/vdc /a\\040b\\134 ext4 rw 0 0\nshort\n";
        assert_eq!(parse(text), [("/".into(), "ext4".into()), ("/a b\\".into(), "ext4".into())]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in any::<String>()) {
            let _ = parse(&text);
            let _ = unescape(&text);
        }
    }
}
