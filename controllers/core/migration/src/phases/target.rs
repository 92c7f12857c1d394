//! The target pod: the VM's pod, elsewhere.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm,
    PodAntiAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use neonvm_api::names::{RUNNER_CONTAINER, VM_API_VERSION, annotation, label};
use neonvm_api::pod_annotation::Usage;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use neonvm_types::runner_protocol::SizeRequest;

use neonvm_core_vm_lifecycle::Settings;
use neonvm_core_vm_lifecycle::growth;
use neonvm_core_vm_lifecycle::pod::{self, PlanError};

/// A target for which no pod can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Because of the VM.
    #[error(transparent)]
    Machine(#[from] PlanError),
    /// The server left something out.
    #[error("the migration has no {0}")]
    Metadata(&'static str),
}

/// The target pod of a migration that leaves `source_node`; its runner is started for a guest of `size`.
///
/// # Errors
/// If the VM's pod cannot be planned, or an object was never stored.
pub fn plan(
    vm: &VirtualMachine,
    migration: &VirtualMachineMigration,
    name: &str,
    source_node: &str,
    size: SizeRequest,
    settings: &Settings,
) -> Result<Pod, TargetError> {
    let mut pod = pod::plan(vm, name, settings)?;
    let machine = OwnerReference { controller: None, block_owner_deletion: None, ..pod::owner(vm)? };
    let meta = &migration.metadata;
    let mover = OwnerReference {
        api_version: VM_API_VERSION.to_owned(),
        kind: "VirtualMachineMigration".to_owned(),
        name: meta.name.clone().ok_or(TargetError::Metadata("name"))?,
        uid: meta.uid.clone().ok_or(TargetError::Metadata("uid"))?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    pod.metadata.owner_references = Some(vec![mover, machine]);
    let guest = pod::size::larger(size, room(vm, migration)?);
    let usage = Usage { cpu: guest.cpu.to_quantity(), memory: guest.memory.to_quantity() };
    let usage = serde_json::to_string(&usage).unwrap_or_default();
    pod.metadata.annotations.get_or_insert_default().insert(annotation::USAGE.to_owned(), usage);
    let spec = pod.spec.get_or_insert_default();
    if settings.pod_size {
        let size = pod::size(vm, guest, true, settings);
        for container in spec.containers.iter_mut().filter(|one| one.name == RUNNER_CONTAINER) {
            let resources = container.resources.take().unwrap_or_default();
            container.resources = Some(pod::size::with(&resources, &size));
        }
    }
    let affinity = spec.affinity.get_or_insert_default();
    let spec = &migration.spec;
    nodes(affinity.node_affinity.get_or_insert_default(), spec.node_affinity.as_ref());
    let elsewhere =
        spec.prevent_migration_to_same_host.then_some(source_node).filter(|node| !node.is_empty());
    let selector: Vec<NodeSelectorRequirement> =
        spec.node_selector.iter().map(|(key, value)| requirement(key, "In", value)).collect();
    for term in terms(affinity) {
        if !matches_nothing(term) {
            term.match_expressions.get_or_insert_default().extend(selector.iter().cloned());
            let fields = elsewhere.map(|node| requirement("metadata.name", "NotIn", node));
            if let Some(field) = fields {
                term.match_fields.get_or_insert_default().push(field);
            }
        }
    }
    // A rule about other pods would stay with this one, and hold for the next target as well.
    if spec.prevent_migration_to_same_host && elsewhere.is_none() {
        apart(affinity, vm.metadata.name.as_deref().unwrap_or_default());
    }
    Ok(pod)
}

/// What the target reserves beside the size of its runner: what the VM has, including memory that is still being released and continues
/// to be released at the target; what its spec requests; and the size that it is migrated for, within its bounds.
pub(super) fn room(
    vm: &VirtualMachine,
    migration: &VirtualMachineMigration,
) -> Result<SizeRequest, PlanError> {
    let guest = pod::size::uses(vm)?;
    let Some(growth) = growth::size_of(migration) else { return Ok(guest) };
    let spec = &vm.spec.guest;
    let slot = spec.slot_size().map_err(|error| PlanError::SlotSize(error.to_string()))?;
    let cpu = growth.cpu.min(spec.cpus.max);
    let memory = growth.memory.min(slot.saturating_mul(u32::from(spec.memory_slots.max)));
    Ok(pod::size::larger(guest, SizeRequest { cpu, memory }))
}

fn requirement(key: &str, operator: &str, value: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    }
}

fn matches_nothing(term: &NodeSelectorTerm) -> bool {
    term.match_expressions.as_ref().is_none_or(Vec::is_empty)
        && term.match_fields.as_ref().is_none_or(Vec::is_empty)
}

fn terms(affinity: &mut Affinity) -> &mut Vec<NodeSelectorTerm> {
    let nodes = affinity.node_affinity.get_or_insert_default();
    &mut nodes.required_during_scheduling_ignored_during_execution.get_or_insert_default().node_selector_terms
}

/// Both the VM's rules and the migration's: terms are alternatives, so each of one is joined with each of the other.
fn nodes(own: &mut NodeAffinity, more: Option<&NodeAffinity>) {
    let Some(more) = more else { return };
    if let Some(preferred) = &more.preferred_during_scheduling_ignored_during_execution {
        let all = own.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        all.extend(preferred.iter().cloned());
    }
    let Some(required) = &more.required_during_scheduling_ignored_during_execution else { return };
    let ours = own.required_during_scheduling_ignored_during_execution.take().unwrap_or_default();
    let sound = |terms: &[NodeSelectorTerm]| -> Vec<NodeSelectorTerm> {
        terms.iter().filter(|term| !matches_nothing(term)).cloned().collect()
    };
    let (ours, theirs) = (sound(&ours.node_selector_terms), sound(&required.node_selector_terms));
    let mut joined: Vec<NodeSelectorTerm> =
        ours.iter().flat_map(|one| theirs.iter().map(|other| join(one, other))).collect();
    if joined.is_empty() {
        // No alternative is left: one that matches no node.
        joined.push(NodeSelectorTerm::default());
    }
    own.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: joined });
}

fn join(one: &NodeSelectorTerm, other: &NodeSelectorTerm) -> NodeSelectorTerm {
    let both = |a: &Option<Vec<NodeSelectorRequirement>>, b: &Option<Vec<NodeSelectorRequirement>>| {
        let all: Vec<_> = a.iter().chain(b).flatten().cloned().collect();
        (!all.is_empty()).then_some(all)
    };
    NodeSelectorTerm {
        match_expressions: both(&one.match_expressions, &other.match_expressions),
        match_fields: both(&one.match_fields, &other.match_fields),
    }
}

/// Not where a pod of the same VM is.
fn apart(affinity: &mut Affinity, vm: &str) {
    let labels = [(label::VM_NAME.to_owned(), vm.to_owned())].into();
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(labels), match_expressions: None }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let rules = affinity.pod_anti_affinity.get_or_insert_with(PodAntiAffinity::default);
    rules.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
}
