//! `VirtualMachine`: a VM, its guest, and how far it is.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::CustomResource;
use neonvm_types::{MilliCpu, Quantity, RevisionWithTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::GoDuration, guest_path, schema, schema::rules};

mod disk;
mod disk_limit;
mod guest;
mod status;

pub use disk::{
    ClaimDisk, ClaimMetadata, ClaimRetention, ClaimRetentionPolicy, ClaimTemplate, Disk, EmptyDisk, TmpfsDisk,
};
pub use disk_limit::{BANDWIDTH, BURST_SECONDS, DiskLimit, DiskLimitBurst, IOPS};
pub use guest::{
    Attach, CpuBounds, EnvVar, Guest, GuestSettings, ImagePullPolicy, MemorySlots, Port, PortProtocol,
    RootDisk, SwapInfo,
};
pub use status::{
    ActiveMigration, CopyOf, LastExit, Machine, MigrationSide, Phase, ScalingFrom, VirtualMachineStatus,
    VolumeStatus, Workload,
};

/// Default TCP port of QEMU's control socket in old runners.
pub const DEFAULT_QMP_PORT: u16 = 20183;
/// Default TCP port of QEMU's second control socket in old runners.
pub const DEFAULT_QMP_MANUAL_PORT: u16 = 20184;
/// Default TCP port of the runner.
pub const DEFAULT_RUNNER_PORT: u16 = neonvm_types::runner_protocol::RUNNER_PORT;

/// Characters of QEMU's names of CPU models.
const CPU_MODEL_PATTERN: &str = "^[A-Za-z0-9._-]*$";

/// A name of a PriorityClass: a DNS subdomain, as Kubernetes has it, or none.
const PRIORITY_CLASS_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$";

/// Whether a text can be QEMU's name of a CPU model: 1–64 letters, digits, `.`, `_` and `-`.
#[must_use]
pub fn is_cpu_model(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(plain)
}

/// What a virtual machine should be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "vm.neon.tech",
    version = "v1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    singular = "neonvm",
    shortname = "vm",
    category = "neon",
    namespaced,
    status = "VirtualMachineStatus",
    derive = "PartialEq",
    doc = "A virtual machine whose CPU and memory change while it runs.",
    selectable = ".status.node",
    printcolumn = r#"{"name":"Cpus","type":"string","jsonPath":".status.cpus"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".status.memorySize"}"#,
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".status.podName"}"#,
    printcolumn = r#"{"name":"ExtraIP","type":"string","jsonPath":".status.extraNetIP"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Restarts","type":"integer","jsonPath":".status.restartCount"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Available\")].reason"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".status.node","priority":1}"#,
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.guest.rootDisk.image","priority":1}"#,
    printcolumn = r#"{"name":"CPUScalingMode","type":"string","jsonPath":".spec.cpuScalingMode","priority":1}"#,
    printcolumn = r#"{"name":"TargetArchitecture","type":"string","jsonPath":".spec.targetArchitecture","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::virtual_machine_spec()))]
pub struct VirtualMachineSpec {
    /// Has no effect; kept so that existing manifests are read. The runner holds QEMU's control socket, which has no port.
    #[serde(default = "default_qmp")]
    #[schemars(range(min = 1, max = 65535))]
    pub qmp: u16,
    /// Has no effect; kept so that existing manifests are read.
    #[serde(default = "default_qmp_manual")]
    #[schemars(range(min = 1, max = 65535))]
    pub qmp_manual: u16,
    /// TCP port of the runner.
    #[serde(default = "default_runner_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub runner_port: u16,
    /// How long the guest has to shut down, in seconds.
    #[serde(default = "default_grace", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules about nodes and other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::foreign::<core::Affinity>")]
    pub affinity: Option<core::Affinity>,
    /// Node taints the VM bears.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::foreign::<Vec<core::Toleration>>")]
    pub tolerations: Vec<core::Toleration>,
    /// The scheduler that chooses the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    /// Service account of the pod; its token is not mounted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// PriorityClass of the pod: the order in which pods get nodes, and which of them may preempt others. Absent: that of the
    /// installation (`--vm-priority-class`), or else the cluster's default. A change holds from the next pod on, also that of a
    /// migration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253), regex(pattern = PRIORITY_CLASS_PATTERN))]
    pub priority_class_name: String,
    /// Resources of the runner container.
    #[serde(default)]
    #[schemars(schema_with = "schema::foreign::<core::ResourceRequirements>", extend("default" = {}))]
    pub pod_resources: core::ResourceRequirements,
    /// Whether the VM is started again when it has ended.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    /// Whether the VM runs. `Stopped` shuts the guest down and removes the pod; the object, its address and its keys stay. `Paused`
    /// lets the guest's CPUs stand still; memory, pod and connections stay, and a guest that boots is paused when it is up. `Suspended`
    /// stores the guest's memory in a file of the pod and ends QEMU; the first packet for the guest wakes it, and the field is `Running`
    /// again. Absent: `Running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
    /// When a VM that does nothing is suspended. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// Any text. A change restarts the VM, whatever its restart policy is: the guest is shut down and started in a new pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub restart_request: Option<String>,
    /// Secrets for pulling images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::foreign::<Vec<core::LocalObjectReference>>")]
    pub image_pull_secrets: Vec<core::LocalObjectReference>,
    /// CPU architecture of the node; may be set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_architecture: Option<Architecture>,
    /// The VM inside.
    pub guest: Guest,
    /// Containers that run before the VM, after the built-in ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::foreign::<Vec<core::Container>>")]
    pub extra_init_containers: Vec<core::Container>,
    /// Shell script the runner executes before anything else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub init_script: String,
    /// Disks besides the root disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<Disk>,
    /// How fast the guest may read and write its disks. May change while the VM runs, which the disks themselves may not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["disk"]))]
    pub disk_limits: Vec<DiskLimit>,
    /// Claims that are made for the VM when they are missing, each for the disk with the template's name. A claim is named
    /// `TEMPLATE-VM`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// What becomes of the claims of the templates. Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,
    /// An interface on the overlay network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_network: Option<ExtraNetwork>,
    /// Whether the pod gets environment variables about services.
    #[serde(rename = "service_links", default, skip_serializing_if = "Option::is_none")]
    pub service_links: Option<bool>,
    /// Use hardware virtualisation.
    #[serde(default = "yes")]
    pub enable_acceleration: bool,
    /// Runner image, if not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_image: Option<String>,
    /// Make SSH keys and let them log in.
    #[serde(default = "yes", rename = "enableSSH")]
    pub enable_ssh: bool,
    /// A TLS certificate for the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Factors by which the scheduler may overcommit for this VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<Overcommit>,
    /// The revision the status should reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::revision_with_time")]
    pub target_revision: Option<RevisionWithTime>,
    /// How CPUs come and go; filled in once by the controller if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_scaling_mode: Option<CpuScalingMode>,
    /// CPU model of the guest by QEMU's name, such as `EPYC-v1` or `Skylake-Server-v4`, for nodes with unlike processors: the guest
    /// has the same CPU on each, and can be migrated between them. With KVM the VM starts only on processors that have all of the
    /// model's features. Absent: that of the installation (`--cpu-model`), or else all that the node's processor has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64), regex(pattern = CPU_MODEL_PATTERN))]
    pub cpu_model: String,
    /// Count the bytes of TCP that the guest exchanges with addresses that are neither private nor loopback, and serve them on the
    /// runner's `/metrics`, without a client certificate.
    #[serde(default)]
    pub enable_network_monitoring: bool,
}

fn default_qmp() -> u16 {
    DEFAULT_QMP_PORT
}

fn default_qmp_manual() -> u16 {
    DEFAULT_QMP_MANUAL_PORT
}

fn default_runner_port() -> u16 {
    DEFAULT_RUNNER_PORT
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the field is absent after a null in a stored object, present by default"
)]
fn default_grace() -> Option<i64> {
    Some(5)
}

fn yes() -> bool {
    true
}

/// When a VM that does nothing is suspended, and what wakes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Time without work and without packets between the guest and others after which it is suspended: 10s to 720h.
    #[schemars(schema_with = "schema::duration")]
    pub suspend_after: GoDuration,
    /// What wakes it, besides commands that need the guest and `powerState`. An empty list: nothing else.
    #[serde(default = "any_wake")]
    #[schemars(length(max = 1))]
    pub wake_on: Vec<WakeOn>,
}

/// Shortest and longest time of [`Idle::suspend_after`].
pub const SUSPEND_AFTER: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(720 * 3600));

/// What wakes a suspended VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WakeOn {
    /// A packet for the guest.
    Network,
}

fn any_wake() -> Vec<WakeOn> {
    vec![WakeOn::Network]
}

/// Whether a VM runs, or stands still in memory (Paused) or in a file (Suspended).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PowerState {
    /// It runs, and is started again by its restart policy.
    Running,
    /// It does not run.
    Stopped,
    /// Its guest is in memory, and the CPUs of the guest stand still.
    Paused,
    /// Its guest is in a file, and no QEMU runs.
    Suspended,
}

/// When a VM is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// However it ended.
    #[default]
    Always,
    /// When it failed.
    OnFailure,
    /// Not at all.
    Never,
}

/// CPU architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// 64-bit x86.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

/// How CPUs come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::enum_variant_names, reason = "the names are those of the wire format")]
pub enum CpuScalingMode {
    /// QEMU plugs and unplugs them.
    QmpScaling,
    /// All are there; the guest takes them on and off line.
    SysfsScaling,
}

/// An interface on the overlay network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraNetwork {
    /// Whether the VM gets it.
    #[serde(default)]
    pub enable: bool,
    /// Its name in the pod.
    #[serde(default = "default_interface")]
    pub interface: String,
    /// The network attachment, `<namespace>/<name>`, if not the usual one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub multus_network: String,
}

fn default_interface() -> String {
    "net1".to_owned()
}

/// A TLS certificate for the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The cluster issuer that signs it; empty: the authority for VMs of the controller, which no service trusts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificate_issuer: String,
    /// How long it is valid.
    #[serde(default)]
    #[schemars(schema_with = "schema::duration", extend("default" = "0s"))]
    pub expire_after: GoDuration,
    /// How long before its end a new one is requested.
    #[serde(default)]
    #[schemars(schema_with = "schema::duration", extend("default" = "0s"))]
    pub renew_before: GoDuration,
    /// Common name and only DNS name. Names of services (`*.neonvm`, `*.vm.neon.tech`) are refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = rules::tls_server_name()))]
    pub server_name: String,
    /// Where it appears in the guest.
    #[serde(default = "default_tls_mount")]
    #[schemars(length(min = 2, max = 4096), regex(pattern = guest_path::PATTERN), extend("x-kubernetes-validations" = guest_path::rules()))]
    pub mount_path: String,
}

fn default_tls_mount() -> String {
    "/var/tls".to_owned()
}

/// Factors by which the scheduler may overcommit: with 2, twice the size counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overcommit {
    /// For CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub cpu: Option<Quantity>,
    /// For memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub memory: Option<Quantity>,
}

impl VirtualMachineSpec {
    /// Whether the VM is to be off.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.power_state == Some(PowerState::Stopped)
    }

    /// Names and places of the file systems that the guest writes, whose use is watched: the root, and disks other than those of files.
    #[must_use]
    pub fn mounted_disks(&self) -> Vec<(String, String)> {
        let root = (neonvm_types::guest::ROOT.to_owned(), neonvm_types::guest::ROOT.to_owned());
        let written = |disk: &&Disk| !disk.read_only && disk.config_map.is_none() && disk.secret.is_none();
        let disks = self.disks.iter().filter(written);
        std::iter::once(root).chain(disks.map(|disk| (disk.name.clone(), disk.mount_path.clone()))).collect()
    }

    /// The disks whose content a claim has, each with the claim's name, for a VM with this name.
    pub fn claims<'a>(&'a self, vm: &'a str) -> impl Iterator<Item = (&'a Disk, String)> {
        self.disks.iter().filter_map(move |disk| Some((disk, disk.claim(vm)?)))
    }

    /// Whether the claims of the templates go with the VM.
    #[must_use]
    pub fn deletes_claims(&self) -> bool {
        let policy = self.persistent_volume_claim_retention_policy;
        policy.is_some_and(|policy| policy.when_deleted == ClaimRetention::Delete)
    }

    /// Whether the guest's CPUs are to stand still.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.power_state == Some(PowerState::Paused)
    }

    /// Whether the guest is to be in a file.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.power_state == Some(PowerState::Suspended)
    }

    /// Time without work after which the VM is suspended.
    #[must_use]
    pub fn idle_after(&self) -> Option<Duration> {
        self.idle.as_ref().and_then(|idle| idle.suspend_after.to_std())
    }

    /// Whether packets wake it.
    #[must_use]
    pub fn wakes_on_network(&self) -> bool {
        self.idle.as_ref().is_none_or(|idle| idle.wake_on.contains(&WakeOn::Network))
    }

    /// Whether a restart is requested beyond the one that the status has carried out.
    #[must_use]
    pub fn is_to_restart(&self, status: &VirtualMachineStatus) -> bool {
        self.restart_request.is_some() && self.restart_request != status.restart_request
    }

    /// The spec with every default, for a guest.
    #[must_use]
    pub fn new(guest: Guest) -> Self {
        Self {
            qmp: default_qmp(),
            qmp_manual: default_qmp_manual(),
            runner_port: default_runner_port(),
            termination_grace_period_seconds: default_grace(),
            node_selector: BTreeMap::new(),
            affinity: None,
            tolerations: Vec::new(),
            scheduler_name: String::new(),
            service_account_name: String::new(),
            priority_class_name: String::new(),
            pod_resources: core::ResourceRequirements::default(),
            restart_policy: RestartPolicy::default(),
            idle: None,
            power_state: None,
            restart_request: None,
            image_pull_secrets: Vec::new(),
            target_architecture: None,
            guest,
            extra_init_containers: Vec::new(),
            init_script: String::new(),
            disks: Vec::new(),
            disk_limits: Vec::new(),
            volume_claim_templates: Vec::new(),
            persistent_volume_claim_retention_policy: None,
            extra_network: None,
            service_links: None,
            enable_acceleration: true,
            runner_image: None,
            enable_ssh: true,
            tls: None,
            overcommit: None,
            target_revision: None,
            cpu_scaling_mode: None,
            cpu_model: String::new(),
            enable_network_monitoring: false,
        }
    }
}

impl CpuBounds {
    /// The same amount for all three.
    #[must_use]
    pub const fn fixed(cpu: MilliCpu) -> Self {
        Self { min: cpu, max: cpu, r#use: cpu }
    }
}

#[cfg(test)]
mod tests;
