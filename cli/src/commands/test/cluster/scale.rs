//! Changes the size by hand: up, and down again.

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;
use tokio::time::Instant;

use super::step::Outcome;
use super::trial::{Trial, VM};
use crate::commands::vm::scale::Goal;
use crate::error::Result;

/// A size: CPU and slots of memory, 1Gi each.
#[derive(Clone, Copy)]
pub(super) struct Size {
    cpu: MilliCpu,
    slots: u16,
}

/// As it was made.
pub(super) const SMALL: Size = Size { cpu: MilliCpu::new(250), slots: 1 };
/// Twice as much.
pub(super) const LARGE: Size = Size { cpu: MilliCpu::new(500), slots: 2 };

pub(super) async fn run(trial: &mut Trial<'_>) -> Result<Outcome> {
    let begun = Instant::now();
    resize(trial, LARGE).await?;
    let up = begun.elapsed();
    let begun = Instant::now();
    resize(trial, SMALL).await?;
    Ok(Outcome::Passed(format!(
        "0.25 CPU, 1Gi to 0.5 CPU, 2Gi in {:.1} s, back in {:.1} s",
        up.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    )))
}

/// Requests a size and waits until it is observed.
pub(super) async fn resize(trial: &Trial<'_>, size: Size) -> Result<VirtualMachine> {
    let patch = json!({"spec": {"guest": {"cpus": {"use": size.cpu}, "memorySlots": {"use": size.slots}}}});
    let (api, parameters, patch) =
        (trial.client.api::<VirtualMachine>(), PatchParams::default(), Patch::Merge(&patch));
    let patched = api.patch(VM, &parameters, &patch);
    let patched = trial.connection().within("cannot change the size", patched).await?;
    let generation = patched.metadata.generation;
    let goal = Goal { cpu: size.cpu, memory: Bytes::gib(u32::from(size.slots)), generation };
    let what = format!("the VM has {} milli-CPU and {}", size.cpu.milli(), goal.memory);
    trial.until(&what, |vm| goal.progress(VM, Some(vm))).await
}
