//! Labels and annotations of the pod: the VM's, and those that show its size to other programs. Keys that other programs
//! wrote are left alone.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_api::names::{RUNNER_CONTAINER, TRUE, annotation, label};
use neonvm_api::pod_annotation::{PodResources, Usage};
use neonvm_api::{Power, VirtualMachine};

use super::PlanError;
use crate::observed::PodView;
use crate::settings::Settings;

/// What to write: a value, or `None` to remove the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// What the pod should carry.
pub(super) struct DesiredMetadata {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The labels and annotations of the VM's pod.
pub(super) fn wanted(vm: &VirtualMachine, settings: &Settings) -> Result<DesiredMetadata, PlanError> {
    let mut labels = vm.metadata.labels.clone().unwrap_or_default();
    let name = vm.metadata.name.clone().ok_or(PlanError::Metadata("name"))?;
    if vm.spec.is_paused() {
        // The scheduler starts no migration of it: that would be refused.
        labels.remove(label::AUTO_MIGRATION_ENABLED);
        labels.remove(label::ALWAYS_MIGRATE);
    }
    labels.insert(label::VM_NAME.to_owned(), name);
    labels.insert(label::APP_NAME.to_owned(), label::APP_NAME_VALUE.to_owned());
    let mut annotations = vm.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(annotation::LAST_APPLIED);
    let usage = Usage::from_spec(&vm.spec).map_err(|error| PlanError::SlotSize(error.to_string()))?;
    let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
    annotations.insert(annotation::USAGE.to_owned(), json(serde_json::to_string(&usage)));
    let resources = json(serde_json::to_string(&PodResources::from_spec(&vm.spec)));
    annotations.insert(annotation::RESOURCES.to_owned(), resources);
    annotations.remove(annotation::OVERHEAD);
    if settings.pod_size {
        let overhead = super::size::overhead_note(vm, settings)?;
        annotations.insert(annotation::OVERHEAD.to_owned(), json(serde_json::to_string(&overhead)));
    }
    annotations.remove(annotation::MACHINE);
    // Of the VM that runs: a new boot may be on any node.
    if let Some(machine) = vm.status.as_ref().and_then(|status| status.machine.as_ref()) {
        let machine = json(serde_json::to_string(&machine.to_info()));
        annotations.insert(annotation::MACHINE.to_owned(), machine);
    }
    annotations.remove(annotation::OVERCOMMIT);
    // Further networks are requested in the spec, where the policy applies to them.
    annotations.retain(|key, _| !key.starts_with(annotation::NETWORKS_PREFIX));
    let overcommit = vm.spec.overcommit.as_ref().filter(|_| settings.policy.allows(Power::Overcommit));
    if let Some(overcommit) = overcommit {
        annotations.insert(annotation::OVERCOMMIT.to_owned(), json(serde_json::to_string(overcommit)));
    }
    // The cluster autoscaler evicts a pod without an owning workload only if this annotation permits it.
    annotations.entry(annotation::SAFE_TO_EVICT.to_owned()).or_insert_with(|| TRUE.to_owned());
    annotations.insert(annotation::DEFAULT_CONTAINER.to_owned(), RUNNER_CONTAINER.to_owned());
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
    let wanted = wanted(vm, settings).ok()?;
    let change = Metadata {
        labels: difference(&wanted.labels, &pod.labels, &pod.own_labels),
        annotations: difference(&wanted.annotations, &pod.annotations, &pod.own_annotations),
    };
    (change != Metadata::default()).then_some(change)
}

fn difference(
    wanted: &BTreeMap<String, String>,
    have: &BTreeMap<String, String>,
    own: &BTreeSet<String>,
) -> BTreeMap<String, Option<String>> {
    let changed = wanted.iter().filter(|(key, value)| have.get(*key) != Some(value));
    let gone = own.iter().filter(|key| !wanted.contains_key(*key) && have.contains_key(*key));
    let changed = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
    changed.chain(gone.map(|key| (key.clone(), None))).collect()
}
