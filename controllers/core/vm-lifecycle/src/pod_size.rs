//! Requests and limits of a runner pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, MilliCpu, Quantity};

/// Requests and limits of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSize {
    /// What counts on the node.
    pub requests: SizeRequest,
    /// What the container is held to; never below the requests.
    pub limits: SizeRequest,
}

impl PodSize {
    /// CPU and memory of a container. `None` if a request or a limit of them is missing or cannot be read: then the size of its pod
    /// does not follow that of a VM.
    #[must_use]
    pub fn from_resources(resources: &ResourceRequirements) -> Option<Self> {
        let part = |list: Option<&BTreeMap<String, ApiQuantity>>| {
            let quantity = |name: &str| list?.get(name)?.0.parse::<Quantity>().ok();
            let cpu = u32::try_from(quantity("cpu")?.milli_rounded_up()).ok().map(MilliCpu::new)?;
            let memory = u64::try_from(quantity("memory")?.units_rounded_up()).ok().map(Bytes::new)?;
            Some(SizeRequest { cpu, memory })
        };
        Some(Self { requests: part(resources.requests.as_ref())?, limits: part(resources.limits.as_ref())? })
    }

    /// The larger of each amount.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { requests: larger(self.requests, other.requests), limits: larger(self.limits, other.limits) }
    }

    /// Requests and limits as the API has them.
    #[must_use]
    pub fn resources(&self) -> ResourceRequirements {
        let list = |size: SizeRequest| {
            let amounts =
                [("cpu", size.cpu.to_quantity()), ("memory", size.memory.to_quantity())].into_iter();
            Some(amounts.map(|(name, amount)| (name.to_owned(), ApiQuantity(amount.to_string()))).collect())
        };
        ResourceRequirements {
            requests: list(self.requests),
            limits: list(self.limits),
            ..ResourceRequirements::default()
        }
    }
}

/// The larger of each.
#[must_use]
pub fn larger(one: SizeRequest, other: SizeRequest) -> SizeRequest {
    SizeRequest { cpu: one.cpu.max(other.cpu), memory: one.memory.max(other.memory) }
}
