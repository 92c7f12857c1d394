//! VMs, pods and runners for the tests of this crate and of `neonvm-core-migration`.

use neonvm_api::virtual_machine::{CpuBounds, CpuScalingMode, Guest, MemorySlots};
use neonvm_api::{VirtualMachine, VirtualMachineSpec};
use neonvm_core_vm_lifecycle::pod::PodSize;
use neonvm_core_vm_lifecycle::{PodView, RunnerView, Settings};
use neonvm_types::runner_protocol::{CpuStatus, MachineInfo, MemoryStatus, RunnerState, RunnerStatus};
use neonvm_types::{Bytes, MilliCpu, Timestamp};

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix(seconds).unwrap()
}

/// A VM that was adopted: half a CPU and 1 GiB of at most 2 CPUs and 4 GiB.
pub(crate) fn vm() -> VirtualMachine {
    let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(2000), r#use: MilliCpu::new(500) };
    let mut spec =
        VirtualMachineSpec::new(Guest::new(cpus, MemorySlots { min: 1, max: 4, r#use: 1 }, "img:tag"));
    spec.cpu_scaling_mode = Some(CpuScalingMode::SysfsScaling);
    let mut vm = VirtualMachine::new("db", spec);
    vm.metadata.namespace = Some("ns".into());
    vm.metadata.uid = Some("u-1".into());
    vm.metadata.generation = Some(1);
    vm.metadata.finalizers = Some(vec!["vm.neon.tech/finalizer".into()]);
    vm
}

pub(crate) fn settings() -> Settings {
    Settings::default()
}

/// A pod that carries what it should, and nothing has happened to it.
pub(crate) fn pod(vm: &VirtualMachine, name: &str) -> PodView {
    let plan = neonvm_core_vm_lifecycle::pod::plan(vm, name, &settings()).unwrap();
    let size = PodSize::from_resources(plan.spec.unwrap().containers[0].resources.as_ref().unwrap());
    PodView {
        name: name.into(),
        uid: format!("uid-{name}"),
        labels: plan.metadata.labels.unwrap(),
        annotations: plan.metadata.annotations.unwrap(),
        controller: vm.metadata.uid.clone().unwrap(),
        size,
        applied: size,
        current: true,
        ..PodView::default()
    }
}

pub(crate) fn running(mut pod: PodView) -> PodView {
    (pod.ip, pod.node, pod.running) = ("10.0.0.7".into(), "n1".into(), true);
    pod
}

pub(crate) fn runner(milli: u32, gib: u32) -> RunnerStatus {
    RunnerStatus {
        sequence: 1,
        state: RunnerState::Running,
        ready: true,
        machine: Some(MachineInfo {
            accelerator: "tcg".into(),
            machine_type: "pc-q35-7.2".into(),
            ..MachineInfo::default()
        }),
        cpu: CpuStatus { asked: MilliCpu::new(milli), applied: MilliCpu::new(milli), online: 1 },
        memory: MemoryStatus { asked: Bytes::gib(gib), actual: Bytes::gib(gib) },
        ..RunnerStatus::default()
    }
}

pub(crate) fn seen(status: RunnerStatus) -> RunnerView {
    RunnerView::Seen(Box::new(status))
}
