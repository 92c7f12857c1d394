//! How far a VM is.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use neonvm_types::runner_protocol::MachineInfo;
use neonvm_types::{MilliCpu, Quantity, RevisionWithTime, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DiskLimit, PowerState};
use crate::schema;

/// The size of a VM when a change of it began. CPU and memory are reached one after the other, and are observed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingFrom {
    /// CPU.
    #[schemars(schema_with = "schema::milli_cpu")]
    pub cpus: MilliCpu,
    /// Memory.
    #[schemars(schema_with = "schema::quantity")]
    pub memory_size: Quantity,
}

/// What is observed of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// `Available` and `Degraded`, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Where the VM is in its life.
    #[serde(default, deserialize_with = "schema::empty_is_none", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub phase: Option<Phase>,
    /// How often it was started again.
    #[serde(default)]
    pub restart_count: i32,
    /// `Stopped` while the VM is off by `spec.powerState`, `Paused` while the CPUs of its guest stand still by it, `Suspended` while its memory is
    /// in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
    /// The `spec.restartRequest` by which the VM was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_request: Option<String>,
    /// The runner pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_name: String,
    /// The runner pod's address.
    #[serde(default, rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// The address on the overlay network.
    #[serde(default, rename = "extraNetIP", skip_serializing_if = "String::is_empty")]
    pub extra_net_ip: String,
    /// The mask on the overlay network.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extra_net_mask: String,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Observed CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::milli_cpu")]
    pub cpus: Option<MilliCpu>,
    /// Observed memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub memory_size: Option<Quantity>,
    /// The size that the VM had before the change of its size that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_from: Option<ScalingFrom>,
    /// The secret with the SSH keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ssh_secret_name: String,
    /// The secret with the TLS certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_secret_name: String,
    /// The last revision that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::revision_with_time")]
    pub current_revision: Option<RevisionWithTime>,
    /// Generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the VM is made of while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The workload, once it was started again inside the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// How often the guest has ended a freeze of the VM's file systems, because no client did within its time, since its pod started.
    #[serde(default, skip_serializing_if = "schema::is_zero")]
    pub freezes_expired: u32,
    /// How the VM ended the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<LastExit>,
    /// The claims that have the content of disks, as they were when the VM's pod was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeStatus>,
    /// Limits of disks that are in force. Whether one binds is in the condition `DiskLimited`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65))]
    pub disk_limits: Vec<DiskLimit>,
    /// The VM's active migration. There is at most one: migrations not named here leave the VM alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<ActiveMigration>,
}

/// A claim that has the content of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Name of the disk.
    pub name: String,
    /// Name of the claim.
    pub claim_name: String,
    /// Two nodes may open the volume at the same time: a migration opens it on both. Any other is copied to a new claim.
    #[serde(default)]
    pub shared: bool,
    /// Size of the volume as the disk in the running guest uses it; absent if the disk is not written, or of an older runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub size: Option<Quantity>,
    /// The disk is not written.
    #[serde(default, skip_serializing_if = "schema::is_false")]
    pub read_only: bool,
    /// The claim by the spec, if `claimName` is another one that has had its content since a migration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub copy_of: String,
    /// The claim before the last migration, until it is deleted or marked as replaced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous: String,
    /// The previous claim is not deleted.
    #[serde(default, skip_serializing_if = "schema::is_false")]
    pub retain_previous: bool,
}

impl VolumeStatus {
    /// Whether a migration copies it.
    #[must_use]
    pub const fn is_copied(&self) -> bool {
        !self.shared && !self.read_only
    }

    /// The claim that gets its copy: `POD-DISK` for the target pod.
    #[must_use]
    pub fn copy_name(&self, target_pod: &str) -> String {
        format!("{target_pod}-{}", self.name)
    }
}

/// Of which claim another claim is the copy, in the annotation [`COPY_OF`](crate::names::annotation::COPY_OF).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOf {
    /// Name of the claim in the VM's spec.
    pub claim: String,
    /// UID of the VM.
    pub vm: String,
    /// The VM has run on it: it has the content. Until then it may be a part.
    #[serde(default)]
    pub whole: bool,
}

/// The active migration of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveMigration {
    /// Its name; it is in the VM's namespace.
    pub name: String,
    /// UID of the migration.
    pub uid: String,
    /// The pod the VM goes to.
    pub target_pod_name: String,
    /// The node of that pod; empty until it has one. Until then the VM is scaled as before, see [`VirtualMachineStatus::size_is_held`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_node: String,
    /// Claims whose volumes are copied stay when the VM has left them.
    #[serde(default, skip_serializing_if = "schema::is_false")]
    pub retain_volumes: bool,
    /// Where the newest content of copied volumes is, once the source has given the guest up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<MigrationSide>,
}

/// One of the two pods of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MigrationSide {
    /// The pod that the VM leaves: it got the guest back because the target is gone.
    Source,
    /// The pod that the VM goes to.
    Target,
}

impl VirtualMachineStatus {
    /// Why the VM cannot be migrated: a disk that is not written is on a claim that one node at a time can mount. Only disks that are
    /// written are copied.
    #[must_use]
    pub fn pinned_by(&self) -> Option<String> {
        let volume = self.volumes.iter().find(|volume| volume.read_only && !volume.shared)?;
        let (disk, claim) = (&volume.name, &volume.claim_name);
        Some(format!(
            "disk {disk} is read-only and on claim {claim}, which one node at a time can mount (it is not ReadOnlyMany)"
        ))
    }

    /// The claim that has the content of a disk for which the spec names this one.
    #[must_use]
    pub fn claim_for<'a>(&'a self, disk: &str, named: &'a str) -> &'a str {
        self.moved(disk, named).map_or(named, |volume| volume.claim_name.as_str())
    }

    /// The volume of a disk whose content is in another claim than this one, which the spec names.
    #[must_use]
    pub fn moved(&self, disk: &str, named: &str) -> Option<&VolumeStatus> {
        self.volumes.iter().find(|volume| volume.name == disk && volume.copy_of == named)
    }

    /// Whether the guest writes to volumes that outlive its pod.
    #[must_use]
    pub fn writes_volumes(&self) -> bool {
        self.volumes.iter().any(|volume| !volume.read_only)
    }

    /// Volumes that a migration copies, each with the claim that gets the copy.
    pub fn copies<'a>(&'a self, target_pod: &'a str) -> impl Iterator<Item = (&'a VolumeStatus, String)> {
        let copied = self.volumes.iter().filter(|volume| volume.is_copied());
        copied.map(move |volume| (volume, volume.copy_name(target_pod)))
    }

    /// Whether the VM keeps its size because of its migration: its target was made for a guest of this size, and has a node. A migration
    /// that has no room anywhere holds nothing, for however long it waits.
    #[must_use]
    pub fn size_is_held(&self) -> bool {
        let placed = self.migration.as_ref().is_some_and(|lock| !lock.target_node.is_empty());
        placed || matches!(self.phase, Some(Phase::PreMigrating | Phase::Migrating))
    }
}

/// What a VM is made of: a migration target must be its equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// `kvm` or `tcg`.
    #[serde(default)]
    pub accelerator: String,
    /// Why it is not the requested accelerator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accelerator_note: String,
    /// Versioned machine type, such as `pc-q35-7.2`.
    #[serde(default)]
    pub machine_type: String,
    /// CPU model, such as `host` or `max`.
    #[serde(default)]
    pub cpu_model: String,
    /// Manufacturer that the guest's CPU names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu_vendor: String,
    /// Features of the guest's CPU, by QEMU's names, separated by blanks: a node needs all of them to receive the VM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu_features: String,
    /// Version of QEMU.
    #[serde(default)]
    pub qemu_version: String,
    /// How the guest is connected: `tap` or `user`.
    #[serde(default)]
    pub network: String,
}

impl Machine {
    /// As the runner reports it.
    #[must_use]
    pub fn from_info(info: &MachineInfo) -> Self {
        let features: Vec<&str> = info.cpu_features.iter().map(String::as_str).collect();
        Self {
            accelerator: info.accelerator.clone(),
            accelerator_note: info.accelerator_note.clone(),
            machine_type: info.machine_type.clone(),
            cpu_model: info.cpu_model.clone(),
            cpu_vendor: info.cpu_vendor.clone(),
            cpu_features: features.join(" "),
            qemu_version: info.qemu_version.clone(),
            network: info.network_text(),
        }
    }

    /// What is compared with a host, see [`neonvm_types::runner_protocol::facts`].
    #[must_use]
    pub fn to_info(&self) -> MachineInfo {
        MachineInfo {
            accelerator: self.accelerator.clone(),
            machine_type: self.machine_type.clone(),
            cpu_model: self.cpu_model.clone(),
            cpu_vendor: self.cpu_vendor.clone(),
            cpu_features: self.cpu_features.split_whitespace().map(str::to_owned).collect(),
            qemu_version: self.qemu_version.clone(),
            network: self.network.clone(),
            ..MachineInfo::default()
        }
    }
}

/// The workload in the guest, as far as it was started again there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// How often it was started again since the VM started.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub restarts: u32,
    /// Its last exit code, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the guest's kernel killed it for want of memory.
    #[serde(default)]
    pub out_of_memory: bool,
    /// When this was written; at most twice a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub time: Option<Timestamp>,
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastExit {
    /// One word, such as `WorkloadEnded` or `GuestPanic`.
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Exit code of the workload, if that ended the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The pod in which it ended.
    #[serde(default)]
    pub pod_name: String,
    /// When it was noticed.
    #[schemars(schema_with = "schema::time")]
    pub time: Timestamp,
    /// The last lines of the console.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
}

/// Where a VM is in its life. Before the first pass of the controller there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Its pod is on its way.
    Pending,
    /// It runs at the requested size.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has ended badly.
    Failed,
    /// A migration is being prepared.
    PreMigrating,
    /// It is being migrated.
    Migrating,
    /// It runs and its size is changing.
    Scaling,
    /// Its memory is in a file, and it wakes when it is needed.
    Suspended,
}

impl Phase {
    /// Whether the guest is running.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Running | Self::PreMigrating | Self::Migrating | Self::Scaling | Self::Suspended)
    }

    /// The text in the object.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::PreMigrating => "PreMigrating",
            Self::Migrating => "Migrating",
            Self::Scaling => "Scaling",
            Self::Suspended => "Suspended",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
