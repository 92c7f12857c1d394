//! The memory device of a VM as QEMU is given it, and what Linux makes of it.

use neonvm_api::virtual_machine::Guest;
use neonvm_hypervisor::accelerator::Accelerator;
use neonvm_hypervisor::plan::{
    Architecture, CpuMode, CpuPlan, Descriptors, Firmware, MachinePlan, MemoryPlan, arguments,
};
use neonvm_types::Bytes;

/// Linux adds memory in whole blocks of this size.
const KERNEL_BLOCK: u64 = 128 << 20;

/// Memory that the guest has without the device, and the most that it can use of the device.
pub(crate) fn of(guest: &Guest) -> (Bytes, Bytes) {
    let slot = guest.slot_size().unwrap();
    let slots = guest.memory_slots;
    let memory = |slots: u16| slot.saturating_mul(u32::from(slots));
    let plan = MemoryPlan {
        min: memory(slots.min),
        start: memory(slots.r#use),
        max: memory(slots.max),
        exact: false,
    };
    let line = arguments(&machine(plan), &Descriptors::default()).unwrap();
    let size = line.iter().find_map(|word| {
        let (_, rest) = word.strip_prefix("memory-backend-ram,")?.split_once("size=")?;
        rest.split(',').next()?.trim_end_matches('b').parse::<u64>().ok()
    });
    let device = size.unwrap_or(0);
    (plan.min, Bytes::new(device - device % KERNEL_BLOCK))
}

fn machine(memory: MemoryPlan) -> MachinePlan {
    MachinePlan {
        name: "default/a".into(),
        uuid: "6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11".into(),
        architecture: Architecture::Amd64,
        accelerator: Accelerator::Tcg,
        machine_type: "pc-q35-7.2".into(),
        cpu_model: None,
        cpu_features_off: vec![],
        network_features_off: &[],
        firmware: Firmware::Qboot,
        kernel: "/vmlinux".into(),
        initramfs: None,
        command_line: String::new(),
        cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 1 },
        memory,
        disks: vec![],
        disk_queues: None,
        interfaces: vec![],
        direct_io: false,
        incoming: false,
    }
}
