//! Resources of a pod's containers, and what they come to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use neonvm_types::Quantity;
use serde::{Deserialize, Serialize};

/// CPU in thousandths, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory: u64,
}

impl Need {
    /// The sum, capped.
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    fn or_more(self, other: Self) -> Self {
        Self { cpu_milli: self.cpu_milli.max(other.cpu_milli), memory: self.memory.max(other.memory) }
    }
}

/// What holds a pod to its size; none: nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What it gets when CPUs are short, in thousandths of one.
    pub cpu_request_milli: u64,
    pub cpu_milli: Option<u64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// By container.
    main: BTreeMap<String, ResourceRequirements>,
    init: BTreeMap<String, ResourceRequirements>,
    /// Of the pod as a whole; they count before those of its containers.
    whole: Option<ResourceRequirements>,
    overhead: Need,
}

/// The requests of a specification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRequests {
    pub resources: Resources,
    /// Container and resource, where a resize needs a restart.
    restarts: Vec<(String, String)>,
}

impl PodRequests {
    /// From the object.
    pub fn from_pod(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let each = |containers: &[Container]| -> BTreeMap<String, ResourceRequirements> {
            let one = |container: &Container| {
                (container.name.clone(), container.resources.clone().unwrap_or_default())
            };
            containers.iter().map(one).collect()
        };
        let policies = spec.containers.iter().flat_map(|container| {
            let all = container.resize_policy.iter().flatten();
            let restarting = all.filter(|policy| policy.restart_policy == "RestartContainer");
            restarting.map(|policy| (container.name.clone(), policy.resource_name.clone()))
        });
        Self {
            restarts: policies.collect(),
            resources: Resources {
                main: each(&spec.containers),
                init: each(spec.init_containers.as_deref().unwrap_or_default()),
                whole: spec.resources.clone(),
                overhead: need(spec.overhead.as_ref()),
            },
        }
    }

    /// A container that would have to be restarted to get its new size.
    pub(crate) fn restarting(&self, old: &Resources) -> Option<&str> {
        let restarting = self.restarts.iter().find(|(container, resource)| {
            let of = |resources: &Resources| {
                let own = resources.container(container).cloned().unwrap_or_default();
                [own.requests, own.limits].map(|list| list.and_then(|list| list.get(resource).cloned()))
            };
            of(&self.resources) != of(old)
        });
        restarting.map(|(container, _)| container.as_str())
    }
}

impl Resources {
    pub fn container(&self, name: &str) -> Option<&ResourceRequirements> {
        self.main.get(name).or_else(|| self.init.get(name))
    }

    /// Those of the pod as a whole, if it has any.
    pub fn whole(&self) -> Option<&ResourceRequirements> {
        self.whole.as_ref()
    }

    /// What the pod requests of its node: its containers together, or its largest init container.
    pub fn need(&self) -> Need {
        let of = |resources: &ResourceRequirements| need(resources.requests.as_ref());
        let sum = self.main.values().map(of).fold(Need::default(), Need::plus);
        let most = self.init.values().map(of).fold(sum, Need::or_more);
        let own = self.whole.as_ref().and_then(|whole| whole.requests.as_ref());
        let or = |name: &str, other: u64| of_name(own, name).unwrap_or(other);
        let given = Need { cpu_milli: or("cpu", most.cpu_milli), memory: or("memory", most.memory) };
        given.plus(self.overhead)
    }

    /// What holds the pod to its size: the sum of the limits of its containers if each has one.
    pub fn limits(&self) -> Limits {
        let limit = |name: &str, overhead: u64| -> Option<u64> {
            let whole = self.whole.as_ref().and_then(|whole| of_name(whole.limits.as_ref(), name));
            let of = |resources: &ResourceRequirements| of_name(resources.limits.as_ref(), name);
            let all = || -> Option<u64> {
                let sum =
                    self.main.values().map(of).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))?;
                self.init.values().map(of).try_fold(sum, |most, one| Some(most.max(one?)))
            };
            let limit = whole.or_else(all).filter(|limit| *limit > 0)?;
            Some(limit.saturating_add(overhead))
        };
        Limits {
            cpu_request_milli: self.need().cpu_milli,
            cpu_milli: limit("cpu", self.overhead.cpu_milli),
            memory: limit("memory", self.overhead.memory),
        }
    }
}

fn need(list: Option<&BTreeMap<String, Text>>) -> Need {
    Need { cpu_milli: of_name(list, "cpu").unwrap_or(0), memory: of_name(list, "memory").unwrap_or(0) }
}

/// Thousandths of CPU, or bytes; what is no quantity counts as none: the API server takes no other.
fn of_name(list: Option<&BTreeMap<String, Text>>, name: &str) -> Option<u64> {
    let quantity: Quantity = list?.get(name)?.0.parse().ok()?;
    let amount = if name == "cpu" { quantity.milli_rounded_up() } else { quantity.units_rounded_up() };
    Some(u64::try_from(amount.max(0)).unwrap_or(u64::MAX))
}
