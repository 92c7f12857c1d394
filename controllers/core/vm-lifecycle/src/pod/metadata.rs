//! Labels and annotations of the pod: those of the VM that may be there, and those that show its size to other programs. Keys that
//! other programs wrote are left alone.
//!
//! Network plugins, container runtimes and admission webhooks take orders from labels and annotations of pods, and an author of VMs
//! need not have the right to write any pod. So what is copied is a list, see [`is_copied`].

use std::collections::BTreeMap;

use neonvm_api::names::{RUNNER_CONTAINER, TRUE, annotation, label};
use neonvm_api::pod_annotation::{PodResources, Usage};
use neonvm_api::{Power, VirtualMachine};

use super::{PlanError, hooks};
use crate::observed::PodView;
use crate::settings::Settings;

/// What to write: a value, or `None` to remove the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub labels: BTreeMap<String, Option<String>>,
    pub annotations: BTreeMap<String, Option<String>>,
}

/// What the pod should carry.
pub(super) struct DesiredMetadata {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Prefix of the labels that Kubernetes recommends for objects of users.
const RECOMMENDED: &str = "app.kubernetes.io/";
const LABELS: [&str; 5] = [
    label::SCALING_ENABLED,
    label::AUTO_MIGRATION_ENABLED,
    label::ALWAYS_MIGRATE,
    label::ENDPOINT_ID,
    label::PROJECT_ID,
];
const ANNOTATIONS: [&str; 7] = [
    annotation::BOUNDS,
    annotation::CONFIG,
    annotation::BILLING_ENDPOINT_ID,
    annotation::SCALING_UNIT,
    annotation::REQUESTED,
    annotation::APPROVED,
    annotation::SAFE_TO_EVICT,
];
/// Annotations of a pod that the controller alone writes.
const OWN: [&str; 2] = [annotation::OVERHEAD, annotation::OVERCOMMIT];

/// Whether a label or annotation of a VM is copied to its pod: ours, what the installation names (a key, or a prefix that ends with
/// `/`), and of labels those that have no prefix, which by the rules of Kubernetes are the user's own, or the recommended one. A
/// name with a dot is none of a user: container runtimes have taken orders by such keys.
fn is_copied(key: &str, is_label: bool, settings: &Settings) -> bool {
    let ours: &[&str] = if is_label { &LABELS } else { &ANNOTATIONS };
    let named = |one: &String| key == one || (one.ends_with('/') && key.starts_with(one.as_str()));
    ours.contains(&key)
        || (is_label && (!key.contains(['/', '.']) || key.starts_with(RECOMMENDED)))
        || settings.pod_metadata.iter().any(named)
}

fn copied(
    all: Option<&BTreeMap<String, String>>,
    is_label: bool,
    settings: &Settings,
) -> BTreeMap<String, String> {
    let all = all.into_iter().flatten().filter(|(key, _)| is_copied(key, is_label, settings));
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The labels and annotations of the VM's pod.
pub(super) fn wanted(vm: &VirtualMachine, settings: &Settings) -> Result<DesiredMetadata, PlanError> {
    let mut labels = copied(vm.metadata.labels.as_ref(), true, settings);
    let name = vm.metadata.name.clone().ok_or(PlanError::Metadata("name"))?;
    let pinned = vm.status.as_ref().is_some_and(|status| status.pinned_by().is_some());
    if vm.spec.is_paused() || pinned {
        // The scheduler starts no migration of it: that would be refused.
        labels.remove(label::AUTO_MIGRATION_ENABLED);
        labels.remove(label::ALWAYS_MIGRATE);
    }
    labels.insert(label::VM_NAME.to_owned(), name);
    labels.insert(label::APP_NAME.to_owned(), label::APP_NAME_VALUE.to_owned());
    let mut annotations = copied(vm.metadata.annotations.as_ref(), false, settings);
    let uses = super::size::uses(vm)?;
    let usage = Usage { cpu: uses.cpu.to_quantity(), memory: uses.memory.to_quantity() };
    let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    annotations.insert(annotation::USAGE.to_owned(), json(serde_json::to_string(&usage)));
    let resources = json(serde_json::to_string(&PodResources::from_spec(&vm.spec)));
    annotations.insert(annotation::RESOURCES.to_owned(), resources);
    let placement = json(serde_json::to_string(&super::placement(vm)));
    annotations.insert(annotation::PLACEMENT.to_owned(), placement);
    if settings.pod_size {
        let overhead = super::size::overhead_note(vm, settings)?;
        annotations.insert(annotation::OVERHEAD.to_owned(), json(serde_json::to_string(&overhead)));
    }
    // Of the VM that runs: a new boot may be on any node.
    if let Some(machine) = vm.status.as_ref().and_then(|status| status.machine.as_ref()) {
        let machine = json(serde_json::to_string(&machine.to_info()));
        annotations.insert(annotation::MACHINE.to_owned(), machine);
    }
    let overcommit = vm.spec.overcommit.as_ref().filter(|_| settings.policy.allows(Power::Overcommit));
    if let Some(overcommit) = overcommit {
        annotations.insert(annotation::OVERCOMMIT.to_owned(), json(serde_json::to_string(overcommit)));
    }
    // The cluster autoscaler evicts a pod without an owning workload only if this annotation permits it.
    annotations.entry(annotation::SAFE_TO_EVICT.to_owned()).or_insert_with(|| TRUE.to_owned());
    annotations.insert(annotation::DEFAULT_CONTAINER.to_owned(), RUNNER_CONTAINER.to_owned());
    if settings.backup_hooks {
        // Those of a VM that the installation has copied go before.
        for (key, value) in hooks::annotations(vm) {
            annotations.entry(key).or_insert(value);
        }
    }
    if let Some(network) = vm.spec.extra_network.as_ref().filter(|network| network.enable) {
        let own = (!network.multus_network.is_empty()).then_some(&network.multus_network);
        if let Some(attachment) = own.or(settings.network_attachment.as_ref()) {
            let value = format!("{attachment}@{}", network.interface);
            annotations.insert(annotation::NETWORKS.to_owned(), value);
        }
    }
    Ok(DesiredMetadata { labels, annotations })
}

/// What has to be written to the pod; `None` if it is as it should be, or the spec cannot be used.
#[must_use]
pub fn change(vm: &VirtualMachine, pod: &PodView, settings: &Settings) -> Option<Metadata> {
    let mut wanted = wanted(vm, settings).ok()?;
    // A pod of an earlier version has no command for them.
    wanted.annotations.retain(|key, _| !hooks::is_one(key) || pod.annotations.contains_key(key));
    // Selectors may depend on a label that an earlier version has copied: it goes when the VM has it no more.
    let stay = |key: &&String, of_vm: &Option<BTreeMap<String, String>>| {
        of_vm.as_ref().is_some_and(|all| all.contains_key(*key))
    };
    let labels = pod.own_labels.iter().filter(|key| !stay(key, &vm.metadata.labels));
    let annotations = pod.own_annotations.iter().filter(|key| !stay(key, &vm.metadata.annotations));
    let ours = OWN.map(str::to_owned);
    let change = Metadata {
        labels: difference(&wanted.labels, &pod.labels, labels),
        annotations: difference(&wanted.annotations, &pod.annotations, annotations.chain(&ours)),
    };
    (change != Metadata::default()).then_some(change)
}

fn difference<'a>(
    wanted: &BTreeMap<String, String>,
    have: &BTreeMap<String, String>,
    own: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Option<String>> {
    let changed = wanted.iter().filter(|(key, value)| have.get(*key) != Some(value));
    let gone = own.filter(|key| !wanted.contains_key(*key) && have.contains_key(*key));
    let changed = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
    changed.chain(gone.map(|key| (key.clone(), None))).collect()
}
