//! The block devices there are.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::superblock::{HEAD, Superblock};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Kernel's name, such as `vda`.
    pub name: String,
    /// Serial number; empty: none.
    pub serial: String,
    /// Bytes.
    pub size: u64,
    /// What it holds, if recognised.
    pub content: Option<Superblock>,
}

impl BlockDevice {
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Label of its content; empty: none.
    pub fn label(&self) -> &str {
        self.content.as_ref().map_or("", |content| &content.label)
    }

    /// UUID of its content; empty: none.
    pub fn uuid(&self) -> &str {
        self.content.as_ref().map_or("", |content| &content.uuid)
    }

    /// Reads one device of `/sys/class/block`. None if it is empty, such as an unused loop device.
    pub fn inspect(name: &str) -> Option<Self> {
        let directory = Path::new("/sys/class/block").join(name);
        let attribute = |attribute: &str| {
            fs::read_to_string(directory.join(attribute))
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        let sectors: u64 = attribute("size").parse().ok().filter(|sectors| *sectors > 0)?;
        let serial = attribute("serial");
        let mut device =
            Self { name: name.to_owned(), serial, size: sectors.saturating_mul(512), content: None };
        device.content = device.read_head().ok().and_then(|head| Superblock::parse(&head));
        Some(device)
    }

    fn read_head(&self) -> io::Result<Vec<u8>> {
        let file = File::open(self.node())?;
        let mut head = vec![0; HEAD];
        let mut filled = 0;
        while let Some(rest) = head.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, filled as u64) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        head.truncate(filled);
        Ok(head)
    }
}

/// All devices, by name. Memory disks and unused loop devices are left out.
pub fn scan() -> Vec<BlockDevice> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with("ram"));
    names.sort();
    names.iter().filter_map(|name| BlockDevice::inspect(name)).collect()
}

/// The device that has a file system with this label, else the one with this serial number.
pub fn find<'a>(devices: &'a [BlockDevice], label: &str) -> Option<&'a BlockDevice> {
    if label.is_empty() {
        return None;
    }
    devices
        .iter()
        .find(|device| device.label() == label)
        .or_else(|| devices.iter().find(|device| device.serial == label))
}

/// The device that `root=` names: `/dev/…`, `LABEL=`, `UUID=`, and the links udev would make.
pub fn find_root<'a>(devices: &'a [BlockDevice], wanted: &str) -> Option<&'a BlockDevice> {
    let by = |prefix: &[&str]| prefix.iter().find_map(|prefix| wanted.strip_prefix(prefix));
    if let Some(label) = by(&["LABEL=", "/dev/disk/by-label/"]) {
        return devices.iter().find(|device| !label.is_empty() && device.label() == label);
    }
    if let Some(uuid) = by(&["UUID=", "/dev/disk/by-uuid/"]) {
        return devices.iter().find(|device| !uuid.is_empty() && device.uuid().eq_ignore_ascii_case(uuid));
    }
    if let Some(serial) = by(&["/dev/disk/by-id/virtio-"]) {
        return devices.iter().find(|device| !serial.is_empty() && device.serial == serial);
    }
    let name = wanted.strip_prefix("/dev/")?;
    devices.iter().find(|device| device.name == name)
}

/// One line a device, for messages: `vda 10 MiB ext4 "vmroot"`.
pub fn describe(devices: &[BlockDevice]) -> String {
    if devices.is_empty() {
        return "none".into();
    }
    let one = |device: &BlockDevice| {
        let kind = device.content.as_ref().map_or("unknown content", |content| content.kind);
        format!("{} ({} MiB, {kind}, label {:?})", device.name, device.size >> 20, device.label())
    };
    devices.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, serial: &str, label: &str, uuid: &str) -> BlockDevice {
        let content =
            Superblock { kind: "ext4", label: label.into(), uuid: uuid.into(), ..Superblock::default() };
        BlockDevice { name: name.into(), serial: serial.into(), size: 1 << 20, content: Some(content) }
    }

    #[test]
    fn a_root_is_found_by_every_form() {
        let devices = [device("vda", "s1", "vmroot", "aa-bb"), device("vdb", "", "", "")];
        let forms = [
            "/dev/vda",
            "LABEL=vmroot",
            "UUID=AA-BB",
            "/dev/disk/by-id/virtio-s1",
            "/dev/disk/by-uuid/aa-bb",
            "/dev/disk/by-label/vmroot",
        ];
        for form in forms {
            assert_eq!(find_root(&devices, form).map(|device| device.name.as_str()), Some("vda"), "{form}");
        }
        for form in ["/dev/vdc", "LABEL=", "UUID=", "vda", "/dev/disk/by-id/virtio-", ""] {
            assert_eq!(find_root(&devices, form), None, "{form}");
        }
    }

    #[test]
    fn a_label_goes_before_a_serial_number() {
        let devices = [device("vda", "data", "x", ""), device("vdb", "", "data", "")];
        assert_eq!(find(&devices, "data").unwrap().name, "vdb");
        assert_eq!(find(&devices[..1], "data").unwrap().name, "vda");
        assert_eq!(find(&devices, ""), None);
    }
}
