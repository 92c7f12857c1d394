//! `neond device-plugin`

use std::net::SocketAddr;
use std::path::PathBuf;

use neonvm_device_plugin::{Config, offer::Kvm};

/// Flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Directory in which the kubelet listens for device plugins
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_directory: PathBuf,
    /// Path of the node's /dev
    #[arg(long, default_value = "/dev")]
    devices: PathBuf,
    /// Accelerator of VMs: auto (KVM if the node has it, else emulation), kvm (only nodes with KVM
    /// run VMs) or tcg (emulation)
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accelerator: String,
    /// Address of the server for liveness and readiness probes only, for example 0.0.0.0:8082 [default: nowhere]
    #[arg(long)]
    health_probe_bind_address: Option<SocketAddr>,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let kvm = match args.accelerator.as_str() {
        "kvm" => Kvm::Require,
        "tcg" => Kvm::Never,
        _ => Kvm::Auto,
    };
    let config = Config {
        directory: args.kubelet_directory.clone(),
        devices: args.devices.clone(),
        kvm,
        probes: args.health_probe_bind_address,
    };
    crate::service::run(async {
        Ok(neonvm_device_plugin::run(config, neonvm_kit::termination::requested()?).await?)
    })
}
