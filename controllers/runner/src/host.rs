//! What this host offers to VMs.

use neonvm_hypervisor::accelerator::{self, Accelerator};
use neonvm_hypervisor::cpu_model;
use neonvm_hypervisor::installation::Installation;
use neonvm_hypervisor::plan::Architecture;
use neonvm_types::runner_protocol::{DEVICES, HostFacts};

use crate::options::{NetworkMode, Options};

/// What this host offers to VMs whose runners have these options. A fact that cannot be found out is left out. Takes at
/// most some seconds.
pub async fn facts(options: &Options) -> HostFacts {
    let mut facts = HostFacts { devices: Some(DEVICES), ..HostFacts::default() };
    facts.network = match options.network {
        NetworkMode::Tap => "tap",
        NetworkMode::User => "user",
    }
    .to_owned();
    let Some(architecture) = Architecture::native() else { return facts };
    let chosen = accelerator::choose(options.accelerator, &options.probe, options.probe_kept.as_deref());
    let (installation, chosen) = tokio::join!(Installation::find(None, architecture), chosen);
    let Ok(installation) = installation else { return facts };
    facts.qemu_version = installation.version.to_string();
    let Ok(chosen) = chosen else { return facts };
    facts.accelerator = chosen.accelerator.as_str().to_owned();
    // All that a model with a name could have of it, too.
    let all = match chosen.accelerator {
        Accelerator::Kvm => None,
        Accelerator::Tcg => Some("max"),
    };
    if let Ok(cpu) = cpu_model::query(&installation, chosen.accelerator, all).await {
        facts.cpu_vendor = cpu.vendor;
        facts.cpu_features = cpu.features;
    }
    facts
}
