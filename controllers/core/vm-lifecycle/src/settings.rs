//! Settings of an installation that the life of VMs follows.

use neonvm_api::Policy;
use neonvm_api::runner_pod::RunnerSettings;
use neonvm_api::virtual_machine::CpuScalingMode;
use neonvm_types::Accelerator;

/// Settings of an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image of the runner, for VMs that do not name one.
    pub runner_image: String,
    /// Default CPU scaling mode, written into machines without one.
    pub cpu_scaling_mode: CpuScalingMode,
    /// Whether nodes offer `neonvm/kvm`, `neonvm/node` and `neonvm/vhost-net` as resources; then pods request them.
    pub device_plugin: bool,
    /// Whether runner pods request what their VM has, and follow it by in-place resize. Only not where Kubernetes is too old for that.
    pub pod_size: bool,
    /// How root disks and kernels get out of their images.
    pub root_disk: RootDiskFrom,
    /// What VMs run on. VMs that run already keep what they have.
    pub accelerator: Accelerator,
    /// Network attachment (`<namespace>/<name>`) of VMs with an extra network that do not name one.
    pub network_attachment: Option<String>,
    /// What authors may request: by the policy of the installation, or, for the functions of one VM, of its namespace.
    pub policy: Policy,
    /// Labels and annotations of VMs that are copied to their pods besides our own: keys, or prefixes that end with `/`.
    pub pod_metadata: Vec<String>,
    pub runner: RunnerSettings,
    /// Whether pods of VMs that write to volumes have the annotations by which Velero freezes file systems during a backup.
    pub backup_hooks: bool,
    /// Whether runners write their own lines as JSON.
    pub json_logs: bool,
    /// Scheduler of VMs that name none; empty: the cluster's default.
    pub scheduler: String,
    /// `PriorityClass` of VMs that name none; empty: the cluster's default.
    pub priority_class: String,
    /// First pause before a VM that ended again and again is started, in seconds. The very first restart is at once.
    pub restart_pause: i64,
    /// Longest such pause, in seconds.
    pub restart_pause_max: i64,
    /// How long a VM must have been available for its history to be forgotten, in seconds.
    pub stable_after: i64,
    /// How long a runner may be unreachable before that is reported, in seconds.
    pub unreachable_after: i64,
    /// How long a kubelet may take for a resize of a pod before that is reported, in seconds.
    pub resize_timeout: i64,
    /// How long a request to a runner without a response may still arrive, in seconds.
    pub request_lifetime: i64,
    /// Pause before a resize that the API server refused is requested again, in seconds.
    pub resize_pause: i64,
    /// First pause before a resize that was denied because devices are away is requested again, in seconds; grows with the time that
    /// they are away.
    pub devices_pause: i64,
    /// How long a pod may exceed its grace period before that is reported, in seconds.
    pub stuck_after: i64,
    /// First pause before a refused certificate is requested again, in seconds; doubles up to 64 times as much.
    pub certificate_pause: i64,
    pub migration: MigrationSettings,
    /// When a VM is migrated because its node denied a growth.
    pub growth: GrowthSettings,
}

/// How the files of an image, a root disk or a kernel, get into a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootDiskFrom {
    /// The image is a volume of the pod: Kubernetes 1.35, containerd 2.1, CRI-O 1.33.
    #[default]
    ImageVolume,
    /// An init container copies the file into an empty directory of the pod, once for each pod.
    Copy,
}

/// When a VM is migrated because its node denied a growth. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthSettings {
    /// How long a kubelet may defer a growth.
    pub deferred_after: i64,
    /// First pause after a migration; doubled for each further one within a day.
    pub pause: i64,
    /// Longest such pause.
    pub pause_max: i64,
    /// Most migrations of a VM within a day.
    pub most: usize,
    /// Pause before nodes are listed again, after none had room.
    pub look_pause: i64,
}

impl Default for GrowthSettings {
    fn default() -> Self {
        Self { deferred_after: 30, pause: 60, pause_max: 3600, most: 6, look_pause: 60 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationSettings {
    /// Most migrations at once.
    pub cluster: usize,
    /// Most migrations of the VMs of one namespace at once, away from nodes that are not cordoned.
    pub namespace: usize,
    /// Most machines that leave a node at once.
    pub outbound: usize,
    /// Most machines that come to a node at once.
    pub inbound: usize,
    /// How long a target pod may take to be ready for the VM, in seconds.
    pub prepare_timeout: i64,
    /// How long a target pod may be unscheduled while other migrations wait, in seconds.
    pub place_timeout: i64,
    /// How long the source runner may refuse, or not answer, the order to begin, in seconds.
    pub start_timeout: i64,
    /// Pause before the order to recover a paused post-copy is repeated, in seconds.
    pub recover_pause: i64,
}

impl Default for MigrationSettings {
    fn default() -> Self {
        Self {
            cluster: 5,
            namespace: 3,
            outbound: 2,
            inbound: 2,
            prepare_timeout: 300,
            place_timeout: 30,
            start_timeout: 60,
            recover_pause: 10,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            runner_image: String::from("neonvm-runner:latest"),
            cpu_scaling_mode: CpuScalingMode::SysfsScaling,
            device_plugin: false,
            pod_size: true,
            root_disk: RootDiskFrom::ImageVolume,
            accelerator: Accelerator::Auto,
            network_attachment: None,
            policy: Policy::default(),
            pod_metadata: Vec::new(),
            runner: RunnerSettings::default(),
            backup_hooks: true,
            json_logs: false,
            scheduler: String::new(),
            priority_class: String::new(),
            restart_pause: 10,
            restart_pause_max: 300,
            stable_after: 600,
            unreachable_after: 15,
            resize_timeout: 30,
            request_lifetime: 60,
            resize_pause: 60,
            devices_pause: 10,
            stuck_after: 30,
            certificate_pause: 10,
            migration: MigrationSettings::default(),
            growth: GrowthSettings::default(),
        }
    }
}
