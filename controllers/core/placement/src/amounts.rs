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
    pub fn of(list: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let parsed =
            |text: &ApiQuantity| text.0.parse::<Quantity>().map_or(0, |quantity| quantity.nanos().max(0));
        Self(list.into_iter().flatten().map(|(name, text)| (name.clone(), parsed(text))).collect())
    }

    /// One amount, in billionths.
    #[must_use]
    pub fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Sets one amount, in billionths.
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

fn requests(container: &Container) -> Amounts {
    let Some(resources) = &container.resources else { return Amounts::default() };
    // A limit without a request is the request, as the API server defaults it.
    let mut amounts = Amounts::of(resources.limits.as_ref());
    for (name, nanos) in Amounts::of(resources.requests.as_ref()).iter() {
        amounts.set(name, nanos);
    }
    amounts
}

impl Demand {
    /// What a pod takes: the sum over its containers or the largest of its init containers (those that go on running
    /// beside the others are added), what the pod states as a whole, its overhead, and for runner pods at least what
    /// the annotation `vm.neon.tech/usage` says.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let mut amounts = Amounts::default();
        if let Some(spec) = &pod.spec {
            let mut beside = Amounts::default();
            let mut initial = Amounts::default();
            for container in spec.init_containers.iter().flatten() {
                let mut now = requests(container);
                now.add(&beside);
                if container.restart_policy.as_deref() == Some("Always") {
                    beside = now.clone();
                }
                initial.raise_to(&now);
            }
            amounts = beside;
            for container in &spec.containers {
                amounts.add(&requests(container));
            }
            amounts.raise_to(&initial);
            let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            for (name, nanos) in Amounts::of(whole).iter() {
                amounts.set(name, nanos);
            }
            amounts.add(&Amounts::of(spec.overhead.as_ref()));
        }
        let annotations = pod.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(neonvm_api::names::annotation::USAGE));
        if let Some(usage) = text.and_then(|text| serde_json::from_str::<pod_annotation::Usage>(text).ok()) {
            let mut at_least = Amounts::default();
            at_least.set("cpu", usage.cpu.nanos().max(0));
            at_least.set("memory", usage.memory.nanos().max(0));
            amounts.raise_to(&at_least);
        }
        amounts.set("pods", 1_000_000_000);
        Self(amounts)
    }

    /// The amounts.
    #[must_use]
    pub fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// What the pods of a node take together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(Amounts);

impl Usage {
    /// Adds a pod.
    pub fn add(&mut self, demand: &Demand) {
        self.0.add(&demand.0);
    }

    /// Takes a pod away.
    pub fn remove(&mut self, demand: &Demand) {
        self.0.subtract(&demand.0);
    }

    /// The amounts.
    #[must_use]
    pub fn amounts(&self) -> &Amounts {
        &self.0
    }
}

/// What a node offers to pods.
pub(crate) fn allocatable(node: &Node) -> Amounts {
    let status = node.status.as_ref();
    Amounts::of(status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref())))
}
