//! What QEMU and the runner take beside their VM. The one place for it; every number was measured (QEMU 7.2.22, Linux 6.18, all memory
//! of the guest written again and again, also during migrations) and has margin.

use neonvm_api::VirtualMachineSpec;
use neonvm_types::runner_protocol::{SizeRequest, TRANSLATED_CODE_MIB};
use neonvm_types::{Accelerator, Bytes, MilliCpu};

use crate::settings::Settings;

/// QEMU's own memory (heap, devices, the kernel's file, stacks) and the runner. Measured: QEMU 95 MiB without what emulation translates,
/// runner 25 MiB.
const BASE: Bytes = Bytes::mib(160);
/// Translated code of an emulated guest, at most (`tb-size` in the arguments of QEMU, which would take a GiB). Measured for a boot and a
/// small workload: 46 MiB.
const TRANSLATIONS: Bytes = Bytes::mib(TRANSLATED_CODE_MIB);
/// One in so many bytes of the guest: page tables of QEMU (measured: 2 MiB for a GiB) and as much again for those by which KVM maps the
/// guest, which count as memory of the same cgroup.
const GUEST_SHARE: u64 = 256;
/// One in so many bytes of the most that the guest may have: maps of dirty pages, of which a migration has up to five at a time, one bit
/// for a page of 4 KiB (measured: nothing visible at 16 GiB).
const MOST_SHARE: u64 = 6144;
/// For each CPU: stack and tables of its thread (measured: 2 MiB), a queue for each network interface.
const CPU: Bytes = Bytes::mib(4);
/// For each disk: tables of its image (at most 32 MiB for one beyond 256 GiB), and what is on its way while it is copied (16 MiB).
const DISK: Bytes = Bytes::mib(24);

/// CPU that QEMU and the runner of an idle VM take beside the vCPUs; counts on the node.
const CPU_IDLE: MilliCpu = MilliCpu::new(20);
/// CPU for QEMU's and the runner's threads above what the VM has, at least: at 250m a period of 100 ms has 35 ms, of which the vCPUs can
/// take all and then hold up QEMU for 65 ms at most. Deadlines of the runner are seconds.
pub(super) const CPU_HEADROOM: MilliCpu = MilliCpu::new(100);
/// The same as one part in so many of the VM's CPU, for packets and disks of larger ones.
pub(super) const CPU_HEADROOM_SHARE: u32 = 10;
/// More of it during a migration: QEMU copies and the runner encrypts, a thread each.
pub(super) const CPU_MIGRATION: MilliCpu = MilliCpu::new(2000);

/// What QEMU and the runner of a VM take beside a guest that has this much memory, also during migrations.
#[must_use]
pub fn of_vm(spec: &VirtualMachineSpec, memory: Bytes, settings: &Settings) -> SizeRequest {
    let guest = &spec.guest;
    let slot = guest.slot_size().unwrap_or(Bytes::ZERO);
    let most = slot.saturating_mul(u32::from(guest.memory_slots.max)).get();
    // With `Auto` a node without KVM may take the VM.
    let emulated = settings.accelerator != Accelerator::Kvm || !spec.enable_acceleration;
    let disks =
        spec.disks.len() + 1 + usize::from(guest.settings.as_ref().is_some_and(|set| set.swap.is_some()));
    let disks = u32::try_from(disks).unwrap_or(u32::MAX);
    let parts = [
        BASE,
        if emulated { TRANSLATIONS } else { Bytes::ZERO },
        Bytes::new(memory.get() / GUEST_SHARE),
        Bytes::new(most / MOST_SHARE),
        CPU.saturating_mul(guest.cpus.max.cpus_rounded_up()),
        DISK.saturating_mul(disks),
    ];
    let sum = parts.into_iter().fold(Bytes::ZERO, Bytes::saturating_add);
    // Whole MiB: the kernel rounds limits to pages, and a size that is read back must be the one that was written.
    let whole = sum.get().checked_next_multiple_of(1 << 20).unwrap_or(sum.get());
    SizeRequest { cpu: CPU_IDLE, memory: Bytes::new(whole) }
}
