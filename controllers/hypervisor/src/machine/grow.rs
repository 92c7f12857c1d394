//! Disks on volumes that become larger while the machine runs.

use std::time::Duration;

use neonvm_types::Bytes;
use serde_json::{Value, json};

use super::Machine;
use crate::disks::file_size;
use crate::plan::{DiskImage, disk_node};
use crate::qmp::QmpError;

/// Time for QEMU to grow a disk: requests of the guest to it that are under way come first.
const DEADLINE: Duration = Duration::from_secs(20);

/// Why a disk did not grow.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// There is no such disk, or it is not on a volume that the guest writes.
    #[error("the machine has no disk {0} on a volume that it writes")]
    Disk(usize),
    /// The volume is not as large as expected on this node yet.
    #[error("the disk has {has}, and {needs} of the volume are expected")]
    Short {
        /// The disk.
        has: Bytes,
        /// What it should have.
        needs: Bytes,
    },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

impl Machine {
    /// Makes a disk as large as a volume of this size lets it be; the guest's kernel is notified. A disk that is as large already stays
    /// as it is: none ever shrinks. Returns the size of the disk.
    ///
    /// QEMU itself makes the file larger, with the descriptor that it has; a device has grown before. The size is on the volume's storage
    /// with the guest's next flush: that of its journal, when its file system has grown.
    ///
    /// # Errors
    /// If it is not a disk on a volume that is written, the device is not as large, or QEMU refuses.
    pub async fn grow_disk(&self, index: usize, volume: Bytes) -> Result<Bytes, GrowError> {
        let needs = self.size_on(index, volume)?;
        let has = self.disk_size(index).await?;
        if has < needs {
            let size = json!({"node-name": disk_node(index), "size": needs.get()});
            self.session.execute_within("block_resize", size, DEADLINE).await?;
        }
        let has = self.disk_size(index).await?;
        if has < needs { Err(GrowError::Short { has, needs }) } else { Ok(has) }
    }

    /// The size of the volume that a disk uses, at most this: of one that has room left it is the size of the disk.
    ///
    /// # Errors
    /// If it is not a disk on a volume that is written, or QEMU does not answer.
    pub async fn used_volume(&self, index: usize, volume: Bytes) -> Result<Bytes, GrowError> {
        let has = self.disk_size(index).await?;
        Ok(if has < self.size_on(index, volume)? { has } else { volume })
    }

    /// Size of a disk on a volume of this size.
    fn size_on(&self, index: usize, volume: Bytes) -> Result<Bytes, GrowError> {
        let disk = self.plan.disks.get(index).filter(|disk| !disk.read_only);
        match disk.map(|disk| &disk.image) {
            Some(DiskImage::Volume { device: true, .. }) => Ok(volume),
            Some(DiskImage::Volume { device: false, .. }) => Ok(file_size(volume)),
            _ => Err(GrowError::Disk(index)),
        }
    }

    async fn disk_size(&self, index: usize) -> Result<Bytes, GrowError> {
        let nodes = self.session.execute("query-named-block-nodes", json!({"flat": true})).await?;
        virtual_size(&nodes, &disk_node(index)).ok_or(GrowError::Disk(index))
    }
}

/// Size of a node, as the guest sees it.
fn virtual_size(nodes: &Value, name: &str) -> Option<Bytes> {
    let node = nodes.as_array()?.iter().find(|node| node["node-name"] == name)?;
    node.pointer("/image/virtual-size")?.as_u64().map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_node_is_found_by_its_name() {
        let nodes = json!([
            {"node-name": "disk1-file", "image": {"virtual-size": 1}},
            {"node-name": "disk1", "image": {"virtual-size": 1_048_576, "actual-size": 512}}]);
        assert_eq!(virtual_size(&nodes, "disk1"), Some(Bytes::mib(1)));
        for (nodes, name) in
            [(&nodes, "disk11"), (&json!({}), "disk1"), (&json!([{"node-name": "disk1"}]), "disk1")]
        {
            assert_eq!(virtual_size(nodes, name), None);
        }
    }
}
