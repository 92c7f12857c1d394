//! The size of a runner's container: what its VM has, and what QEMU and the runner take beside it. Kubernetes, its scheduler and
//! its autoscaler of nodes see the VM by these requests; the limits hold QEMU to it.
//!
//! - Requests are what counts on the node: the VM, divided by its overcommit factors, and the overhead.
//! - The limit of memory is the whole VM and the overhead, with a margin: a container that reaches the limit is killed.
//! - The limit of CPU has headroom above the VM, because it stops QEMU's own threads as well as the vCPUs, for up to 100 ms at a time.
//!   It is above the request, so pods are Burstable: no pinned CPUs, which cannot be resized, and one class of service for life. During a
//!   migration it is lifted: the pages are sent by QEMU's and the runner's threads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerResizePolicy, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use neonvm_api::pod_annotation::Usage;
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{Power, VirtualMachine};
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::{Bytes, MilliCpu, Quantity};

use super::PlanError;
use super::overhead::{self, CPU_HEADROOM, CPU_HEADROOM_SHARE, CPU_MIGRATION};
use crate::pod_size::PodSize;
pub use crate::pod_size::larger;
use crate::settings::Settings;

/// The size of the pod for a VM whose guest has this size. `moving`: it takes part in a migration.
///
/// What the spec's `podResources` name for CPU and memory is the least there is.
#[must_use]
pub fn size(vm: &VirtualMachine, guest: SizeRequest, moving: bool, settings: &Settings) -> PodSize {
    let overhead = overhead::of_vm(&vm.spec, guest.memory, settings);
    let overcommit = vm.spec.overcommit.filter(|_| settings.policy.allows(Power::Overcommit));
    let factors = overcommit.unwrap_or_default();
    let cpu = discounted(u64::from(guest.cpu.milli()), factors.cpu);
    let requests = SizeRequest {
        cpu: MilliCpu::new(u32::try_from(cpu).unwrap_or(u32::MAX)).saturating_add(overhead.cpu),
        memory: Bytes::new(discounted(guest.memory.get(), factors.memory)).saturating_add(overhead.memory),
    };
    let headroom = CPU_HEADROOM.max(MilliCpu::new(guest.cpu.milli() / CPU_HEADROOM_SHARE));
    let lifted = if moving { CPU_MIGRATION } else { MilliCpu::ZERO };
    let limits = SizeRequest {
        cpu: guest.cpu.saturating_add(headroom).saturating_add(lifted),
        memory: guest.memory.saturating_add(overhead.memory),
    };
    let requests = larger(requests, least(vm.spec.pod_resources.requests.as_ref()));
    let limits = larger(limits, least(vm.spec.pod_resources.limits.as_ref()));
    PodSize { requests, limits: larger(limits, requests) }
}

/// The size at which a VM starts.
///
/// # Errors
/// If the spec's size cannot be computed.
pub fn at_start(vm: &VirtualMachine) -> Result<SizeRequest, PlanError> {
    let guest = &vm.spec.guest;
    let memory = guest.memory_use().map_err(|error| PlanError::SlotSize(error.to_string()))?;
    Ok(SizeRequest { cpu: guest.cpus.r#use, memory })
}

/// What the VM takes of its node: what its spec requests, and what it has while it still returns more.
///
/// # Errors
/// If the spec's size cannot be computed.
pub fn uses(vm: &VirtualMachine) -> Result<SizeRequest, PlanError> {
    let size = at_start(vm)?;
    let Some(status) = vm.status.as_ref().filter(|status| status.phase.is_some_and(Phase::is_alive)) else {
        return Ok(size);
    };
    let memory = status.memory_size.and_then(|size| Bytes::try_from(size).ok()).unwrap_or_default();
    Ok(larger(size, SizeRequest { cpu: status.cpus.unwrap_or_default(), memory }))
}

/// The overhead of what the VM takes, for the annotation that the scheduler reads.
pub(crate) fn overhead_note(vm: &VirtualMachine, settings: &Settings) -> Result<Usage, PlanError> {
    let overhead = overhead::of_vm(&vm.spec, uses(vm)?.memory, settings);
    Ok(Usage { cpu: overhead.cpu.to_quantity(), memory: overhead.memory.to_quantity() })
}

/// The resources of a pod of this size: those that its author names, with ours for CPU and memory.
pub fn with(author: &ResourceRequirements, size: &PodSize) -> ResourceRequirements {
    let ours = size.resources();
    let mut all = author.clone();
    all.requests.get_or_insert_default().extend(ours.requests.into_iter().flatten());
    all.limits.get_or_insert_default().extend(ours.limits.into_iter().flatten());
    all
}

/// CPU and memory change without a restart.
pub(super) fn policy() -> Vec<ContainerResizePolicy> {
    let without = |name: &str| ContainerResizePolicy {
        resource_name: name.to_owned(),
        restart_policy: "NotRequired".to_owned(),
    };
    vec![without("cpu"), without("memory")]
}

fn least(list: Option<&BTreeMap<String, ApiQuantity>>) -> SizeRequest {
    let quantity = |name: &str| list.and_then(|list| list.get(name)?.0.parse::<Quantity>().ok());
    let cpu = quantity("cpu").and_then(|cpu| u32::try_from(cpu.milli_rounded_up()).ok()).unwrap_or(0);
    let memory = quantity("memory").and_then(|memory| u64::try_from(memory.units_rounded_up()).ok());
    SizeRequest { cpu: MilliCpu::new(cpu), memory: Bytes::new(memory.unwrap_or(0)) }
}

/// Divided by an overcommit factor, rounded up.
fn discounted(amount: u64, factor: Option<Quantity>) -> u64 {
    let Some(nanos) = factor.map(Quantity::nanos).filter(|nanos| *nanos >= 1_000_000) else { return amount };
    let whole = i128::from(amount).saturating_mul(1_000_000_000);
    let parts = whole / nanos + i128::from(whole % nanos != 0);
    u64::try_from(parts).unwrap_or(u64::MAX)
}
