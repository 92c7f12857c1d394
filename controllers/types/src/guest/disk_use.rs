//! How full the disks of a VM are, read from the metrics of its guest: our names, or those of the node exporter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exposition::line::{Line, Lines, Sample};

/// Most mounts of a page that are looked at.
const MOST: usize = 256;
/// Bytes of a serial number of a virtio disk.
const SERIAL: usize = 20;

/// A file system that is mounted from a disk of the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskUse {
    /// Name of the disk; [`super::freeze::ROOT`] is the root file system.
    pub name: String,
    /// Bytes of the file system.
    pub total: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that programs other than root's can still use.
    pub available: u64,
    /// Inodes; 0: the guest does not report them, or the file system has no fixed number.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

impl DiskUse {
    /// Percent in use of what programs other than root's may use, as `df` has it; `None` for an empty file system.
    #[must_use]
    pub fn percent(&self) -> Option<u64> {
        share(self.used, self.used.saturating_add(self.available))
    }

    /// Percent of the inodes in use.
    #[must_use]
    pub fn inodes_percent(&self) -> Option<u64> {
        share(self.inodes_used, self.inodes)
    }
}

/// Rounded up: a full disk is not shown as one with room, nor an empty one in use as unused.
fn share(part: u64, whole: u64) -> Option<u64> {
    let percent = (u128::from(part) * 100).div_ceil(u128::from(whole).max(1)).min(100);
    (whole > 0).then(|| u64::try_from(percent).unwrap_or(100))
}

/// Answer of a runner to `GET /v1/disks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskReport {
    /// The disks that the guest has mounted.
    pub disks: Vec<DiskUse>,
    /// Milliseconds until the guest ends the freeze that is in force; absent: none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen_left_ms: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Mounted {
    device: String,
    total: u64,
    used: Option<u64>,
    free: u64,
    available: u64,
    inodes: u64,
    inodes_free: u64,
}

/// The use of disks, each with the path where it is mounted. By the serial number of their device, which is the name; of guests that
/// report none, and of memory, by the path. What else the guest mounts does not count, so the answer is as long as `disks` at most.
#[must_use]
pub fn disks_in_use(page: &str, disks: &[(String, String)]) -> Vec<DiskUse> {
    let (mounts, devices) = read(page);
    let find = |(name, path): &(String, String)| {
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        let device = devices.get(name.get(..SERIAL).unwrap_or(name));
        let by_device = device.and_then(|device| {
            let exact = mounts.get(path).filter(|mounted| mounted.device == *device);
            exact.or_else(|| mounts.values().find(|mounted| mounted.device == *device))
        });
        let mounted = by_device.or_else(|| mounts.get(path)).filter(|mounted| mounted.total > 0)?;
        Some(DiskUse {
            name: name.clone(),
            total: mounted.total,
            used: mounted.used.unwrap_or_else(|| mounted.total.saturating_sub(mounted.free)),
            available: mounted.available,
            inodes: mounted.inodes,
            inodes_used: mounted.inodes.saturating_sub(mounted.inodes_free),
        })
    };
    disks.iter().filter_map(find).collect()
}

/// Mounts by their place, and devices by their serial number.
fn read(page: &str) -> (BTreeMap<String, Mounted>, BTreeMap<String, String>) {
    let (mut mounts, mut devices) = (BTreeMap::<String, Mounted>::new(), BTreeMap::new());
    for (_, line) in Lines::new(page) {
        let Line::Sample { name, rest } = line else { continue };
        let Some(field) = field(name) else { continue };
        let Some(sample) = Sample::read(rest) else { continue };
        let label = |key: &str| sample.label(key).map(|value| value.into_owned());
        if name == DEVICES {
            if let (Some(serial), Some(device), true) =
                (label("serial"), label("device"), devices.len() < MOST)
            {
                devices.insert(serial, device);
            }
            continue;
        }
        let Some(place) = label("mountpoint") else { continue };
        if mounts.len() >= MOST && !mounts.contains_key(&place) {
            continue;
        }
        let mounted = mounts.entry(place).or_default();
        mounted.device = label("device").unwrap_or_default();
        field(mounted, whole(sample.value));
    }
    (mounts, devices)
}

/// The family that has the serial number of each disk of the guest.
const DEVICES: &str = "neonvm_guest_disk_info";

type Put = fn(&mut Mounted, u64);

fn field(name: &str) -> Option<Put> {
    Some(match name {
        "host_filesystem_total_bytes" | "node_filesystem_size_bytes" => {
            |mounted, value| mounted.total = value
        }
        "host_filesystem_used_bytes" => |mounted, value| mounted.used = Some(value),
        "node_filesystem_free_bytes" => |mounted, value| mounted.free = value,
        "host_filesystem_free_bytes" | "node_filesystem_avail_bytes" => {
            |mounted, value| mounted.available = value
        }
        "host_filesystem_files" | "node_filesystem_files" => |mounted, value| mounted.inodes = value,
        "host_filesystem_files_free" | "node_filesystem_files_free" => {
            |mounted, value| mounted.inodes_free = value
        }
        DEVICES => |_, _| {},
        _ => return None,
    })
}

/// Nearest whole number that is not negative; not-a-number is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disks(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect()
    }

    #[test]
    fn a_disk_is_found_by_its_serial_number_and_else_by_its_path() {
        let page = "neonvm_guest_disk_info{device=\"/dev/vdc\",serial=\"data\"} 1\n\
            host_filesystem_total_bytes{device=\"/dev/vdc\",mountpoint=\"/run/postgres\"} 1000\n\
            host_filesystem_used_bytes{device=\"/dev/vdc\",mountpoint=\"/run/postgres\"} 600\n\
            host_filesystem_free_bytes{device=\"/dev/vdc\",mountpoint=\"/run/postgres\"} 100\n\
            host_filesystem_files{device=\"/dev/vdc\",mountpoint=\"/run/postgres\"} 10\n\
            host_filesystem_files_free{device=\"/dev/vdc\",mountpoint=\"/run/postgres\"} 1\n\
            host_filesystem_total_bytes{device=\"tmpfs\",mountpoint=\"/scratch\"} 50\n\
            host_filesystem_total_bytes{device=\"/dev/vda\",mountpoint=\"/other\"} 9\n";
        let found = disks_in_use(
            page,
            &disks(&[("data", "/var/run/postgres"), ("scratch", "/scratch/"), ("gone", "/gone")]),
        );
        let data = DiskUse {
            name: "data".into(),
            total: 1000,
            used: 600,
            available: 100,
            inodes: 10,
            inodes_used: 9,
        };
        assert_eq!((data.percent(), data.inodes_percent()), (Some(86), Some(90)));
        let scratch = DiskUse { name: "scratch".into(), total: 50, used: 50, ..DiskUse::default() };
        assert_eq!(scratch.inodes_percent(), None);
        assert_eq!(found, [data, scratch]);
    }

    #[test]
    fn names_of_the_node_exporter_are_read() {
        let page = "node_filesystem_size_bytes{device=\"/dev/vda\",mountpoint=\"/\"} 100\n\
            node_filesystem_free_bytes{device=\"/dev/vda\",mountpoint=\"/\"} 30\n\
            node_filesystem_avail_bytes{device=\"/dev/vda\",mountpoint=\"/\"} 2e1\n";
        let root = DiskUse { name: "/".into(), total: 100, used: 70, available: 20, ..DiskUse::default() };
        assert_eq!(disks_in_use(page, &disks(&[("/", "/")])), [root]);
    }

    proptest! {
        #[test]
        fn any_page_is_read(text in ".{0,300}", part: u64, whole: u64) {
            prop_assert!(disks_in_use(&text, &disks(&[("data", "/")])).len() <= 1);
            prop_assert!(share(part, whole).is_none_or(|percent| percent <= 100));
        }
    }
}
