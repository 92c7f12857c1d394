//! Changes the size by hand: up, and down again.

use kube::api::{Patch, PatchParams};
use neonvm_api::VirtualMachine;
use neonvm_types::{Bytes, MilliCpu};
use serde_json::json;
use tokio::time::Instant;

use super::step::Outcome;
use super::trial::{Trial, VM};
use crate::commands::vm::table::observed;
use crate::commands::watching::WaitProgress;
use crate::error::{Code, Error, Result};

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
    let memory = Bytes::gib(u32::from(size.slots));
    let what = format!("the VM has {} milli-CPU and {memory}", size.cpu.milli());
    trial.until(&what, |vm| reached(vm, (size.cpu, memory), generation)).await
}

fn reached(vm: &VirtualMachine, wanted: (MilliCpu, Bytes), generation: Option<i64>) -> WaitProgress {
    if observed(vm) == wanted {
        return WaitProgress::Done;
    }
    let Some(status) = &vm.status else { return WaitProgress::NotYet };
    let scaled = status.conditions.iter().find(|condition| condition.type_ == "Scaled");
    match scaled {
        Some(condition)
            if status.observed_generation >= generation
                && condition.status == "False"
                && condition.reason != "InProgress" =>
        {
            WaitProgress::Never(
                Error::new(Code::Failed, "the size was not reached").cause(condition.message.clone()),
            )
        }
        _ => WaitProgress::NotYet,
    }
}
