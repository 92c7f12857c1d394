//! The accelerator that runs guest code, as configured for an installation, a node or a runner.

use std::str::FromStr;

/// The requested accelerator; the one that a VM gets also depends on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// KVM where the pod has it and it runs guest code, else emulation.
    #[default]
    Auto,
    /// KVM; a VM does not start without it, unless its author switched acceleration off.
    Kvm,
    /// Emulation (TCG), whatever the node has.
    Tcg,
}

impl Accelerator {
    /// The word for it: `auto`, `kvm` or `tcg`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

impl FromStr for Accelerator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Kvm, Self::Tcg]
            .into_iter()
            .find(|one| one.as_str() == text)
            .ok_or_else(|| format!("unknown accelerator `{text}`: auto, kvm or tcg"))
    }
}
