//! The contract of a runner pod: what the controller puts into it, what the runner finds there, what a node depends on.
//!
//! Paths are those inside the container. A node that runs the runner as a plain process lays the same tree out under a
//! directory of the pod and names it in [`ROOT_VARIABLE`].

use std::collections::BTreeMap;

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{MachineInfo, SizeRequest};
use serde::{Deserialize, Serialize};

use crate::guest_path::GuestPath;
use crate::virtual_machine::{CpuScalingMode, VirtualMachineSpec};

/// Program and first argument of the runner container's command; nodes without containers detect the runner by it.
pub const COMMAND: [&str; 2] = ["neond", "runner"];
/// Environment variable with the directory below which the paths of this module lie; `/` if absent.
pub const ROOT_VARIABLE: &str = "NEONVM_ROOT";
/// Environment variable with the SHA-256 of [`CONFIG_FILE`], in hexadecimal digits. The environment of a pod cannot be changed, the
/// secret can: the runner refuses another configuration.
pub const CONFIG_DIGEST_VARIABLE: &str = "NEONVM_CONFIG_SHA256";
/// Environment variable with the SHA-256 of the certificates of the authorities that are trusted, comma separated: others are
/// trusted only if one of them certifies them.
pub const AUTHORITIES_VARIABLE: &str = "NEONVM_AUTHORITIES_SHA256";

/// Environment variable with the form in which services and runners write their own logs: `text` or `json`.
pub const LOG_FORMAT_VARIABLE: &str = "NEOND_LOG_FORMAT";
/// Volume with [`CONFIG_FILE`], from the secret with the name of the pod, and `tls.crt`, `tls.key`, `ca.crt`, which are renewed, from
/// [`identity_secret`].
pub const CONFIG_VOLUME: &str = "runner-config";
/// Where that volume is mounted.
pub const CONFIG_DIRECTORY: &str = "/vm/config";
/// Name of the secret with the certificate of a pod's runner.
#[must_use]
pub fn identity_secret(pod: &str) -> String {
    format!("{pod}-identity")
}

/// JSON of a [`RunnerConfig`].
pub const CONFIG_FILE: &str = "vm.json";
/// Volume (an OCI image) that holds the root disk as `disk.qcow2`; read-only, shared by all VMs of a node.
pub const ROOT_DISK_VOLUME: &str = "rootdisk";
/// Where that volume is mounted.
pub const ROOT_DISK_DIRECTORY: &str = "/vm/rootdisk";
/// The base of the root disk in that volume; the VM writes to an overlay.
pub const ROOT_DISK_FILE: &str = "disk.qcow2";
/// Volume (an OCI image) with another kernel as [`KERNEL_FILE`]; only if the VM names one.
pub const KERNEL_VOLUME: &str = "kernel";
/// Where that volume is mounted.
pub const KERNEL_DIRECTORY: &str = "/vm/kernel-image";
/// The kernel in that volume.
pub const KERNEL_FILE: &str = "vmlinuz";
/// Volume (an empty directory) with the program that copies files out of images, and the init container that brings it; only where
/// nodes have no image volumes. Then the volumes of images are empty directories, which init containers fill.
pub const COPY_VOLUME: &str = "copy-program";
/// Where that volume is mounted in these init containers.
pub const COPY_DIRECTORY: &str = "/vm/copy";
/// Volume (an empty directory) for the overlay of the root disk and generated volumes.
pub const IMAGES_VOLUME: &str = "virtualmachineimages";
/// Where that volume is mounted.
pub const IMAGES_DIRECTORY: &str = "/vm/images";
/// Directory with one mount for each empty disk and each claim of mode `Filesystem`, named for the disk.
pub const DISKS_DIRECTORY: &str = "/vm/disks";
/// Directory with the block device of each claim of mode `Block`, named for the disk.
pub const DEVICES_DIRECTORY: &str = "/vm/devices";
/// Volume (an empty directory of the swap's size) for the swap disk.
pub const SWAP_VOLUME: &str = "swapdisk";
/// Where that volume is mounted.
pub const SWAP_DIRECTORY: &str = "/vm/swap";
/// Directory below which config maps, secrets and the TLS certificate are mounted, at their path in the guest.
pub const MOUNTS_DIRECTORY: &str = "/vm/mounts";
/// Where the private SSH key is mounted, as `id_ed25519`.
pub const SSH_PRIVATE_DIRECTORY: &str = "/mnt/ssh";
/// Where the public SSH key is mounted, as `authorized_keys`.
pub const SSH_PUBLIC_DIRECTORY: &str = "/vm/ssh";
/// User and group of all that runs in a pod; as a number, an unprivileged one. The group of its volumes.
pub const USER: i64 = 65534;
/// Volume (an empty directory) for sockets.
pub const RUN_VOLUME: &str = "run";
/// Where that volume is mounted. In pods of versions that had no such volume the runner makes the directory.
pub const RUN_DIRECTORY: &str = "/vm/run";
/// Socket of the runner in [`RUN_DIRECTORY`]: the same interface as on its port, for commands run inside the container.
pub const RUN_SOCKET: &str = "runner.sock";

/// What a pod's runner compares its files with, because others can write these. It is in the environment of the pod, see
/// [`CONFIG_DIGEST_VARIABLE`] and [`AUTHORITIES_VARIABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// SHA-256 of the configuration, in hexadecimal digits.
    pub config: String,
    /// The same of the certificates of the authorities that are trusted.
    pub authorities: Vec<String>,
}

/// Where the files for a path of the guest are in the runner's container.
#[must_use]
pub fn mounted(path: &GuestPath) -> String {
    format!("{MOUNTS_DIRECTORY}{path}")
}

/// The configuration that a runner gets for its VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerConfig {
    /// Namespace of the VM.
    pub namespace: String,
    /// Name of the VM.
    pub name: String,
    /// UID of the VM.
    pub uid: String,
    /// Name of the pod.
    pub pod: String,
    /// The VM as wanted when the pod was made; it boots at `use`.
    pub spec: VirtualMachineSpec,
    /// How CPUs come and go.
    pub cpu_scaling_mode: CpuScalingMode,
    /// Address on the overlay network, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_net: Option<ExtraNet>,
    /// The VM does not boot here: it comes from another pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<Receive>,
    /// The claims that have the content of disks, by the disk's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, RunnerClaim>,
    /// Settings of the installation.
    #[serde(default)]
    pub settings: RunnerSettings,
}

/// A claim that has the content of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerClaim {
    /// Name of the claim.
    pub name: String,
    /// The volume is a block device, below [`DEVICES_DIRECTORY`]; otherwise a directory below [`DISKS_DIRECTORY`].
    #[serde(default)]
    pub block: bool,
    /// Several nodes may write the volume, so that a migration opens it on both.
    #[serde(default)]
    pub shared: bool,
    /// Size of the volume.
    pub size: Bytes,
}

/// Where a VM comes from, and as what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receive {
    /// UID of the migration object.
    pub migration: String,
    /// `ADDRESS:PORT` of the source runner's interface.
    pub source: String,
    /// What the VM is made of there: machine type, CPU and devices are adopted, and the host must be able to run it.
    pub machine: MachineInfo,
    /// The size that was requested from it there.
    pub size: SizeRequest,
    /// CPUs that are plugged there; matters only if they are plugged one by one.
    pub cpus: u32,
    /// Queues of each disk there, where CPUs are plugged one by one; `None`: one, as runners have made it that could not read this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_queues: Option<u32>,
}

impl RunnerConfig {
    /// Queues that each disk of this VM has. Where CPUs are plugged one by one, they are as many as the CPUs it booted with, and stay so
    /// wherever it is migrated to; elsewhere they follow from the most CPUs it can have.
    #[must_use]
    pub fn disk_queues(&self) -> Option<u32> {
        let booted = self.spec.guest.cpus.r#use.cpus_rounded_up().max(1);
        match (self.cpu_scaling_mode, &self.receive) {
            (CpuScalingMode::SysfsScaling, _) => None,
            (CpuScalingMode::QmpScaling, Some(receive)) => Some(receive.disk_queues.unwrap_or(1)),
            (CpuScalingMode::QmpScaling, None) => Some(booted),
        }
    }
}

/// An address on the overlay network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraNet {
    /// Interface of the pod on that network.
    #[serde(default = "net1")]
    pub interface: String,
    /// Dotted quad.
    pub ip: String,
    /// Dotted quad.
    pub mask: String,
}

fn net1() -> String {
    "net1".to_owned()
}

/// Settings of an installation that runners follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunnerSettings {
    /// Hold vCPU threads to their size with a cgroup.
    pub cgroup: bool,
    /// The limits of the runner's container hold the VM to its size, so that a cgroup that cannot be written is no failure.
    pub pod_size: bool,
    /// Bypass the page cache of the node for disks of the VM (`cache.direct`).
    pub direct_io: bool,
    /// The guest reaches the metadata services of a cloud and its node's kubelet.
    pub node_access: bool,
    /// CPU model of VMs that set none; empty: all that the accelerator can.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpu_model: String,
    /// Default of `guest.memhpAutoMovableRatio`.
    pub memhp_auto_movable_ratio: String,
}

impl Default for RunnerSettings {
    fn default() -> Self {
        Self {
            cgroup: true,
            pod_size: false,
            direct_io: false,
            node_access: false,
            cpu_model: String::new(),
            memhp_auto_movable_ratio: "401".to_owned(),
        }
    }
}

/// Name of the volume of a disk of the VM.
#[must_use]
pub fn disk_volume(disk: &str) -> String {
    format!("disk-{disk}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_keep_the_queues_they_had_where_the_vm_booted() {
        let config = |mode: &str, cpus: &str, receive: serde_json::Value| -> RunnerConfig {
            let spec = serde_json::json!({ "guest": { "cpus": { "min": 1, "use": cpus, "max": 4 },
                "memorySlots": { "min": 1, "max": 1, "use": 1 }, "rootDisk": { "image": "a" } } });
            let mut value = serde_json::json!({ "namespace": "default", "name": "a", "uid": "u", "pod": "p",
                "spec": spec, "cpuScalingMode": mode });
            if !receive.is_null() {
                value["receive"] = receive;
            }
            serde_json::from_value(value).unwrap()
        };
        let receive = |queues: serde_json::Value| {
            serde_json::json!({ "migration": "m", "source": "s", "machine": {}, "size": { "cpu": 3, "memory": "1Gi" },
                "cpus": 3, "diskQueues": queues })
        };
        let none = serde_json::Value::Null;
        assert_eq!(config("QmpScaling", "1500m", none.clone()).disk_queues(), Some(2));
        assert_eq!(config("QmpScaling", "100m", none.clone()).disk_queues(), Some(1));
        // Two moves after its boot with three CPUs, and one of a runner that could not read it.
        assert_eq!(config("QmpScaling", "1", receive(3.into())).disk_queues(), Some(3));
        assert_eq!(config("QmpScaling", "2", receive(none.clone())).disk_queues(), Some(1));
        assert_eq!(config("SysfsScaling", "2", none).disk_queues(), None);
    }

    #[test]
    fn settings_may_be_left_out() {
        assert_eq!(serde_json::from_str::<RunnerSettings>("{}").unwrap(), RunnerSettings::default());
    }
}
