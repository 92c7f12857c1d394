//! Configuration that the runner passes to a guest at boot: the structured form of the shell files that older runners write.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::Attach;
use crate::Bytes;

/// Content of `neonvm.json` on the runtime volume. With it present the shell files beside it are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeConfig {
    /// Replaces the entry point of the image; the image's `Cmd` is then dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Replaces the `Cmd` of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// `NAME=value` each, over those of the image.
    pub env: Vec<String>,
    /// `key=value` each, such as `vm.overcommit_memory=2`.
    pub sysctl: Vec<String>,
    /// File systems to mount, in this order, before the workload starts.
    pub mounts: Vec<Mount>,
    /// Swap, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Size of `/dev/shm`, if not the kernel's half of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Bytes>,
    /// What happens when the workload ends.
    pub restart_policy: RestartPolicy,
    /// Files the workload needs before it starts: directories that the host fills through the daemon.
    pub synchronised_paths: Vec<String>,
    /// Addresses from which the daemon takes requests: that of the runner. Empty, as from older runners: all.
    pub peers: Vec<IpAddr>,
    /// The same of the monitor.
    pub monitor_peers: Vec<IpAddr>,
    /// The most memory that the VM can have, in bytes. What Linux derives from memory at boot follows this. Absent, as from older
    /// runners: the memory at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_memory: Option<Bytes>,
    /// Settings of the first interface, which the guest takes before anything is started. Absent, as from older runners: by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Streams of the workload's first start that a client has. Absent, as from older runners: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// Keys that may log in by SSH, one `authorized_keys` line each. Beside those of the volume `ssh-authorized-keys`.
    pub ssh_authorized_keys: Vec<String>,
}

/// Settings of a network interface: those that DHCP gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Address of the guest.
    pub address: Ipv4Addr,
    /// Length of the network prefix, 0–32.
    pub prefix: u8,
    /// Router of the default route, on the link.
    pub gateway: Ipv4Addr,
    /// Servers for names, in this order.
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
    /// Domains in which names without a dot are looked up.
    #[serde(default)]
    pub search: Vec<String>,
    /// Largest packet in bytes. Absent: that of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A file system to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Absolute path; made if missing.
    pub path: String,
    /// What is mounted there.
    #[serde(flatten)]
    pub kind: MountKind,
    /// Whether it can be written to.
    #[serde(default)]
    pub read_only: bool,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum MountKind {
    /// The block device with this label on its file system, or with this serial number.
    Disk {
        /// Label of the file system or serial number of the device.
        label: String,
        /// Mount with `discard`.
        #[serde(default)]
        discard: bool,
        /// Turn on project quotas.
        #[serde(default)]
        quota: bool,
        /// It outlives the VM: its mode and owner are those that the workload gave it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        persistent: bool,
    },
    /// A read-only volume of files, found by its label.
    Files {
        /// Volume label.
        label: String,
    },
    /// Memory.
    Tmpfs {
        /// Largest size.
        size: Bytes,
    },
    /// Only the directory; the host fills it through the daemon.
    Directory,
}

/// Swap space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    /// Label of the swap area or serial number of the device.
    pub label: String,
    /// How much of it to use.
    pub size: Bytes,
    /// Do not use it at the start of the guest; the command `resize-swap` does later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_swapon: bool,
}

/// What happens when the workload ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// It is started again, with back-off, whatever its status.
    #[default]
    Always,
    /// It is started again unless its status was 0; then the VM powers off.
    OnFailure,
    /// The VM powers off.
    Never,
}
