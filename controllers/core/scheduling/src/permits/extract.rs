//! From the cluster's objects to what decisions depend on. Nothing here fails: what is wrong is noted, and something safe stands
//! in its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::migration::MigrationPhase;
use neonvm_api::names::{TRUE, VM_API_VERSION, annotation, label};
use neonvm_api::pod_annotation::{Placement, PodResources};
use neonvm_api::virtual_machine::Overcommit;
use neonvm_api::{VirtualMachineMigration, VmInfo};
use neonvm_types::{Bytes, NamespacedName, Quantity, Resources};

use super::{MigrationRole, MigrationSeen, NodeSeen, Pair, PodSeen, Settings, VmSeen};
use crate::amounts::{allocatable, noted, phase};
use crate::{Amounts, Demand};

const MILLI: i128 = 1_000_000;
const UNIT: i128 = 1_000_000_000;
/// Factors of more than a million are nonsense.
const MOST_OVERCOMMIT: i128 = 1_000_000_000;

type Map = BTreeMap<String, String>;

fn up(nanos: i128, unit: i128) -> u64 {
    let nanos = nanos.max(0);
    let whole = nanos / unit + i128::from(nanos % unit != 0);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

fn down(nanos: i128, unit: i128) -> u64 {
    u64::try_from(nanos.max(0) / unit).unwrap_or(u64::MAX)
}

/// Without CPU and memory.
fn rest(amounts: &Amounts) -> Amounts {
    let mut rest = amounts.clone();
    rest.remove("cpu");
    rest.remove("memory");
    rest
}

impl NodeSeen {
    /// What decisions depend on. Its heartbeat is not in it.
    #[must_use]
    pub fn from_node(node: &Node) -> Self {
        let offered = allocatable(node);
        let meta = &node.metadata;
        let labels = meta.labels.clone().unwrap_or_default();
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let conditions =
            node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let unready = conditions.iter().any(|one| one.type_ == "Ready" && one.status != "True");
        let closed = match (cordoned, unready) {
            (true, _) => Some("is cordoned".to_owned()),
            (_, true) => Some("is not ready".to_owned()),
            _ => None,
        };
        let conditions = conditions.iter().filter(|one| one.type_ == "Ready").map(|one| {
            k8s_openapi::api::core::v1::NodeCondition {
                type_: one.type_.clone(),
                status: one.status.clone(),
                ..Default::default()
            }
        });
        let object = Node {
            metadata: ObjectMeta {
                name: meta.name.clone(),
                labels: meta.labels.clone(),
                annotations: only(meta, annotation::HOST_FACTS),
                ..ObjectMeta::default()
            },
            spec: node.spec.as_ref().map(|spec| NodeSpec {
                taints: spec.taints.clone(),
                unschedulable: spec.unschedulable,
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus { conditions: Some(conditions.collect()), ..NodeStatus::default() }),
        };
        Self {
            name: meta.name.clone().unwrap_or_default(),
            total: Pair::new(down(offered.get("cpu"), MILLI), down(offered.get("memory"), UNIT)),
            other: Some(rest(&offered)),
            closed,
            labels,
            object: Some(Arc::new(object)),
        }
    }
}

impl PodSeen {
    /// What decisions depend on, without what its annotations claim beyond what can be true.
    #[must_use]
    pub fn from_pod(pod: &Pod, settings: &Settings) -> Self {
        let meta = &pod.metadata;
        let demand = Demand::requested(pod);
        let amounts = demand.amounts();
        let spec = pod.spec.as_ref();
        let ended = crate::has_ended(pod);
        let node = spec.and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
        let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|all| !all.is_empty());
        let mut problems = Vec::new();
        let vm = vm(pod, &mut problems);
        let Sizes { usage, requests, overhead } = Sizes::from_pod(pod, amounts);
        let waits = node.is_none() && !ended && !gated && meta.deletion_timestamp.is_none();
        let mut object = outline(pod);
        if vm.is_some() && node.is_some() {
            unpin(pod, &mut object, &mut problems);
        }
        let object = Some(Arc::new(object));
        let seen = Self {
            pod: NamespacedName::new(
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            expects: spec.filter(|_| waits && vm.is_none()).and_then(only_node),
            waits,
            starting: !matches!(phase(pod), Some("Running" | "Succeeded" | "Failed")),
            node,
            ended,
            deleting: meta.deletion_timestamp.is_some(),
            usage,
            requests,
            overhead,
            other: rest(amounts),
            vm,
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            object,
            problems,
        };
        seen.bounded(settings)
    }
}

/// The node to which a pod is bound by its name, as the DaemonSet controller does it.
fn only_node(spec: &PodSpec) -> Option<String> {
    let required = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &required.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let [term] = terms.as_slice() else { return None };
    let fields = term.match_fields.as_deref()?;
    let one = fields.iter().find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match one.values.as_deref()? {
        [name] => Some(name.clone()),
        _ => None,
    }
}

struct Sizes {
    usage: Pair<u64>,
    requests: Pair<u64>,
    overhead: Pair<u64>,
}

impl Sizes {
    /// A VM's own size is in an annotation, and what is beside it in another; the requests of its pod are both together, so each
    /// counts once. Without the annotations the requests are the size.
    fn from_pod(pod: &Pod, requests: &Amounts) -> Self {
        let pair =
            |amounts: &Amounts| Pair::new(up(amounts.get("cpu"), MILLI), up(amounts.get("memory"), UNIT));
        let requests = pair(requests);
        match noted(pod, annotation::USAGE) {
            None => Self { usage: requests, requests: Pair::default(), overhead: Pair::default() },
            Some(usage) => {
                let overhead = noted(pod, annotation::OVERHEAD);
                let overhead = overhead.map_or(Pair::default(), |overhead| pair(&overhead));
                Self { usage: pair(&usage), requests, overhead }
            }
        }
    }
}

/// The parts of a pod that rules about placement read.
fn outline(pod: &Pod) -> Pod {
    let ports = |container: &Container| Container {
        name: container.name.clone(),
        ports: container.ports.clone(),
        ..Container::default()
    };
    let claims = |spec: &PodSpec| -> Option<Vec<Volume>> {
        let all = spec.volumes.iter().flatten().filter(|volume| volume.persistent_volume_claim.is_some());
        let all: Vec<Volume> = all.cloned().collect();
        (!all.is_empty()).then_some(all)
    };
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: only(&pod.metadata, annotation::MACHINE),
            ..ObjectMeta::default()
        },
        spec: pod.spec.as_ref().map(|spec| PodSpec {
            node_selector: spec.node_selector.clone(),
            affinity: spec.affinity.clone(),
            tolerations: spec.tolerations.clone(),
            volumes: claims(spec),
            containers: spec.containers.iter().filter(|all| all.ports.is_some()).map(ports).collect(),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// One annotation of an object, if it has it.
fn only(meta: &ObjectMeta, key: &str) -> Option<Map> {
    let value = meta.annotations.as_ref()?.get(key)?;
    Some([(key.to_owned(), value.clone())].into())
}

/// Gives the pod of a VM that has a node the rules of its VM, instead of its own: those may be of the migration that brought the VM
/// there, and restrict neither the next one nor other pods.
fn unpin(pod: &Pod, outline: &mut Pod, problems: &mut Vec<String>) {
    let annotations = pod.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(annotation::PLACEMENT)) else { return };
    match serde_json::from_str::<Placement>(text) {
        Ok(placement) => placement.put(outline.spec.get_or_insert_default()),
        Err(error) => problems.push(format!("annotation {}: {error}", annotation::PLACEMENT)),
    }
}

/// The VM in a pod: by the owner, or by the label that its controller writes.
fn vm(pod: &Pod, problems: &mut Vec<String>) -> Option<VmSeen> {
    let meta = &pod.metadata;
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let of_ours = |kind: &str| {
        let kind = kind.to_owned();
        owners.iter().find(move |owner| owner.api_version == VM_API_VERSION && owner.kind == kind)
    };
    let owner = of_ours("VirtualMachine");
    let labels = meta.labels.as_ref();
    let named = labels.and_then(|labels| labels.get(label::VM_NAME));
    let name = named.cloned().or_else(|| owner.map(|owner| owner.name.clone()))?;
    let annotations = meta.annotations.as_ref();
    let on = |key: &str| labels.and_then(|map| map.get(key)).is_some_and(|value| value == TRUE);
    let (max, slot_size) = bounds(pod, problems);
    let always_migrate = on(label::ALWAYS_MIGRATE);
    let migration = of_ours("VirtualMachineMigration").map(|owner| {
        let role = if owner.controller == Some(true) { MigrationRole::Target } else { MigrationRole::Source };
        (role, owner.uid.clone())
    });
    let target = matches!(migration, Some((MigrationRole::Target, _)));
    let source = migration.is_some() && !target;
    Some(VmSeen {
        name,
        uid: owner.map(|owner| owner.uid.clone()),
        scaled: on(label::SCALING_ENABLED),
        max,
        slot_size,
        overcommit: overcommit(annotations, problems),
        migratable: source || (!target && (on(label::AUTO_MIGRATION_ENABLED) || always_migrate)),
        always_migrate,
        migration,
        unit: resources(annotations, annotation::SCALING_UNIT, problems)
            .filter(|unit| unit.validate_non_zero().is_ok()),
        requested: resources(annotations, annotation::REQUESTED, problems),
        approved: resources(annotations, annotation::APPROVED, problems),
    })
}

/// Upper bound and slot size: with the bounds annotation, or without if that is wrong.
fn bounds(pod: &Pod, problems: &mut Vec<String>) -> (Option<Resources>, Option<Bytes>) {
    let error = match VmInfo::from_pod(pod) {
        Ok(info) => return (Some(info.max()), Some(info.mem.slot_size)),
        Err(error) => error,
    };
    problems.push(error.to_string());
    let annotations = pod.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(annotation::RESOURCES));
    let plain = text.and_then(|text| serde_json::from_str::<PodResources>(text).ok());
    let Some(plain) = plain else { return (None, None) };
    let Some(slot_size) = Bytes::try_from(plain.memory_slot_size).ok().filter(|size| *size != Bytes::ZERO)
    else {
        return (None, None);
    };
    let mem = slot_size.saturating_mul(u32::from(plain.memory_slots.max));
    (Some(Resources::new(plain.cpus.max, mem)), Some(slot_size))
}

fn resources(annotations: Option<&Map>, key: &str, problems: &mut Vec<String>) -> Option<Resources> {
    let text = annotations?.get(key)?;
    match serde_json::from_str(text) {
        Ok(resources) => Some(resources),
        Err(error) => {
            problems.push(format!("annotation {key}: {error}"));
            None
        }
    }
}

fn overcommit(annotations: Option<&Map>, problems: &mut Vec<String>) -> Pair<u64> {
    let Some(text) = annotations.and_then(|all| all.get(annotation::OVERCOMMIT)) else {
        return Pair::both(1000);
    };
    let all: Overcommit = match serde_json::from_str(text) {
        Ok(all) => all,
        Err(error) => {
            problems.push(format!("annotation {}: {error}", annotation::OVERCOMMIT));
            return Pair::both(1000);
        }
    };
    let mut factor = |which: &str, quantity: Option<Quantity>| match quantity.map(Quantity::nanos) {
        None => 1000,
        Some(nanos) if (MILLI..=MOST_OVERCOMMIT * MILLI).contains(&nanos) => down(nanos, MILLI),
        Some(_) => {
            let key = annotation::OVERCOMMIT;
            problems.push(format!("annotation {key}: {which} is out of range; taken as 1"));
            1000
        }
    };
    Pair::new(factor("cpu", all.cpu), factor("memory", all.memory))
}

impl MigrationSeen {
    /// What decisions depend on.
    #[must_use]
    pub fn from_migration(migration: &VirtualMachineMigration) -> Self {
        let meta = &migration.metadata;
        let phase = migration.status.as_ref().and_then(|status| status.phase);
        Self {
            migration: NamespacedName::new(
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            vm: migration.spec.vm_name.clone(),
            ours: meta.labels.as_ref().is_some_and(|all| all.contains_key(label::CREATED_BY_SCHEDULER)),
            pending: matches!(phase, None | Some(MigrationPhase::Pending)),
            placed: migration.status.as_ref().is_some_and(|status| !status.target_node.is_empty()),
            ended: matches!(phase, Some(MigrationPhase::Succeeded | MigrationPhase::Failed)),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}
