//! Disks of a VM in migration: the target's QEMU serves them by NBD, the source's keeps a copy in step.

use std::path::PathBuf;
use std::time::Duration;

use neonvm_types::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CONNECT, Machine, MigrationError};
use crate::plan::{DiskImage, DiskPlan, disk_node, export_node};
use crate::qmp::QmpError;

/// QEMU's words when another node is above the disk.
const COVERED: &str = "Need a root block node";
/// How long such a node may take to be removed, and the pause between two attempts.
const FILTER: Duration = Duration::from_secs(5);
const FILTER_PAUSE: Duration = Duration::from_millis(100);

/// How the copy of a disk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Both disks are equal.
    Whole,
    Cancelled,
    /// It failed, in QEMU's words.
    Failed(String),
}

fn job(index: usize) -> String {
    format!("mirror{index}")
}

pub(in crate::machine) fn disk_of_job(job: &str) -> Option<usize> {
    job.strip_prefix("mirror")?.parse().ok()
}

/// A refusal because there is nothing of that name: what was to be done away with is gone.
fn gone<T: Default>(result: Result<T, QmpError>) -> Result<T, QmpError> {
    match result {
        Err(QmpError::Command { .. }) => Ok(T::default()),
        other => other,
    }
}

/// Whether a migration copies the disk: it is written, and the target does not open the same volume.
fn is_copied(disk: &DiskPlan) -> bool {
    !disk.read_only && !matches!(disk.image, DiskImage::Volume { shared: true, .. })
}

impl Machine {
    /// Names of the disks that a migration copies.
    #[must_use]
    pub fn written_disks(&self) -> Vec<String> {
        self.plan.disks.iter().filter(|disk| is_copied(disk)).map(|disk| disk.name.clone()).collect()
    }

    /// Files and devices of disks that are copied and outlive the machine.
    #[must_use]
    pub fn copied_volumes(&self) -> Vec<PathBuf> {
        let copied = self.plan.disks.iter().filter(|disk| is_copied(disk));
        let path = |disk: &DiskPlan| match &disk.image {
            DiskImage::Volume { path, .. } => Some(path.clone()),
            DiskImage::Raw(_) | DiskImage::Qcow2(_) | DiskImage::Overlay { .. } => None,
        };
        copied.filter_map(path).collect()
    }

    #[must_use]
    pub fn written_disk_numbers(&self) -> Vec<usize> {
        let disks = self.plan.disks.iter().enumerate();
        disks.filter(|(_, disk)| is_copied(disk)).map(|(index, _)| index).collect()
    }

    fn written_disk(&self, name: &str) -> Result<usize, MigrationError> {
        let place = self.plan.disks.iter().position(|disk| disk.name == name && is_copied(disk));
        place.ok_or_else(|| MigrationError::Disk(name.to_owned()))
    }

    /// Target: serves these disks by NBD on the socket of this name, each under its own.
    ///
    /// # Errors
    /// If a disk is not there or not written, or QEMU refuses.
    pub async fn export_disks(&self, socket: &str, names: &[String]) -> Result<(), MigrationError> {
        let path = self.theirs(socket)?;
        let address = json!({"addr": {"type": "unix", "data": {"path": path}}});
        self.session.execute_within("nbd-server-start", address, CONNECT).await?;
        for name in names {
            let index = self.written_disk(name)?;
            let Some(disk) = self.plan.disks.get(index) else { continue };
            let export = json!({
                "type": "nbd",
                "id": format!("export{index}"),
                "node-name": export_node(index, disk),
                "name": name,
                "writable": true,
            });
            self.session.execute("block-export-add", export).await?;
        }
        Ok(())
    }

    /// Target: ends all writes of disks by NBD. Harmless if there are none.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub async fn stop_exports(&self) -> Result<(), QmpError> {
        gone(self.session.execute_within("nbd-server-stop", Value::Null, CONNECT).await.map(drop))
    }

    /// Source: copies a disk to the NBD server on the socket of this name, and then mirrors what the guest writes.
    /// [`super::super::MachineEvent::MirrorReady`] reports that nothing was left to copy for a moment. What the target shares
    /// with this disk, the base of an overlay, is not copied.
    ///
    /// # Errors
    /// If the disk is not there or QEMU cannot connect.
    pub async fn mirror_disk(&self, socket: &str, name: &str) -> Result<usize, MigrationError> {
        let index = self.written_disk(name)?;
        let overlay =
            self.plan.disks.get(index).is_some_and(|disk| matches!(disk.image, DiskImage::Overlay { .. }));
        let target = job(index);
        let node = json!({
            "driver": "nbd",
            "node-name": target,
            "server": {"type": "unix", "path": self.theirs(socket)?},
            "export": name,
            "discard": "unmap",
        });
        // A node that remains of an earlier copy, which ended after its caller had stopped waiting.
        self.close_mirror(index).await?;
        self.session.execute_within("blockdev-add", node, CONNECT).await?;
        let mirror = json!({
            "job-id": target,
            "device": disk_node(index),
            "target": target,
            "sync": if overlay { "top" } else { "full" },
            // Not `write-blocking`, which keeps both disks equal by delaying the guest: a job of that kind that is cancelled
            // or fails frees a bitmap (`in_flight_bitmap`, in `mirror_run`) that writes of the guest still on their way then
            // change. Of QEMU 7.2 over a slow link, one in ten died of it; later ones have the same code.
            "copy-mode": "background",
            "auto-dismiss": true,
        });
        if let Err(error) = self.start_mirror(mirror).await {
            self.close_mirror(index).await?;
            return Err(error.into());
        }
        Ok(index)
    }

    /// Starts a mirror. The filter of an earlier one that failed may still be above the disk, although its job has ended: then it is
    /// tried again for [`FILTER`].
    async fn start_mirror(&self, mirror: Value) -> Result<(), QmpError> {
        let until = Instant::now() + FILTER;
        loop {
            match self.session.execute_within("blockdev-mirror", mirror.clone(), CONNECT).await {
                Err(QmpError::Command { description, .. })
                    if description.contains(COVERED) && Instant::now() < until =>
                {
                    tracing::debug!(description, "an earlier copy of the disk is still being removed");
                    tokio::time::sleep(FILTER_PAUSE).await;
                }
                other => return other.map(drop),
            }
        }
    }

    /// Source: ends a copy that is whole; [`super::super::MachineEvent::MirrorEnded`] follows.
    ///
    /// # Errors
    /// If there is none.
    pub async fn finish_mirror(&self, index: usize) -> Result<(), QmpError> {
        self.session.execute("block-job-cancel", json!({"device": job(index)})).await.map(drop)
    }

    /// Source: gives a copy up; [`super::super::MachineEvent::MirrorEnded`] follows if there was one.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub async fn abandon_mirror(&self, index: usize) -> Result<(), QmpError> {
        let arguments = json!({"device": job(index), "force": true});
        gone(self.session.execute("block-job-cancel", arguments).await.map(drop))
    }

    /// Source: closes the connection of a copy that has ended. Harmless if there is none.
    ///
    /// # Errors
    /// If QEMU does not answer.
    pub async fn close_mirror(&self, index: usize) -> Result<(), QmpError> {
        gone(
            self.session
                .execute_within("blockdev-del", json!({"node-name": job(index)}), CONNECT)
                .await
                .map(drop),
        )
    }

    /// Source: numbers of the disks that are being copied.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn running_mirrors(&self) -> Result<Vec<usize>, QmpError> {
        let answer = self.session.execute("query-block-jobs", Value::Null).await?;
        let jobs = answer.as_array().map(Vec::as_slice).unwrap_or_default().iter();
        Ok(jobs.filter_map(|entry| disk_of_job(entry.get("device")?.as_str()?)).collect())
    }

    /// Source: bytes of disks that were copied, and that are to be copied.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn mirrored(&self) -> Result<(Bytes, Bytes), QmpError> {
        let answer = self.session.execute("query-block-jobs", Value::Null).await?;
        let jobs = answer.as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let jobs =
            jobs.filter(|entry| entry.get("device").and_then(Value::as_str).and_then(disk_of_job).is_some());
        let number = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_u64).unwrap_or(0);
        let (done, all) = jobs.fold((0_u64, 0_u64), |(done, all), entry| {
            (done.saturating_add(number(entry, "offset")), all.saturating_add(number(entry, "len")))
        });
        Ok((Bytes::new(done), Bytes::new(all)))
    }
}
