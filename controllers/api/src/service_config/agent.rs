//! Keys of the agent's file, from v0.10 on.

use neonvm_types::Bytes;
use serde_json::{Value, json};

use super::To::{Nowhere, Path, Same};
use super::{Converting, Key, get, slots_to_bytes};

/// What an installation without a file has. A test of the agent keeps it equal to the agent's own.
const DEFAULTS: &str = include_str!("agent-defaults.json");
/// Memory of a slot where a file counts memory in slots (before v0.28): no file has another one.
const SLOT: Bytes = Bytes::gib(1);

pub(super) const KEYS: &[Key] = &[
    ("$schema", Nowhere, "for editors"),
    ("refereshStateIntervalSeconds", Nowhere, "states are derived when they are read; misspelt upstream"),
    ("scaling.computeUnit", Same, "step in which VMs are scaled"),
    (
        "scaling.requestTimeoutSeconds",
        Path("neonvm.requestTimeoutSeconds"),
        "longest time for a patch of a VM, in seconds",
    ),
    (
        "scaling.retryFailedRequestSeconds",
        Path("neonvm.retryFailedRequestSeconds"),
        "pause after a failed patch, in seconds",
    ),
    ("scaling.defaultConfig.loadAverageFractionTarget", Same, "load per CPU to aim at"),
    (
        "scaling.defaultConfig.memoryUsageFractionTarget",
        Same,
        "share of memory in use, without page cache, to aim at",
    ),
    (
        "scaling.defaultConfig.memoryTotalFractionTarget",
        Same,
        "share of memory in use, with file cache, to aim at",
    ),
    ("scaling.defaultConfig.enableLFCMetrics", Same, "whether metrics of the local file cache count"),
    (
        "scaling.defaultConfig.lfcUseLargestWindow",
        Same,
        "whether the largest window of the file cache decides",
    ),
    ("scaling.defaultConfig.lfcToMemoryRatio", Same, "share of memory that the file cache may have"),
    ("scaling.defaultConfig.lfcWindowSizeMinutes", Same, "minutes over which the working set is estimated"),
    (
        "scaling.defaultConfig.lfcMinWaitBeforeDownscaleMinutes",
        Same,
        "minutes before the file cache lets a VM shrink",
    ),
    ("scaling.defaultConfig.cpuStableZoneRatio", Same, "zone in which the longer load average decides"),
    ("scaling.defaultConfig.cpuMixedZoneRatio", Same, "zone in which both load averages are blended"),
    ("billing.cpuMetricName", Same, "name of the metric of CPU seconds"),
    ("billing.activeTimeMetricName", Same, "name of the metric of active seconds"),
    ("billing.collectEverySeconds", Same, "seconds between samples of usage"),
    ("billing.accumulateEverySeconds", Same, "seconds of usage in an event"),
    ("billing.url", Path("billing.clients.http.url"), "where events are posted"),
    ("billing.pushEverySeconds", Path("billing.clients.http.pushEverySeconds"), "seconds between batches"),
    (
        "billing.pushTimeoutSeconds",
        Path("billing.clients.http.pushRequestTimeoutSeconds"),
        "longest time to send a batch, in seconds",
    ),
    (
        "billing.pushRequestTimeoutSeconds",
        Path("billing.clients.http.pushRequestTimeoutSeconds"),
        "longest time to send a batch, in seconds",
    ),
    ("billing.maxBatchSize", Path("billing.clients.http.maxBatchSize"), "most events of a batch"),
    ("billing.clients.http", Same, "server to which billing events are posted"),
    ("billing.clients.s3", Same, "bucket for billing events"),
    ("billing.clients.file", Same, "directory for billing events"),
    ("billing.clients.azureBlob", Same, "not supported: the agent refuses it"),
    ("scalingEvents.cuMultiplier", Same, "how much a compute unit counts in events"),
    ("scalingEvents.rereportThreshold", Same, "change of a goal that is reported again, in compute units"),
    ("scalingEvents.regionName", Same, "region in events"),
    ("scalingEvents.clients.http", Same, "not supported: the agent refuses it"),
    ("scalingEvents.clients.s3", Same, "bucket for scaling events"),
    ("scalingEvents.clients.file", Same, "directory for scaling events"),
    ("scalingEvents.clients.azureBlob", Same, "not supported: the agent refuses it"),
    ("informant.serverPort", Same, "TCP port of the informant in a guest without a monitor"),
    ("informant.callbackPort", Same, "TCP port on which the agent serves informants"),
    ("informant.selector", Same, "labels of the VMs whose guests may have an informant"),
    ("informant.skipMonitor", Same, "whether these VMs are not tried with the monitor's protocol first"),
    ("informant.retryServerMinWaitSeconds", Same, "least seconds between two registrations"),
    ("informant.retryServerNormalWaitSeconds", Same, "pause after a registration that failed, in seconds"),
    ("informant.registerRetrySeconds", Same, "pause after a registration without an answer, in seconds"),
    ("informant.requestTimeoutSeconds", Same, "longest time for a health check, in seconds"),
    ("informant.registerTimeoutSeconds", Same, "longest time to register and unregister, in seconds"),
    ("informant.downscaleTimeoutSeconds", Same, "longest time for a change of size, in seconds"),
    (
        "informant.unhealthyAfterSilenceDurationSeconds",
        Same,
        "seconds of silence after which a registration is made again",
    ),
    (
        "informant.unhealthyStartupGracePeriodSeconds",
        Same,
        "seconds that an informant may take to resume the agent",
    ),
    ("monitor.serverPort", Same, "TCP port of the monitor in the guest"),
    ("monitor.responseTimeoutSeconds", Same, "longest time for an answer of the monitor, in seconds"),
    ("monitor.connectionTimeoutSeconds", Same, "longest time to connect to the monitor, in seconds"),
    ("monitor.connectionRetryMinWaitSeconds", Same, "least seconds between two connections"),
    (
        "monitor.unhealthyAfterSilenceDurationSeconds",
        Same,
        "seconds of silence after which a VM is called stuck",
    ),
    ("monitor.unhealthyStartupGracePeriodSeconds", Same, "seconds that a VM may be without a monitor"),
    (
        "monitor.maxHealthCheckSequentialFailuresSeconds",
        Same,
        "seconds of silence after which the connection is made again",
    ),
    ("monitor.retryDeniedDownscaleSeconds", Same, "pause after a denied downscale, in seconds"),
    (
        "monitor.deniedDownscaleFollowUpWaitSeconds",
        Nowhere,
        "v0.18.2 to v0.21.0 waited so long before another size was tried; here each denial makes the wait longer",
    ),
    (
        "monitor.requestedUpscaleValidSeconds",
        Same,
        "seconds for which a request of the monitor stays in force",
    ),
    ("monitor.retryFailedRequestSeconds", Same, "pause after a failed request, in seconds"),
    ("monitor.maxFailedRequestRate.intervalSeconds", Same, "seconds over which failures count"),
    ("monitor.maxFailedRequestRate.threshold", Same, "more failures than this: stuck"),
    ("metrics.loadMetricPrefix", Nowhere, "both prefixes, host_ and node_, are read"),
    ("metrics.port", Path("metrics.system.port"), "TCP port of the guest's metrics"),
    (
        "metrics.requestTimeoutSeconds",
        Path("metrics.system.requestTimeoutSeconds"),
        "longest time to read metrics, in seconds",
    ),
    (
        "metrics.secondsBetweenRequests",
        Path("metrics.system.secondsBetweenRequests"),
        "seconds between readings",
    ),
    ("metrics.system.port", Same, "TCP port of the guest's metrics"),
    ("metrics.system.requestTimeoutSeconds", Same, "longest time to read metrics, in seconds"),
    ("metrics.system.secondsBetweenRequests", Same, "seconds between readings"),
    ("metrics.lfc.port", Same, "TCP port of the file cache's metrics"),
    ("metrics.lfc.requestTimeoutSeconds", Same, "longest time to read metrics, in seconds"),
    ("metrics.lfc.secondsBetweenRequests", Same, "seconds between readings"),
    ("scheduler.schedulerName", Same, "only VMs of this scheduler are scaled"),
    (
        "scheduler.requestTimeoutSeconds",
        Same,
        "longest time for an answer of this project's scheduler, in seconds; for upstream's the time for a patch counts, if it is longer",
    ),
    ("scheduler.requestAtLeastEverySeconds", Same, "most seconds between two reports of a VM"),
    ("scheduler.retryFailedRequestSeconds", Same, "pause after a failed request, in seconds"),
    ("scheduler.retryDeniedUpscaleSeconds", Same, "pause after a denied request, in seconds"),
    ("scheduler.requestPort", Same, "TCP port of upstream's scheduler"),
    ("scheduler.maxFailedRequestRate.intervalSeconds", Same, "seconds over which failures count"),
    ("scheduler.maxFailedRequestRate.threshold", Same, "more failures than this: stuck"),
    ("scheduler.none", Same, "there is no scheduler: whatever is requested is permitted"),
    ("neonvm.requestTimeoutSeconds", Same, "longest time for a patch of a VM, in seconds"),
    ("neonvm.retryFailedRequestSeconds", Same, "pause after a failed patch, in seconds"),
    ("neonvm.maxFailedRequestRate.intervalSeconds", Same, "seconds over which failures count"),
    ("neonvm.maxFailedRequestRate.threshold", Same, "more failures than this: stuck"),
    ("dumpState.port", Same, "TCP port on 127.0.0.1 that serves the state as upstream's agent does"),
    ("dumpState.timeoutSeconds", Same, "longest time to collect the state, in seconds"),
];

/// What the file leaves out.
pub(super) fn complete(converting: &mut Converting) {
    slots_to_bytes(converting, "scaling.computeUnit", SLOT);
    billing(converting);
    let old = "the version of the file had no such key";
    if converting.has("metrics.loadMetricPrefix") {
        // Where the guests of that version serve them, fixed there until v0.18.
        converting.default("metrics.system.port", json!(9100), old);
        converting.default("scheduler.requestAtLeastEverySeconds", json!(5), old);
    }
    let defaults: Value = serde_json::from_str(DEFAULTS).unwrap_or_default();
    converting.defaults(&defaults);
}

/// In v0.10 what was collected was pushed at once: one interval for both, and no limit of a batch.
fn billing(converting: &mut Converting) {
    let client = |key: &str| format!("billing.clients.http.{key}");
    if !converting.has("billing.pushEverySeconds") {
        return;
    }
    let Some(every) = get(&converting.document, &client("pushEverySeconds")).cloned() else { return };
    converting.default("billing.accumulateEverySeconds", every, "what was collected was pushed at once");
    converting.default(&client("maxBatchSize"), json!(1_000_000), "a batch had no limit");
}
