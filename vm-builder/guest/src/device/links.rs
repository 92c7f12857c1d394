//! The links under `/dev` that udev would make.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::block::BlockDevice;

/// Makes `/dev/disk/by-label`, `by-uuid` and `by-id/virtio-…` of a device. What cannot be made is left out.
pub fn make(device: &BlockDevice) {
    for link in names(device) {
        let path = Path::new("/dev/disk").join(&link);
        if let Some(parent) = path.parent() {
            let _ = fs::create_dir_all(parent);
        }
        // The first device of a label keeps it, as long as it is there.
        if fs::symlink_metadata(&path).is_err() || !path.exists() {
            let _ = fs::remove_file(&path);
            let _ = symlink(Path::new("../..").join(&device.name), &path);
        }
    }
}

/// Removes links to devices that are gone.
pub fn sweep() {
    for directory in ["by-label", "by-uuid", "by-id"] {
        let Ok(entries) = fs::read_dir(Path::new("/dev/disk").join(directory)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if !path.exists() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn names(device: &BlockDevice) -> Vec<PathBuf> {
    let pairs = [
        ("by-label", device.label().to_owned()),
        ("by-uuid", device.uuid().to_owned()),
        ("by-id", if device.serial.is_empty() { String::new() } else { format!("virtio-{}", device.serial) }),
    ];
    pairs
        .into_iter()
        .filter_map(|(directory, name)| Some(Path::new(directory).join(file_name(&name)?)))
        .collect()
}

/// A name that is safe as one part of a path; other bytes are written as udev does (`\x2f`).
fn file_name(text: &str) -> Option<String> {
    if text.is_empty() || text == "." || text == ".." {
        return None;
    }
    let mut name = String::new();
    for character in text.chars() {
        if character.is_control() || matches!(character, '/' | '\\' | ' ') {
            name.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            name.push(character);
        }
    }
    (name.len() <= 255).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_cannot_leave_their_directory() {
        assert_eq!(file_name("../x"), Some("..\\x2fx".into()));
        assert_eq!(file_name("a b"), Some("a\\x20b".into()));
        assert_eq!(file_name(".."), None);
    }

    proptest! {
        #[test]
        fn a_name_is_one_part_of_a_path(text in any::<String>()) {
            if let Some(name) = file_name(&text) {
                prop_assert!(!name.contains('/') && !name.contains('\0') && name != ".." && name != ".");
            }
        }
    }
}
