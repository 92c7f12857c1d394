//! What a machine is made of. Pure: a [`MachinePlan`] and the numbers of descriptors become QEMU's arguments.

mod argv;
mod block;
mod command_line;
mod device;
mod limits;
mod processors;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use neonvm_types::Bytes;

pub use argv::arguments;
pub(crate) use argv::{base_memory_name, cpu_option};
pub(crate) use block::{disk_of, export_node, front_id as disk_front, node as disk_node};
pub use command_line::{KernelArguments, OnlinePolicy, OverlayAddress, emulated};
pub use limits::{
    COMMAND_LINE_BYTES, MEMORY_BLOCK, MOST_CPUS, MOST_DISKS, MOST_INTERFACES, PlanError, SERIAL_BYTES,
};
pub(crate) use processors::table as table_of_cpus;

use crate::accelerator::Accelerator;
pub use crate::architecture::Architecture;

/// QOM path of the device that adds and takes memory.
pub const MEMORY_DEVICE: &str = "/machine/peripheral/vm0";
/// Address of the guest behind [`Backend::User`]: the default of QEMU's own network stack.
pub const USER_GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Address from which connections come to such a guest.
pub const USER_HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Where such a guest resolves names.
pub const USER_NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

/// Everything that determines QEMU's command line for a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePlan {
    /// Name that shows in the list of processes.
    pub name: String,
    /// UUID the guest sees in its firmware tables.
    pub uuid: String,
    pub architecture: Architecture,
    /// What runs the guest's code.
    pub accelerator: Accelerator,
    /// Versioned machine type, as [`crate::installation::Installation::machine_type`] gives it.
    pub machine_type: String,
    /// CPU model by QEMU's name; `None`: the accelerator's own, see [`Accelerator::cpu_option`].
    pub cpu_model: Option<String>,
    /// Features of that model, by QEMU's names, that the guest's CPU does not get: those that it did not have where it
    /// was started.
    pub cpu_features_off: Vec<String>,
    /// Features of network devices that the guest does not get, see
    /// [`crate::installation::Installation::network_features_off`].
    pub network_features_off: &'static [&'static str],
    /// What starts first.
    pub firmware: Firmware,
    /// Path of the guest's kernel.
    pub kernel: PathBuf,
    /// Its first root.
    pub initramfs: Option<PathBuf>,
    /// Its arguments; see [`KernelArguments`].
    pub command_line: String,
    pub cpu: CpuPlan,
    pub memory: MemoryPlan,
    /// Disks in the order of their names in the guest: the first is `vda`.
    pub disks: Vec<DiskPlan>,
    /// Queues of each disk; `None`: one for each CPU that is there at the start, as QEMU has it.
    pub disk_queues: Option<u32>,
    /// Network interfaces in the order of their names in the guest: the first is `eth0`.
    pub interfaces: Vec<InterfacePlan>,
    /// Bypass the page cache of the host for disks that are written.
    pub direct_io: bool,
    /// It does not boot: it comes from another QEMU, see [`crate::machine::Machine::receive_memory`].
    pub incoming: bool,
}

/// What starts the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// QEMU's usual one; slower, starts every kernel.
    Default,
    /// `qboot`: starts kernels in ELF format with a PVH entry in some milliseconds.
    Qboot,
    /// A file that the user QEMU runs as may read.
    File(PathBuf),
}

/// How CPUs come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMode {
    /// All exist from the start; the guest takes them on and off line.
    Sysfs,
    /// They are plugged and unplugged.
    Qmp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// How they come and go.
    pub mode: CpuMode,
    /// How many are on line at the start: 1–`max`. With [`CpuMode::Sysfs`] only the kernel's arguments depend on it.
    pub boot: u32,
    /// Most there can be: 1–[`MOST_CPUS`].
    pub max: u32,
}

impl CpuPlan {
    /// Whether the guest finds all CPUs in ACPI's tables from the start although they are plugged later. Linux from 6.9 on
    /// takes no others on an emulated processor, where it does not know that it is a guest.
    #[must_use]
    pub fn all_are_listed(self, architecture: Architecture, accelerator: Accelerator) -> bool {
        (self.mode, architecture, accelerator) == (CpuMode::Qmp, Architecture::Amd64, Accelerator::Tcg)
    }

    /// Words of the kernel's arguments, so that no more CPUs than [`Self::boot`] are on line at the start; `None` if there
    /// are no others.
    #[must_use]
    pub fn kernel_words(self, architecture: Architecture, accelerator: Accelerator) -> Option<String> {
        let boot = self.boot;
        match self.mode {
            CpuMode::Sysfs => Some(format!("maxcpus={boot}")),
            CpuMode::Qmp if self.all_are_listed(architecture, accelerator) => {
                Some(format!("maxcpus={boot} acpi_apic_instance={}", processors::INSTANCE))
            }
            CpuMode::Qmp => None,
        }
    }
}

/// Memory of a machine; each a multiple of [`MEMORY_BLOCK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What is always there.
    pub min: Bytes,
    /// Size at the start: `min`–`max`.
    pub start: Bytes,
    /// Most there can be.
    pub max: Bytes,
    /// The memory device has no more than the guest can get: that of a VM which comes from a runner up to 0.2.0. A guest cannot use the
    /// last part of such a device, if that is no whole block of its kernel.
    pub exact: bool,
}

/// Kernels add memory in blocks of this size (`MIN_MEMORY_BLOCK_SIZE` of x86-64, the same on arm64 with pages of 4 KiB).
const KERNEL_BLOCK: u64 = 128 << 20;
/// Kernels that boot with at least [`LARGE`] do so in blocks of up to 2 GiB (`probe_memory_block_size` of x86-64).
const LARGE_KERNEL_BLOCK: u64 = 2 << 30;
/// See [`LARGE_KERNEL_BLOCK`].
const LARGE: Bytes = Bytes::gib(64);

impl MemoryPlan {
    /// Bytes of the device that adds and takes memory; zero if the size is fixed. They are whole blocks of the guest's kernel, so that
    /// it can use all that it may get.
    #[must_use]
    pub fn device(&self) -> Bytes {
        let more = self.max.saturating_sub(self.min);
        let block = if self.min >= LARGE { LARGE_KERNEL_BLOCK } else { KERNEL_BLOCK };
        if self.exact { more } else { Bytes::new(more.get().next_multiple_of(block)) }
    }
}

/// Files and options of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Name for people; the guest sees the first [`SERIAL_BYTES`] bytes as its serial number.
    pub name: String,
    /// What is behind it.
    pub image: DiskImage,
    /// The guest cannot write.
    pub read_only: bool,
    /// Blocks the guest discards are given back to the file system of the host.
    pub discard: bool,
}

/// Files behind a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskImage {
    /// Bytes as they are.
    Raw(PathBuf),
    /// A qcow2 file without a backing file.
    Qcow2(PathBuf),
    /// A qcow2 file that holds the difference to a base, which is never written.
    Overlay {
        /// Path of the qcow2 file that holds the difference to the base.
        file: PathBuf,
        base: PathBuf,
        base_format: BaseFormat,
    },
    /// Bytes as they are, on a volume that outlives the VM's pods.
    Volume {
        /// Path of the file or of the block device.
        path: PathBuf,
        /// Whether the path is that of a block device.
        device: bool,
        /// The target of a migration opens the same volume, so that the disk is not copied.
        shared: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseFormat {
    /// Bytes as they are.
    Raw,
    /// qcow2.
    Qcow2,
}

impl BaseFormat {
    /// QEMU's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Greatest packet, in bytes, as passed to the guest; `None`: the guest's default.
    pub mtu: Option<u16>,
    /// What it is joined to.
    pub backend: Backend,
}

/// What an interface is joined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A tap device, by descriptors in [`crate::machine::Resources`].
    Tap,
    /// QEMU's own network stack; the guest has [`USER_GUEST_ADDRESS`].
    User {
        /// Ports of the host that lead into the guest.
        forwards: Vec<Forward>,
    },
}

/// A port of the host that leads into the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// TCP or UDP.
    pub protocol: Protocol,
    pub address: Ipv4Addr,
    pub port: u16,
    pub guest_port: u16,
}

/// Protocol of a [`Forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// Numbers of the descriptors that QEMU inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    pub monitor: i32,
    /// Socket of the serial console.
    pub console: i32,
    /// Socket of the port of logs.
    pub log: i32,
    /// Socket of the port of reports.
    pub report: i32,
    /// Descriptor of the kernel's file.
    pub kernel: i32,
    /// Its first root.
    pub initramfs: Option<i32>,
    /// The table of all CPUs, where [`CpuPlan::all_are_listed`].
    pub table_of_cpus: Option<i32>,
    /// For each disk.
    pub disks: Vec<DiskDescriptors>,
    /// For each interface; empty if it needs none.
    pub interfaces: Vec<TapDescriptors>,
    /// The memory that is always there, if it is in a file.
    pub memory: Option<MemoryFile>,
}

/// Memory in a file: what the guest writes stays in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    /// Path of the file for QEMU.
    pub path: String,
    /// Where the memory begins in it, in bytes.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskDescriptors {
    /// Descriptor of the disk's file.
    pub file: i32,
    /// Descriptor of the base image, if the disk has one.
    pub base: Option<i32>,
}

/// Descriptors of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapDescriptors {
    /// One for each queue of the tap device.
    pub queues: Vec<i32>,
    /// One for each queue, of `/dev/vhost-net`; empty: packets pass through QEMU.
    pub vhosts: Vec<i32>,
}
