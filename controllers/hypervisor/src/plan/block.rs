//! Disks as block nodes. Their options are JSON, so nothing of the user's can be taken for an option.

use serde_json::{Map, Value};

use super::device;
use super::{BaseFormat, DiskDescriptors, DiskImage, DiskPlan, MachinePlan, PlanError, SERIAL_BYTES};

/// Node of a disk that the guest sees; its number is that of the disk.
pub(crate) fn node(index: usize) -> String {
    format!("disk{index}")
}

/// Node that another QEMU writes while the machine comes. That of a raw disk is its file: there zeros may become holes,
/// whatever the guest may do.
pub(crate) fn export_node(index: usize, disk: &DiskPlan) -> String {
    match disk.image {
        DiskImage::Raw(_) | DiskImage::Volume { .. } => file_node(&node(index)),
        DiskImage::Qcow2(_) | DiskImage::Overlay { .. } => node(index),
    }
}

fn file_node(node: &str) -> String {
    format!("{node}-file")
}

/// Number of the disk that a node or device belongs to.
pub(crate) fn disk_of(node: &str) -> Option<usize> {
    let digits = node.strip_prefix("disk")?;
    digits.split('-').next()?.parse().ok()
}

/// A file that QEMU has inherited.
struct File {
    node: String,
    /// Number of the set of descriptors.
    set: usize,
    descriptor: i32,
    read_only: bool,
    direct: bool,
    /// A block device.
    device: bool,
}

fn push(out: &mut Vec<String>, options: Vec<(&str, Value)>) {
    let map: Map<String, Value> = options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    out.extend(["-blockdev".to_owned(), Value::Object(map).to_string()]);
}

fn push_file(out: &mut Vec<String>, file: &File, discard: &str) {
    out.extend(["-add-fd".to_owned(), format!("fd={},set={}", file.descriptor, file.set)]);
    let mut options = vec![
        ("driver", if file.device { "host_device" } else { "file" }.into()),
        ("node-name", file.node.as_str().into()),
        ("filename", format!("/dev/fdset/{}", file.set).into()),
        ("read-only", file.read_only.into()),
    ];
    if file.direct {
        options.push(("cache", Value::Object(Map::from_iter([("direct".to_owned(), true.into())]))));
    }
    if !file.read_only {
        options.push(("discard", discard.into()));
    }
    push(out, options);
}

pub(super) fn arguments(
    index: usize,
    disk: &DiskPlan,
    descriptors: DiskDescriptors,
    plan: &MachinePlan,
    out: &mut Vec<String>,
) -> Result<(), PlanError> {
    let node = node(index);
    let direct_io = plan.direct_io;
    let discard = if disk.discard { "unmap" } else { "ignore" };
    let file = File {
        node: file_node(&node),
        set: 2 * index + 1,
        descriptor: descriptors.file,
        read_only: disk.read_only,
        direct: direct_io && !disk.read_only,
        device: matches!(disk.image, DiskImage::Volume { device: true, .. }),
    };
    let mut options: Vec<(&str, Value)> = vec![
        ("driver", driver(&disk.image).into()),
        ("node-name", node.as_str().into()),
        ("file", file.node.as_str().into()),
        ("read-only", disk.read_only.into()),
    ];
    match &disk.image {
        DiskImage::Raw(_) | DiskImage::Volume { .. } => {}
        // Whatever the header names is not opened.
        DiskImage::Qcow2(_) => options.push(("backing", Value::Null)),
        DiskImage::Overlay { base_format, .. } => {
            let descriptor = descriptors.base.ok_or(PlanError::Descriptor { what: "base of disk", index })?;
            options.push(("backing", push_base(out, index, descriptor, *base_format).into()));
        }
    }
    if !disk.read_only {
        options.push(("discard", discard.into()));
    }
    // Zeros that come from another node become holes; the guest's discards end at the node above.
    push_file(out, &file, if plan.incoming { "unmap" } else { discard });
    push(out, options);
    out.extend(["-device".to_owned(), front(index, disk, plan.disk_queues)]);
    Ok(())
}

fn driver(image: &DiskImage) -> &'static str {
    match image {
        DiskImage::Raw(_) | DiskImage::Volume { .. } => "raw",
        DiskImage::Qcow2(_) | DiskImage::Overlay { .. } => "qcow2",
    }
}

/// The base of an overlay: never written, and kept in the page cache, which all machines with it share.
fn push_base(out: &mut Vec<String>, index: usize, descriptor: i32, format: BaseFormat) -> String {
    let base = format!("{}-base", node(index));
    let file = File {
        node: format!("{base}-file"),
        set: 2 * index + 2,
        descriptor,
        read_only: true,
        direct: false,
        device: false,
    };
    push_file(out, &file, "ignore");
    let mut options: Vec<(&str, Value)> = vec![
        ("driver", format.as_str().into()),
        ("node-name", base.as_str().into()),
        ("file", file.node.as_str().into()),
        ("read-only", true.into()),
    ];
    if format == BaseFormat::Qcow2 {
        options.push(("backing", Value::Null));
    }
    push(out, options);
    base
}

/// Id of the device the guest sees.
pub(crate) fn front_id(index: usize) -> String {
    format!("{}-front", node(index))
}

/// The device that the guest sees. When the host's disk is full, the guest is stopped instead of getting an error.
fn front(index: usize, disk: &DiskPlan, queues: Option<u32>) -> String {
    let node = node(index);
    let mut end = disk.name.len().min(SERIAL_BYTES);
    while !disk.name.is_char_boundary(end) {
        end -= 1;
    }
    let serial = device::value(disk.name.get(..end).unwrap_or_default());
    let address = device::disk(index);
    let errors = if disk.read_only { "" } else { ",werror=enospc,rerror=report" };
    let serial = if serial.is_empty() { String::new() } else { format!(",serial={serial}") };
    let id = front_id(index);
    let queues = queues.map(|queues| format!(",num-queues={queues}")).unwrap_or_default();
    format!("virtio-blk-pci,id={id},drive={node}{serial},{address}{errors}{queues}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_lead_back_to_their_disk() {
        assert_eq!(disk_of(&node(17)), Some(17));
        assert_eq!(disk_of("disk3-front"), Some(3));
        assert_eq!(disk_of("disk"), None);
        assert_eq!(disk_of("other1"), None);
    }
}
