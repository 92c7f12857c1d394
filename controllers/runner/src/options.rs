//! Where and how a runner runs: flags and environment of its container.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use neonvm_api::runner_pod::Seal;
pub use neonvm_hypervisor::accelerator::Request as Accelerator;

/// How a runner runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory below which the paths of the container lie; `/` in a container.
    pub root: PathBuf,
    /// With what its files are compared.
    pub seal: Seal,
    /// Kernel for VMs that bring none.
    pub kernel: PathBuf,
    /// First root of that kernel, if it needs one.
    pub initramfs: Option<PathBuf>,
    /// Guest program that replaces an older one in the disk.
    pub guest_program: Option<PathBuf>,
    /// How the guest is connected.
    pub network: NetworkMode,
    /// Socket of the node service, which makes tap devices and the cgroup of the vCPUs.
    pub node_socket: PathBuf,
    pub accelerator: Accelerator,
    /// Command that prints the line of [`neonvm_hypervisor::accelerator::probe::run_in_this_process`].
    pub probe: Vec<OsString>,
    /// Directory in which the result of the probe is kept until the next boot.
    pub probe_kept: Option<PathBuf>,
    /// Parent of the cgroup of the vCPU threads, within its hierarchy; absent: the cgroup of this process.
    pub cgroup: Option<String>,
    /// File for the reason of the end.
    pub termination_log: PathBuf,
    /// Time between the request to stop and the kill; absent: that of the VM.
    pub grace: Option<Duration>,
    /// Addresses of the pod. Empty: all there are.
    pub addresses: Vec<IpAddr>,
    /// Name of the node: its agent reaches ports of the guest. Absent: no agent does.
    pub node: Option<String>,
}

/// How the guest is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// By a tap device in the pod's network namespace, from the node service.
    #[default]
    Tap,
    /// By QEMU's own stack; needs nothing.
    User,
}

impl std::str::FromStr for NetworkMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tap" => Ok(Self::Tap),
            "user" => Ok(Self::User),
            other => Err(format!("{other:?} is not a network mode: use tap or user")),
        }
    }
}
