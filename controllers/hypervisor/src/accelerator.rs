//! What runs the guest's code, chosen by trying it: a `/dev/kvm` that opens and cannot run a guest is common.

mod cache;
mod choose;
mod counter;
mod cpu;
mod kvm;
pub mod probe;

pub use choose::{ChooseError, Chosen, PROBE_DEADLINE, Request, choose};
pub use counter::emulated_tsc_khz;

use crate::architecture::Architecture;

/// What runs the guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator, one thread for each CPU.
    Tcg,
}

impl Accelerator {
    /// `kvm` or `tcg`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Value of `-accel`.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            // At most `TRANSLATED_CODE_MIB`, which the size of the runner's pod counts with; QEMU would take a GiB in time.
            Self::Tcg => "tcg,thread=multi,tb-size=128",
        }
    }

    /// Name of the CPU model, as runners compare it before a migration.
    #[must_use]
    pub const fn cpu_model(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }

    /// Value of `-cpu`. Under emulation on x86-64 it is the same CPU with every QEMU, so a migration between two
    /// versions of QEMU neither adds nor removes a feature.
    #[must_use]
    pub const fn cpu_option(self, architecture: Architecture) -> &'static str {
        match (self, architecture) {
            (Self::Kvm, _) | (Self::Tcg, Architecture::Arm64) => self.cpu_model(),
            (Self::Tcg, Architecture::Amd64) => cpu::EMULATED,
        }
    }
}

#[cfg(test)]
mod tests {
    use neonvm_types::runner_protocol::TRANSLATED_CODE_MIB;

    use super::Accelerator;

    #[test]
    fn translated_code_takes_what_its_pod_counts_with() {
        let option = Accelerator::Tcg.option();
        assert!(option.ends_with(&format!(",tb-size={TRANSLATED_CODE_MIB}")), "{option}");
    }
}
