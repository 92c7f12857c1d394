//! What a machine may be.

use neonvm_types::Bytes;

use super::{Architecture, MachinePlan};

/// Memory comes and goes in blocks of this size.
pub const MEMORY_BLOCK: Bytes = Bytes::mib(2);
/// Most CPUs of a machine: more need an emulated IOMMU.
pub const MOST_CPUS: u32 = 255;
/// Most disks: eight functions in each of the slots 0x10–0x1e.
pub const MOST_DISKS: usize = 15 * 8;
/// Most network interfaces.
pub const MOST_INTERFACES: usize = 8;
/// Bytes of a serial number of a virtio disk (`VIRTIO_BLK_ID_BYTES`).
pub const SERIAL_BYTES: usize = 20;
/// Most bytes of a kernel's arguments (`COMMAND_LINE_SIZE` of x86 and arm64, without the end).
pub const COMMAND_LINE_BYTES: usize = 2047;

/// Why there can be no such machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A number is out of its range.
    #[error("{what}: {value} is not within {least} to {most}")]
    Range {
        what: &'static str,
        value: u64,
        /// Least it may be.
        least: u64,
        /// Most it may be.
        most: u64,
    },
    /// Memory is not made of whole blocks.
    #[error("{what}: {value} bytes are not a multiple of {}", MEMORY_BLOCK.get())]
    Block {
        /// Name of the size.
        what: &'static str,
        /// Bytes.
        value: u64,
    },
    /// A text holds a byte that ends texts.
    #[error("{0} holds a NUL byte")]
    Nul(&'static str),
    /// A name that QEMU reads with others in one list has characters that none of its names has.
    #[error("{what}: {name:?} is not 1 to {NAME_BYTES} letters, digits, '.', '_' and '-'")]
    Name {
        /// What is named.
        what: &'static str,
        name: String,
    },
    /// Descriptors do not fit the plan.
    #[error("{what} {index} has no descriptor")]
    Descriptor {
        /// Kind of device.
        what: &'static str,
        /// Which, from 0 on.
        index: usize,
    },
}

/// Most bytes of a CPU model's name, and of a feature's.
const NAME_BYTES: usize = 64;

/// Whether a text can be QEMU's name of a CPU model or of a feature: nothing in it ends a value in a list of options.
fn named(what: &'static str, name: &str) -> Result<(), PlanError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=NAME_BYTES).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(PlanError::Name { what, name: name.chars().take(NAME_BYTES).collect() })
}

fn range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PlanError::Range { what, value, least, most })
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl MachinePlan {
    /// Refuses what QEMU or the guest would.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        range("maximum of CPUs", self.cpu.max.into(), 1, MOST_CPUS.into())?;
        range("CPUs at the start", self.cpu.boot.into(), 1, self.cpu.max.into())?;
        let (min, max) = (self.memory.min.get(), self.memory.max.get());
        range("minimum of memory", min, MEMORY_BLOCK.get(), 1 << 46)?;
        range("maximum of memory", max, min, 1 << 46)?;
        range("memory at the start", self.memory.start.get(), min, max)?;
        for (what, value) in [
            ("minimum of memory", self.memory.min),
            ("memory at the start", self.memory.start),
            ("maximum of memory", self.memory.max),
        ] {
            if !value.is_multiple_of(MEMORY_BLOCK) {
                return Err(PlanError::Block { what, value: value.get() });
            }
        }
        range("disks", count(self.disks.len()), 0, count(MOST_DISKS))?;
        range("network interfaces", count(self.interfaces.len()), 0, count(MOST_INTERFACES))?;
        let longest = match self.architecture {
            Architecture::Amd64 | Architecture::Arm64 => count(COMMAND_LINE_BYTES),
        };
        range("bytes of the kernel's arguments", count(self.command_line.len()), 0, longest)?;
        for (what, text) in [
            ("the name", &self.name),
            ("the UUID", &self.uuid),
            ("the machine type", &self.machine_type),
            ("the kernel's arguments", &self.command_line),
        ] {
            if text.contains('\0') {
                return Err(PlanError::Nul(what));
            }
        }
        if let Some(name) = &self.cpu_model {
            named("CPU model", name)?;
        }
        self.cpu_features_off.iter().try_for_each(|name| named("feature of the CPU", name))?;
        if self.disks.iter().any(|disk| disk.name.contains('\0')) {
            return Err(PlanError::Nul("the name of a disk"));
        }
        Ok(())
    }
}
