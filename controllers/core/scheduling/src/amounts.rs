//! Amounts of resources: what pods demand, what nodes have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use neonvm_api::pod_annotation;
use neonvm_types::Quantity;

/// Amounts by resource name, exact, in billionths of the resource's unit (CPUs, bytes, pieces).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    /// From a list of quantities. What cannot be read counts as nothing: the API server refuses it beforehand.
    #[must_use]
    pub fn from_amounts(list: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let parsed =
            |text: &ApiQuantity| text.0.parse::<Quantity>().map_or(0, |quantity| quantity.nanos().max(0));
        Self(list.into_iter().flatten().map(|(name, text)| (name.clone(), parsed(text))).collect())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn set(&mut self, name: &str, nanos: i128) {
        self.0.insert(name.to_owned(), nanos);
    }

    /// Without one resource.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// All amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i128)> {
        self.0.iter().map(|(name, nanos)| (name.as_str(), *nanos))
    }

    /// Adds each amount.
    pub fn add(&mut self, other: &Self) {
        for (name, nanos) in &other.0 {
            let own = self.0.entry(name.clone()).or_insert(0);
            *own = own.saturating_add(*nanos);
        }
    }

    /// Takes each amount away; nothing falls below zero.
    pub fn subtract(&mut self, other: &Self) {
        for (name, nanos) in &other.0 {
            let own = self.0.entry(name.clone()).or_insert(0);
            *own = own.saturating_sub(*nanos).max(0);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, nanos) in &other.0 {
            let own = self.0.entry(name.clone()).or_insert(0);
            *own = (*own).max(*nanos);
        }
    }
}

/// What one pod takes of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand(Amounts);

fn requests(container: &Container, pod: &Pod) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::default() };
    // A limit without a request is the request, as the API server defaults it.
    let mut amounts = Amounts::from_amounts(resources.limits.as_ref());
    for (name, nanos) in Amounts::from_amounts(resources.requests.as_ref()).iter() {
        amounts.set(name, nanos);
    }
    resized(container, pod, amounts)
}

/// What counts of a container while a resize of its pod is not done, as kube-scheduler counts it: the larger of the
/// requested and the actual resources; only the latter if the resize is infeasible.
fn resized(container: &Container, pod: &Pod, asked: Amounts) -> Amounts {
    let status = pod.status.as_ref();
    let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let reported = statuses.iter().find(|one| one.name == container.name);
    let in_force = reported.and_then(|one| one.resources.as_ref()?.requests.as_ref());
    let Some(in_force) = in_force else { return asked };
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let never = conditions.iter().any(|one| {
        one.type_ == "PodResizePending" && one.status == "True" && one.reason.as_deref() == Some("Infeasible")
    });
    let mut amounts = asked;
    for (name, nanos) in Amounts::from_amounts(Some(in_force)).iter() {
        let asked = if never { 0 } else { amounts.get(name) };
        amounts.set(name, nanos.max(asked));
    }
    amounts
}

/// CPU and memory in an annotation of a pod, if it has it and it can be read.
pub(crate) fn noted(pod: &Pod, key: &str) -> Option<Amounts> {
    let text = pod.metadata.annotations.as_ref()?.get(key)?;
    let noted: pod_annotation::Usage = serde_json::from_str(text).ok()?;
    let mut amounts = Amounts::default();
    amounts.set("cpu", noted.cpu.nanos().max(0));
    amounts.set("memory", noted.memory.nanos().max(0));
    Some(amounts)
}

pub(crate) fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref().and_then(|status| status.phase.as_deref())
}

/// Whether a pod has ended, and takes nothing of its node any more.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

impl Demand {
    /// What a pod takes: its requests, and for runner pods at least the value of the annotation `vm.neon.tech/usage`.
    #[must_use]
    pub fn from_pod(pod: &Pod) -> Self {
        let mut demand = Self::requested(pod);
        if let Some(usage) = noted(pod, neonvm_api::names::annotation::USAGE) {
            demand.0.raise_to(&usage);
        }
        demand
    }

    /// What a pod requests: the sum over its containers or the largest of its init containers (those that keep running
    /// beside the others are added), what the pod states as a whole, and its overhead.
    #[must_use]
    pub fn requested(pod: &Pod) -> Self {
        let mut amounts = Amounts::default();
        if let Some(spec) = &pod.spec {
            let mut beside = Amounts::default();
            let mut initial = Amounts::default();
            for container in spec.init_containers.iter().flatten() {
                let mut now = requests(container, pod);
                now.add(&beside);
                if container.restart_policy.as_deref() == Some("Always") {
                    beside = now.clone();
                }
                initial.raise_to(&now);
            }
            amounts = beside;
            for container in &spec.containers {
                amounts.add(&requests(container, pod));
            }
            amounts.raise_to(&initial);
            let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            for (name, nanos) in Amounts::from_amounts(whole).iter() {
                amounts.set(name, nanos);
            }
            amounts.add(&Amounts::from_amounts(spec.overhead.as_ref()));
        }
        amounts.set("pods", 1_000_000_000);
        Self(amounts)
    }

    #[must_use]
    pub fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// What the pods of a node take together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(Amounts);

impl Usage {
    pub fn add(&mut self, demand: &Demand) {
        self.0.add(&demand.0);
    }

    /// Takes a pod away.
    pub fn remove(&mut self, demand: &Demand) {
        self.0.subtract(&demand.0);
    }

    /// The amounts of all pods together.
    #[must_use]
    pub fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// What a node offers to pods.
pub(crate) fn allocatable(node: &Node) -> Amounts {
    let status = node.status.as_ref();
    Amounts::from_amounts(status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref())))
}
