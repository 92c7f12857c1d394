//! What runs the guest's code, chosen by trying it: a `/dev/kvm` that opens and cannot run a guest is common.

mod access;
mod cache;
mod choose;
mod counter;
mod kvm;
pub mod probe;

pub(crate) use access::device_group;
pub use access::device_is_open_to;
pub use choose::{ChooseError, Chosen, PROBE_DEADLINE, Request, choose};
pub use counter::emulated_tsc_khz;

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
            Self::Tcg => "tcg,thread=multi",
        }
    }

    /// CPU model: all that the processor, or the translator, can do.
    #[must_use]
    pub const fn cpu_model(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }
}
