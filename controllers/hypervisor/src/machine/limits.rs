//! Limits of disks. Two set them: the VM's spec, and a migration, which limits what the guest writes while a copy catches up. QEMU takes
//! one set for each disk, so both are kept here and composed.

use std::collections::BTreeMap;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::DiskLimits;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Machine;
use crate::plan::disk_front;
use crate::qmp::QmpError;

/// Largest limit that QEMU takes, in bytes a second (`THROTTLE_VALUE_MAX`).
const LARGEST_LIMIT: u64 = 1_000_000_000_000_000;

/// Limits of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limit {
    disk: DiskLimits,
    /// Bytes a second that may be written during a migration.
    copied: Option<Bytes>,
}

/// Limits in force, by the number of the disk.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<BTreeMap<usize, Limit>>);

/// What the guest has read and written of a disk since the start of QEMU, as QEMU counts it for limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskWork {
    /// Requests; those that QEMU has put together count as one.
    pub requests: u64,
    pub bytes: u64,
}

/// QEMU's name of a disk as the guest has it. The device itself is a proxy: what it stands for has the disk.
fn backend(index: usize) -> String {
    format!("/machine/peripheral/{}/virtio-backend", disk_front(index))
}

impl Machine {
    /// Limits what the guest reads and writes of a disk. What is absent is not limited.
    ///
    /// # Errors
    /// See [`QmpError`]; the limits are those of before then.
    pub async fn limit_disk(&self, index: usize, limits: DiskLimits) -> Result<(), QmpError> {
        self.limit(index, |limit| limit.disk = limits).await
    }

    /// Source: limits what the guest writes to a disk while it is copied, in bytes a second; none: no such limit.
    ///
    /// # Errors
    /// See [`QmpError`]; the limit is that of before then.
    pub async fn limit_writes(&self, index: usize, copied: Option<Bytes>) -> Result<(), QmpError> {
        self.limit(index, |limit| limit.copied = copied).await
    }

    async fn limit(&self, index: usize, change: impl FnOnce(&mut Limit)) -> Result<(), QmpError> {
        // Held over the command, so that QEMU has what was composed last.
        let mut all = self.limits.0.lock().await;
        let before = all.get(&index).copied().unwrap_or_default();
        let mut limit = before;
        change(&mut limit);
        if limit != before {
            self.session.execute("block_set_io_throttle", arguments(index, &limit)).await?;
            all.insert(index, limit);
        }
        Ok(())
    }

    /// What the guest has done with its disks, by number.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn disk_work(&self) -> Result<BTreeMap<usize, DiskWork>, QmpError> {
        let answer = self.session.execute("query-blockstats", Value::Null).await?;
        let disks = 0..self.plan.disks.len();
        Ok(disks.filter_map(|index| Some((index, work(&answer, &backend(index))?))).collect())
    }
}

/// Both limits as QEMU takes them: one of reads and writes together and one of either exclude each other.
fn arguments(index: usize, Limit { disk, copied }: &Limit) -> Value {
    let burst = disk.burst.unwrap_or_default();
    let total = disk.bandwidth.map(Bytes::get);
    let most = burst.bandwidth.map(Bytes::get).or(total).unwrap_or(u64::MAX);
    let copied = copied.map(|copied| copied.get().clamp(1, LARGEST_LIMIT)).filter(|copied| *copied < most);
    // Of a limited disk writes get at most half then, so that reads and writes together stay within the limit and neither starves.
    let writes = copied.map(|copied| total.map_or(copied, |total| copied.min(total / 2)));
    let (both, reads) = match (total, writes) {
        (Some(total), Some(writes)) => (0, total - writes),
        (total, _) => (total.unwrap_or(0), 0),
    };
    let mut arguments = json!({
        "id": backend(index),
        "bps": both, "bps_rd": reads, "bps_wr": writes.unwrap_or(0),
        "iops": disk.iops.unwrap_or(0), "iops_rd": 0, "iops_wr": 0,
    });
    let bursts =
        [("iops", burst.iops.map(u64::from)), ("bps", burst.bandwidth.map(Bytes::get).filter(|_| both > 0))];
    if let Some(fields) = arguments.as_object_mut() {
        for (kind, rate) in bursts {
            let Some(rate) = rate else { continue };
            fields.insert(format!("{kind}_max"), rate.into());
            fields.insert(format!("{kind}_max_length"), burst.seconds.max(1).into());
        }
    }
    arguments
}

fn work(answer: &Value, backend: &str) -> Option<DiskWork> {
    let disk = answer.as_array()?.iter().find(|disk| disk.get("qdev").is_some_and(|qdev| qdev == backend))?;
    let stats = disk.get("stats")?;
    let number = |name: &str| stats.get(name).and_then(Value::as_u64).unwrap_or(0);
    let sum = |names: [&str; 2]| names.map(number).into_iter().fold(0, u64::saturating_add);
    let requests = sum(["rd_operations", "wr_operations"]).saturating_sub(sum(["rd_merged", "wr_merged"]));
    Some(DiskWork { requests, bytes: sum(["rd_bytes", "wr_bytes"]) })
}

#[cfg(test)]
mod tests {
    use neonvm_types::runner_protocol::DiskBurst;
    use proptest::prelude::*;

    use super::*;

    fn limit(bandwidth: Option<u64>, burst: Option<u64>, copied: Option<u64>) -> Limit {
        let bursts =
            burst.map(|burst| DiskBurst { iops: None, bandwidth: Some(Bytes::new(burst)), seconds: 30 });
        let disk = DiskLimits { iops: None, bandwidth: bandwidth.map(Bytes::new), burst: bursts };
        Limit { disk, copied: copied.map(Bytes::new) }
    }

    #[test]
    fn limits_of_spec_and_migration_are_composed() {
        let rates = |limit: Limit| {
            let arguments = arguments(3, &limit);
            ["bps", "bps_rd", "bps_wr", "bps_max"].map(|name| arguments[name].as_u64().unwrap_or(0))
        };
        assert_eq!(rates(limit(None, None, None)), [0, 0, 0, 0]);
        assert_eq!(rates(limit(None, None, Some(0))), [0, 0, 1, 0]);
        assert_eq!(rates(limit(Some(100), Some(300), None)), [100, 0, 0, 300]);
        assert_eq!(rates(limit(Some(100), Some(300), Some(300))), [100, 0, 0, 300], "it does not bind");
        assert_eq!(rates(limit(Some(100), Some(300), Some(200))), [0, 50, 50, 0]);
        assert_eq!(rates(limit(Some(100), None, Some(20))), [0, 80, 20, 0]);
        let disk = DiskLimits {
            iops: Some(500),
            bandwidth: None,
            burst: Some(DiskBurst { iops: Some(900), bandwidth: None, seconds: 5 }),
        };
        let arguments = arguments(3, &Limit { disk, copied: None });
        assert_eq!(arguments["id"], "/machine/peripheral/disk3-front/virtio-backend");
        assert_eq!(
            (&arguments["iops"], &arguments["iops_max"], &arguments["iops_max_length"]),
            (&json!(500), &json!(900), &json!(5))
        );
    }

    proptest! {
        /// QEMU accepts every combination, and nothing exceeds either limit.
        #[test]
        fn either_limit_holds(bandwidth in proptest::option::of(2_u64..1000), more in proptest::option::of(1_u64..1000), copied in proptest::option::of(1_u64..3000)) {
            let burst = bandwidth.zip(more).map(|(bandwidth, more)| bandwidth + more);
            let arguments = arguments(0, &limit(bandwidth, burst, copied));
            let [both, reads, writes, max] = ["bps", "bps_rd", "bps_wr", "bps_max"].map(|name| arguments[name].as_u64().unwrap_or(0));
            prop_assert!(both == 0 || reads + writes == 0, "they exclude each other");
            prop_assert!(max == 0 || both > 0 && max > both);
            prop_assert!(bandwidth.is_none_or(|most| both == most || reads > 0 && writes > 0 && reads + writes <= most));
            let written = if writes > 0 { writes } else if max > 0 { max } else if both > 0 { both } else { u64::MAX };
            prop_assert!(copied.is_none_or(|copied| written <= copied));
        }
    }

    #[test]
    fn work_is_found_by_the_device() {
        let answer = json!([
            {"qdev": backend(1), "stats": {"rd_operations": 9, "wr_operations": 5, "rd_merged": 1, "wr_merged": 2, "rd_bytes": 10, "wr_bytes": 20}},
            {"node-name": "disk0", "stats": {}}]);
        assert_eq!(work(&answer, &backend(1)), Some(DiskWork { requests: 11, bytes: 30 }));
        assert_eq!((work(&answer, &backend(0)), work(&json!({}), &backend(1))), (None, None));
    }
}
