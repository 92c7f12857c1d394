//! CEL rules of the schemas: what must hold even where no webhook is called.
//!
//! They use the standard library, and of the Kubernetes libraries only `quantity` (Kubernetes 1.29 and later).
//! A message names the remedy; the path is the API server's.

use serde_json::{Value, json};

use crate::names::{RESERVED_DISK_NAMES, RESERVED_DOMAINS};
use crate::while_off::{FIELDS, Same};

fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({ "rule": rule.into(), "message": message })
}

/// An amount as a comparable quantity; the field holds an integer or a string.
fn quantity(field: &str) -> String {
    format!("quantity(string({field}))")
}

fn not_above(small: &str, large: &str, message: &str) -> Value {
    rule(format!("{}.compareTo({}) <= 0", quantity(small), quantity(large)), message)
}

impl Same {
    fn rule(self, path: &str) -> String {
        let (new, old) = (format!("self.{path}"), format!("oldSelf.{path}"));
        match self {
            Self::Plain => format!("{new} == {old}"),
            Self::Quantity => format!("{}.compareTo({}) == 0", quantity(&new), quantity(&old)),
            Self::OrEmpty => format!(
                "(has({new}) && has({old}) ? {new} == {old} : \
                 (!has({new}) || size({new}) == 0) && (!has({old}) || size({old}) == 0))"
            ),
            Self::OrAbsent => format!("(has({new}) == has({old}) && (!has({new}) || {new} == {old}))"),
        }
    }
}

/// What must hold between the spec and the status. The rules stand at the root of the object, because only there are both seen.
pub(crate) fn virtual_machine() -> Value {
    let off = "!has(oldSelf.status) || !has(oldSelf.status.podName) || oldSelf.status.podName == ''";
    let rules = FIELDS.iter().map(|field| {
        let path = format!("spec.{}", field.path);
        json!({
            "rule": format!("{off} || {}", field.same.rule(&path)),
            "message": "cannot change while the VM has a pod; stop the VM first, or change it at its next start",
            "fieldPath": format!(".{path}"),
        })
    });
    rules.collect()
}

fn set_once(field: &str) -> Value {
    rule(
        format!("!has(oldSelf.{field}) || (has(self.{field}) && self.{field} == oldSelf.{field})"),
        &format!("{field} can be set once and not changed; put the old value back"),
    )
}

pub(crate) fn cpus() -> Value {
    json!([
        rule(
            format!("{}.compareTo(quantity('0')) > 0", quantity("self.min")),
            "min must be above 0; the smallest sensible value is 50m"
        ),
        rule(
            format!("{}.compareTo(quantity('4294967')) <= 0", quantity("self.max")),
            "max must not be above 4294967; is the unit right?"
        ),
        not_above("self.min", "self.use", "use must not be below min; raise use or lower min"),
        not_above("self.use", "self.max", "use must not be above max; lower use or raise max"),
    ])
}

pub(crate) fn memory_slots() -> Value {
    json!([
        rule("self.min <= self.use", "use must not be below min; raise use or lower min"),
        rule("self.use <= self.max", "use must not be above max; lower use or raise max"),
    ])
}

pub(crate) fn memory_slot_size() -> Value {
    json!([rule(
        concat!(
            "quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",
            " && quantity(string(self)).asInteger() % 8388608 == 0"
        ),
        "memorySlotSize must be a multiple of 8Mi; write for example 128Mi or 1Gi"
    ),])
}

pub(crate) fn guest() -> Value {
    json!([rule(
        concat!(
            "!has(self.ports) || self.ports.all(p, !has(p.name) || p.name == ''",
            " || self.ports.exists_one(q, has(q.name) && q.name == p.name))"
        ),
        "names of ports must differ; rename one or leave its name out"
    ),])
}

pub(crate) fn port_name() -> Value {
    json!([rule("self != 'qmp'", "the name qmp is taken by the runner; choose another")])
}

pub(crate) fn virtual_machine_spec() -> Value {
    json!([
        set_once("cpuScalingMode"),
        set_once("targetArchitecture"),
        rule(
            "self.qmp != self.qmpManual && self.qmp != self.runnerPort && self.qmpManual != self.runnerPort",
            "qmp, qmpManual and runnerPort must differ; leave them out to get the defaults"
        ),
        rule(
            concat!(
                "!has(self.guest.ports) || self.guest.ports.all(p, p.protocol == 'UDP'",
                " || !(p.port in [self.qmp, self.qmpManual, self.runnerPort]))"
            ),
            "a guest port must not be one of qmp, qmpManual and runnerPort; choose another port"
        ),
        rule(
            concat!(
                "!has(self.disks) || self.disks.all(d, has(d.emptyDisk) || has(d.configMap) || has(d.secret)",
                " || has(d.tmpfs) || has(d.persistentVolumeClaim)",
                " || has(self.volumeClaimTemplates) && self.volumeClaimTemplates.exists(t, t.metadata.name == d.name))"
            ),
            concat!(
                "a disk needs one of emptyDisk, configMap, secret, tmpfs and persistentVolumeClaim, ",
                "or an entry of volumeClaimTemplates with its name"
            )
        ),
        rule(
            concat!(
                "!has(self.volumeClaimTemplates) || self.volumeClaimTemplates.all(t,",
                " self.volumeClaimTemplates.exists_one(o, o.metadata.name == t.metadata.name))"
            ),
            "names of volumeClaimTemplates must differ; rename one"
        ),
        rule(
            concat!(
                "!has(self.diskLimits) || self.diskLimits.all(l, l.disk == 'rootdisk' || has(self.disks) && self.disks.exists(d,",
                " d.name == l.disk && !has(d.configMap) && !has(d.secret) && !has(d.tmpfs)))"
            ),
            "diskLimits are for an emptyDisk of disks, one on a claim, or rootdisk; correct the name, or remove the limit"
        ),
    ])
}

pub(crate) fn disk() -> Value {
    json!([
        rule(
            concat!(
                "(has(self.emptyDisk) ? 1 : 0) + (has(self.configMap) ? 1 : 0)",
                " + (has(self.secret) ? 1 : 0) + (has(self.tmpfs) ? 1 : 0)",
                " + (has(self.persistentVolumeClaim) ? 1 : 0) <= 1"
            ),
            "only one of emptyDisk, configMap, secret, tmpfs and persistentVolumeClaim can be set"
        ),
        rule(
            "!has(self.emptyDisk) && !has(self.persistentVolumeClaim) || size(self.name) <= 16",
            "the name of an emptyDisk or of a disk on a claim must not be longer than 16 characters, the length of a file system label"
        ),
    ])
}

/// As `validate`, except for amounts at the edges that the schema has. Without `string(…)`, whose result counts as a text as long as a
/// request on servers of 1.31; our own pricing does not.
pub(crate) fn disk_limit() -> Value {
    let within = |field: &str| {
        let limit = |amount: &str| format!("quantity(self.{field}).compareTo(quantity('{amount}'))");
        let parent =
            field.rsplit_once('.').map_or(String::new(), |(parent, _)| format!("!has(self.{parent}) || "));
        rule(
            format!("{parent}!has(self.{field}) || {} >= 0 && {} <= 0", limit("64Ki"), limit("100Gi")),
            &format!("{field} must be between 64Ki and 100Gi a second; write for example 50Mi"),
        )
    };
    json!([
        rule(
            "has(self.iops) || has(self.bandwidth)",
            "a limit must have iops, bandwidth or both; remove it to limit nothing"
        ),
        within("bandwidth"),
        within("burst.bandwidth"),
        rule(
            "!has(self.burst) || has(self.burst.iops) || has(self.burst.bandwidth)",
            "a burst must have iops, bandwidth or both; remove it to have no burst"
        ),
        rule(
            "!has(self.burst) || !has(self.burst.iops) || has(self.iops) && self.iops < self.burst.iops",
            "burst.iops must be above iops, which must be set; raise it or set the limit"
        ),
        rule(
            "!has(self.burst) || !has(self.burst.bandwidth) || has(self.bandwidth) \
             && quantity(self.bandwidth).compareTo(quantity(self.burst.bandwidth)) < 0",
            "burst.bandwidth must be above bandwidth, which must be set; raise it or set the limit"
        ),
    ])
}

pub(crate) fn disk_name() -> Value {
    let reserved: Vec<String> = RESERVED_DISK_NAMES.iter().map(|name| format!("'{name}'")).collect();
    json!([rule(
        format!("!(self in [{}])", reserved.join(", ")),
        "this name is taken by the runner; choose another"
    )])
}

/// The same as `validate`: certificates of VMs do not carry names of services.
pub(crate) fn tls_server_name() -> Value {
    let domains: Vec<String> = RESERVED_DOMAINS.iter().map(|domain| domain.replace('.', "[.]")).collect();
    let shown: Vec<String> = RESERVED_DOMAINS.iter().map(|domain| format!("*.{domain}")).collect();
    json!([rule(
        format!("!self.matches('(?i)(^|[.])({})[.]*$')", domains.join("|")),
        &format!(
            "serverName is a name of the services of the cluster; choose one outside of {}",
            shown.join(" and ")
        )
    )])
}

/// The only permitted change of a migration is to cancel it.
pub(crate) fn migration() -> Value {
    const MESSAGE: &str =
        "the spec of a migration cannot change; set cancel or delete it, and create another migration";
    let always = [
        "vmName",
        "preventMigrationToSameHost",
        "completionTimeout",
        "incremental",
        "allowPostCopy",
        "autoConverge",
        "maxBandwidth",
    ];
    // Clients leave out what is empty, so the two are the same.
    let sized = ["nodeSelector", "policy"];
    let optional = ["nodeAffinity", "downtimeLimitMs", "channels", "compression", "postCopy", "onTimeout"];
    let same = |name: &&str| format!("self.{name} == oldSelf.{name}");
    let same_or_absent = |name: &&str| {
        let (new, old) = (format!("self.{name}"), format!("oldSelf.{name}"));
        format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
    };
    let same_or_empty = |name: &&str| {
        let (new, old) = (format!("self.{name}"), format!("oldSelf.{name}"));
        format!(
            "has({new}) && has({old}) ? {new} == {old} : \
             (!has({new}) || size({new}) == 0) && (!has({old}) || size({old}) == 0)"
        )
    };
    let texts = always.iter().map(same).chain(sized.iter().map(same_or_empty));
    let texts = texts.chain(optional.iter().map(same_or_absent));
    let mut all: Vec<Value> = texts.map(|text| rule(text, MESSAGE)).collect();
    let priority =
        "(has(self.priority) ? self.priority : 0) == (has(oldSelf.priority) ? oldSelf.priority : 0)";
    all.push(rule(priority, MESSAGE));
    let once = "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)";
    all.push(rule(once, "what was called off stays so; create another migration"));
    all.into()
}

pub(crate) fn scale_target() -> Value {
    json!([rule(
        "has(self.kind) && self.kind != '' && has(self.name) && self.name != ''",
        "kind and name of the object to scale must be set"
    )])
}

pub(crate) fn pod_autoscaler() -> Value {
    json!([
        rule(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be above maxReplicas; lower it or raise maxReplicas"
        ),
        rule("has(self.metricsSources)", "metricsSources must have at least one entry"),
        rule(
            concat!(
                "self.scalingStrategy != 'HPA' || !has(self.subTargetSelector)",
                " || !has(self.subTargetSelector.roleName) || self.subTargetSelector.roleName == ''"
            ),
            "strategy HPA cannot scale a single role; choose KPA or APA, or leave out subTargetSelector"
        ),
        rule(
            concat!(
                "!has(self.panicWindowSeconds) || self.panicWindowSeconds",
                " <= (has(self.observeWindowSeconds) ? self.observeWindowSeconds : 180)"
            ),
            "panicWindowSeconds must not be above observeWindowSeconds (180 when absent)"
        ),
        rule(
            "self.scalingStrategy != 'HPA' || !(has(self.forecast) || has(self.syncPeriodSeconds))",
            "strategy HPA takes no forecast and no syncPeriodSeconds; choose KPA or APA, or leave them out"
        ),
    ])
}

pub(crate) fn schedule() -> Value {
    json!([
        rule(
            "self.startTime != self.endTime",
            "endTime must differ from startTime; a window that ends before it starts ends on the next day"
        ),
        rule(
            "has(self.minReplicas) || has(self.maxReplicas)",
            "a window must set minReplicas, maxReplicas or both"
        ),
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be above maxReplicas; lower it or raise maxReplicas"
        ),
    ])
}

pub(crate) fn metric_source() -> Value {
    json!([
        rule(
            concat!(
                "self.metricSourceType != 'pod' || (has(self.protocolType) && has(self.port) && self.port != ''",
                " && has(self.path) && self.path != '')"
            ),
            "a metric of type pod needs protocolType, port and path"
        ),
        rule(
            concat!(
                "!(self.metricSourceType in ['external', 'domain']) || !has(self.endpoint)",
                " || self.endpoint == '' || (has(self.protocolType) && has(self.path) && self.path != '')"
            ),
            "a metric with an endpoint needs protocolType and path"
        ),
        rule(
            "self.metricSourceType != 'resource' || self.targetMetric in ['cpu', 'memory']",
            "a metric of type resource must be cpu or memory"
        ),
        rule(
            concat!(
                "self.metricSourceType != 'resource' || !(has(self.protocolType)",
                " || (has(self.port) && self.port != '') || (has(self.path) && self.path != '')",
                " || (has(self.endpoint) && self.endpoint != ''))"
            ),
            "a metric of type resource takes no protocolType, endpoint, port or path; leave them out"
        ),
        rule(
            "!has(self.targetType) || self.targetType != 'Utilization' || self.metricSourceType == 'resource'",
            "targetType Utilization is for a metric of type resource; use AverageValue or Value"
        ),
        rule(
            // A word that CEL keeps for itself; Kubernetes writes it between underscores.
            "!has(self.quantile) || !(has(self.__function__) || has(self.seriesAggregation))",
            "a quantile takes no function and no seriesAggregation; leave them out"
        ),
        rule(
            concat!(
                "!(has(self.quantile) || has(self.__function__)) || self.metricSourceType == 'pod'",
                " || (has(self.endpoint) && self.endpoint != '')"
            ),
            "quantile and function are for metrics read from pods or from an endpoint; leave them out"
        ),
    ])
}

pub(crate) fn target_value() -> Value {
    json!([rule("double(self) > 0.0", "targetValue must be a number above 0, such as \"50\"")])
}
