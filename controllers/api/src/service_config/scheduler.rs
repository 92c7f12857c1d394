//! Keys of the scheduler's file, from v0.10 on.

use neonvm_types::Bytes;
use serde_json::json;

use super::To::{Nowhere, Path, Same};
use super::{Converting, Key, slots_to_bytes};

const QUEUES: &str = "queues and workers of upstream's scheduler; here nothing is queued";
const SYSTEM: &str = "what the kubelet reserves and what ordinary pods request counts instead";

pub(super) const KEYS: &[Key] = &[
    ("$schema", Nowhere, "for editors"),
    ("watermark", Same, "share of a node above which VMs leave, for CPU and memory"),
    ("scoring.minUsageScore", Same, "score of an empty node"),
    ("scoring.maxUsageScore", Same, "score of a full node"),
    ("scoring.scorePeak", Same, "usage with the highest score"),
    ("scoring.randomize", Same, "whether scores are drawn at random below their value"),
    ("nodeConfig.cpu.watermark", Same, "share of a node's CPU above which VMs leave"),
    ("nodeConfig.memory.watermark", Same, "share of a node's memory above which VMs leave"),
    ("nodeConfig.minUsageScore", Path("scoring.minUsageScore"), "score of an empty node"),
    ("nodeConfig.maxUsageScore", Path("scoring.maxUsageScore"), "score of a full node"),
    ("nodeConfig.scorePeak", Path("scoring.scorePeak"), "usage with the highest score"),
    (
        "nodeDefaults.cpu.watermark",
        Path("nodeConfig.cpu.watermark"),
        "share of a node's CPU above which VMs leave",
    ),
    (
        "nodeDefaults.memory.watermark",
        Path("nodeConfig.memory.watermark"),
        "share of a node's memory above which VMs leave",
    ),
    ("nodeDefaults.cpu.system", Nowhere, SYSTEM),
    ("nodeDefaults.memory.system", Nowhere, SYSTEM),
    ("nodeDefaults.computeUnit", Path("computeUnit"), "compute unit of agents that do not name one"),
    ("nodeDefaults.minUsageScore", Path("scoring.minUsageScore"), "score of an empty node"),
    ("nodeDefaults.maxUsageScore", Path("scoring.maxUsageScore"), "score of a full node"),
    (
        "nodeDefaults.scoreMidpoint",
        Path("scoring.scorePeak"),
        "usage with the highest score, as v0.16.0 called it",
    ),
    ("nodeDefaults.scorePeak", Path("scoring.scorePeak"), "usage with the highest score"),
    (
        "nodeOverrides",
        Same,
        "watermarks of single nodes; their computeUnit, system and scores have no effect",
    ),
    ("memBlockSize", Nowhere, "each VM's own slot size counts; only the unit of memory in computeUnit"),
    ("memSlotSize", Nowhere, "each VM's own slot size counts; only the unit of memory in computeUnit"),
    ("computeUnit", Same, "compute unit of agents that do not name one"),
    ("schedulerName", Same, "name by which pods choose this scheduler"),
    ("randomizeScores", Path("scoring.randomize"), "whether scores are drawn at random below their value"),
    (
        "doMigration",
        Same,
        "whether migrations are created, of VMs with the label autoscaling.neon.tech/auto-migration-enabled=true",
    ),
    ("migrationsPerNode", Same, "most VMs that leave a node at the same time"),
    ("ignoredNamespaces", Same, "pods of these namespaces do not count against permits"),
    ("ignoreNamespaces", Path("ignoredNamespaces"), "pods of these namespaces do not count against permits"),
    ("nodeMetricLabels", Same, "labels of nodes in metrics"),
    ("k8sNodeGroupLabel", Same, "label of nodes that is node_group in metrics"),
    ("k8sAvailabilityZoneLabel", Same, "label of nodes that is availability_zone in metrics"),
    ("k8sCRUDTimeoutSeconds", Same, "longest time for a request to the API server, in seconds"),
    ("reconcileWorkers", Nowhere, QUEUES),
    ("eventQueueWorkers", Nowhere, QUEUES),
    ("logSuccessiveFailuresThreshold", Nowhere, QUEUES),
    ("startupEventHandlingTimeoutSeconds", Nowhere, QUEUES),
    ("patchRetryWaitSeconds", Nowhere, QUEUES),
    ("migrationDeletionRetrySeconds", Nowhere, QUEUES),
    ("dumpState.port", Same, "TCP port on 127.0.0.1 that serves the state as upstream's scheduler does"),
    ("dumpState.timeoutSeconds", Nowhere, "the state is in memory and served at once"),
];

/// What the file leaves out, and what it counts in other units.
pub(super) fn complete(converting: &mut Converting) {
    unit(converting);
    let earlier = |key: &str| ["nodeConfig.", "nodeDefaults."].iter().any(|section| key.starts_with(section));
    if converting.keys.iter().any(|key| earlier(&key.key)) {
        converting.default("doMigration", json!(true), "true where it is absent or null, until v0.31");
    }
}

/// Before v0.28 the memory of a compute unit was a number of slots, all of one size.
fn unit(converting: &mut Converting) {
    let size = |key: &&super::Meaning| ["memBlockSize", "memSlotSize"].contains(&key.key.as_str());
    let Some(size) = converting.keys.iter().find(size) else { return };
    match serde_json::from_value::<Bytes>(size.value.clone()) {
        Ok(slot) if slot > Bytes::ZERO => slots_to_bytes(converting, "computeUnit", slot),
        _ => {
            let fault = format!(
                "{}: {} is no size of a memory slot; write for example \"1Gi\"",
                size.key, size.value
            );
            converting.faults.push(fault);
        }
    }
}
