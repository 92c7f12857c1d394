//! What may be chosen about an installation. The comments of the fields are the documentation: the chart's `values.yaml` and its schema
//! are made of them.

pub(crate) mod choice;
pub(crate) mod describe;

use std::collections::BTreeMap;

use neonvm_api::lifetimes::Lifetimes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Namespaces that the services may not share: what an uninstallation removes must be ours.
const RESERVED: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Most replicas of a service: more than one of them wait, always.
const REPLICAS: u16 = 9;

/// What may be chosen about an installation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    /// Namespace of the services, which have it for themselves. A Helm chart is installed into that of the release instead.
    pub namespace: String,
    /// Services that are installed: vm-controller, scheduler, agent, pod-autoscaler. agent and scheduler need vm-controller. Without
    /// scheduler the kubelet of each node permits growth, and no VM leaves a node that becomes full.
    pub components: Vec<Component>,
    /// Images of the services.
    pub image: Image,
    /// Reconciles VMs, migrations and address pools; serves the webhooks.
    pub vm_controller: Service,
    /// Places VMs and permits their sizes.
    pub scheduler: Scheduler,
    /// Scales the VMs of its node.
    pub agent: Agent,
    /// Scales replicas of workloads; serves the webhooks for PodAutoscalers.
    pub pod_autoscaler: Service,
    /// Network between VMs of all nodes.
    pub overlay: Overlay,
    /// What runs each VM.
    pub runner: Runner,
    /// Certificates that services, runners and webhooks show each other.
    pub certificates: Certificates,
    /// How services and runners write their logs. text: for people. json: an object for each line with upstream's keys level, ts,
    /// logger and msg; in the log of a runner's pod it follows the source, as in runner| {...}.
    pub log_format: LogFormat,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            namespace: neonvm_api::names::SYSTEM_NAMESPACE.to_owned(),
            components: Component::ALL.to_vec(),
            image: Image::default(),
            vm_controller: Service::default(),
            scheduler: Scheduler::default(),
            agent: Agent::default(),
            pod_autoscaler: Service::default(),
            overlay: Overlay::default(),
            runner: Runner::default(),
            certificates: Certificates::default(),
            log_format: LogFormat::default(),
        }
    }
}

/// A service that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Reconciles VMs.
    VmController,
    /// Places VMs and permits their sizes.
    Scheduler,
    /// Scales the VMs of its node.
    Agent,
    /// Scales replicas.
    PodAutoscaler,
}

impl Component {
    /// Every one, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::VmController, Self::Scheduler, Self::Agent, Self::PodAutoscaler];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::VmController => "vm-controller",
            Self::Scheduler => "scheduler",
            Self::Agent => "agent",
            Self::PodAutoscaler => "pod-autoscaler",
        }
    }
}

/// Images of the services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// Registry and path, without the names of the images: registry.example/neonvm. Empty: images that the nodes have.
    pub registry: String,
    /// Tag of the images.
    pub version: String,
    /// When nodes pull: Always, IfNotPresent or Never.
    pub pull_policy: PullPolicy,
    /// Secrets in the namespace of the services to pull with, each as {name: NAME}.
    pub pull_secrets: Vec<Reference>,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            registry: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pull_policy: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
        }
    }
}

/// When nodes pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At every start.
    Always,
    /// What a node lacks.
    IfNotPresent,
    /// Never.
    Never,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Its name.
    pub name: String,
}

/// A Deployment of ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Service {
    /// Replicas, 1 to 9; one works and the others wait to take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// What a replica requests and may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels of nodes that it may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
}

/// The scheduler: a stock kube-scheduler and our extender in one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scheduler {
    /// Replicas, 1 to 9; one works and the others wait to take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// Whether agents of upstream's releases find this scheduler, by a pod in kube-system. They send plain HTTP without authentication:
    /// every client that reaches the port 10299 of that pod may request sizes for any VM.
    pub upstream_agents: bool,
    /// Image of the kube-scheduler. Empty: registry.k8s.io/kube-scheduler of the cluster's own version.
    pub kube_scheduler_image: String,
    /// What the kube-scheduler requests and may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_scheduler_resources: Option<Resources>,
    /// What the extender requests and may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels of nodes that it may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
}

/// The agent, on each node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Agent {
    /// What it requests and may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels of nodes that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
}

/// The overlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Overlay {
    /// none: VMs have the network of their pods. multus: VMs with spec.extraNetwork have an address that moves with them, which needs
    /// Multus in the cluster and rights on the network of each node.
    pub network: Network,
    /// none or wireguard: what nodes send each other on the overlay. wireguard needs that module in the kernel of each node.
    pub encryption: Encryption,
    /// What its controller on each node requests and may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Taints that are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels of nodes that it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
}

/// How VMs are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Not at all.
    #[default]
    None,
    /// By Multus.
    Multus,
}

/// How the overlay is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Not at all.
    #[default]
    None,
    /// By WireGuard.
    Wireguard,
}

/// What runs each VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Runner {
    /// Image of runners. Empty: neonvm-runner of the same registry and version.
    pub image: String,
    /// How root disks and kernels get out of their images. image-volume: nodes mount the image, which needs Kubernetes 1.35 (or the
    /// feature gate ImageVolume) and containerd 2.1 or CRI-O 1.33. copy: an init container copies the file into each pod, which takes
    /// time and the node's ephemeral storage. auto: image-volume where the cluster has it.
    pub root_disk: RootDisk,
    /// auto: KVM where the node has it and it runs guest code, else emulation. kvm: only nodes with KVM run VMs. tcg: emulation always.
    pub accelerator: Accelerator,
    /// How CPUs come and go in VMs that do not set spec.cpuScalingMode. SysfsScaling: all are there from the start, and the guest uses
    /// as many as its size has, with every accelerator. QmpScaling, which upstream deploys: QEMU plugs and unplugs them; emulated
    /// VMs only grow.
    pub cpu_scaling_mode: CpuScaling,
    /// CPU model of VMs that do not set spec.cpuModel, by QEMU's name, such as EPYC-v1 or Skylake-Server-v4: one that all nodes can
    /// run, so that VMs can be migrated between unlike processors. Empty: all that the node's processor has.
    #[schemars(length(max = 64), regex(pattern = "^[A-Za-z0-9._-]*$"))]
    pub cpu_model: String,
    /// PriorityClass of VMs that do not set spec.priorityClassName.
    pub priority_class: PriorityClass,
    /// How QEMU opens disks of VMs that start from now on. buffered: by the page cache of the node. direct: bypassing it, as upstream
    /// does. With both a flush of the guest reaches the disk.
    pub disk_cache: DiskCache,
    /// Hooks of backups in the pods of VMs that write to volumes. velero: annotations by which Velero freezes the file systems of the guest
    /// while it copies the volumes, for 60 s at most. none: no annotations; what is copied is as after a power cut.
    pub backup_hooks: BackupHooks,
}

/// A PriorityClass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PriorityClass {
    /// Its name. Empty, with the value 0: VMs have the priority that the cluster gives to pods without a class.
    #[schemars(length(max = 253), regex(pattern = "^[a-z0-9.-]*$"))]
    pub name: String,
    /// The value with which the class is made, preempting no pods. Kubernetes never changes the value of a class: choose another
    /// name with another value. 0: the class is not made, because it exists.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub value: i32,
}

impl PriorityClass {
    fn check(&self) -> Result<(), Error> {
        if !(0..=1_000_000_000).contains(&self.value) {
            return Err(Error::invalid(
                "runner.priorityClass.value",
                "use 0 to 1000000000; higher ones are those of Kubernetes",
            ));
        }
        if self.name.is_empty() && self.value != 0 {
            return Err(Error::invalid(
                "runner.priorityClass",
                "a class needs a name; for none set its value to 0, too",
            ));
        }
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        if !self.name.chars().all(good) {
            let why =
                format!("{:?} has other characters than lower-case letters, digits, '-' and '.'", self.name);
            return Err(Error::invalid("runner.priorityClass.name", why));
        }
        Ok(())
    }
}

impl Default for PriorityClass {
    fn default() -> Self {
        Self { name: "neonvm-vms".to_owned(), value: 900_000_000 }
    }
}

/// Lifetimes of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Certificates {
    /// Life of a certificate in seconds. It is renewed when two thirds of it are over. With less than 600 a kubelet may be too slow to
    /// bring a runner its new one.
    #[schemars(range(min = 60, max = 315_360_000))]
    pub lifetime_seconds: u64,
    /// Life of the authority that signs them in seconds, at least ten times that of a certificate. Before two thirds of it are over the
    /// next authority is trusted, and signs.
    #[schemars(range(min = 600, max = 3_153_600_000_u64))]
    pub authority_lifetime_seconds: u64,
}

impl Certificates {
    fn check(self) -> Result<(), Error> {
        Lifetimes::new(self.lifetime_seconds, self.authority_lifetime_seconds)
            .map(drop)
            .map_err(|error| Error::invalid("certificates", error.to_string()))
    }
}

impl Default for Certificates {
    fn default() -> Self {
        let lives = Lifetimes::DEFAULT;
        Self {
            lifetime_seconds: lives.certificate().unsigned_abs(),
            authority_lifetime_seconds: lives.authority().unsigned_abs(),
        }
    }
}

/// How disks are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// By the page cache.
    #[default]
    Buffered,
    /// Bypassing it.
    Direct,
}

/// Hooks of backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupHooks {
    /// Those of Velero.
    #[default]
    Velero,
    /// No hooks.
    None,
}

/// How CPUs come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CpuScaling {
    /// The guest takes them into use.
    #[default]
    #[serde(rename = "SysfsScaling")]
    Sysfs,
    /// QEMU plugs them.
    #[serde(rename = "QmpScaling")]
    Qmp,
}

/// How root disks get out of their images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RootDisk {
    /// By what the cluster has.
    #[default]
    Auto,
    /// Nodes mount images.
    ImageVolume,
    /// Init containers copy.
    Copy,
}

/// What VMs run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The best there is.
    #[default]
    Auto,
    /// KVM.
    Kvm,
    /// Emulation.
    Tcg,
}

/// Requests and limits, by the names of resources, as quantities such as 100m or 64Mi.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// What is kept free for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// What it may use at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// A toleration, as pods have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Toleration {
    /// Key of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Exists or Equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Seconds that a taint with `NoExecute` is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Values {
    /// Whether a service is chosen.
    #[must_use]
    pub fn has(&self, component: Component) -> bool {
        self.components.contains(&component)
    }

    /// The rules that types do not express.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !is_label(&self.namespace) {
            return Err(Error::invalid("namespace", "use lower-case letters, digits and dashes, at most 63"));
        }
        if RESERVED.contains(&self.namespace.as_str()) {
            let why = format!(
                "{} is shared with others; the services get a namespace of their own",
                self.namespace
            );
            return Err(Error::invalid("namespace", why));
        }
        self.check_images()?;
        self.runner.priority_class.check()?;
        self.certificates.check()?;
        if self.components.is_empty() {
            return Err(Error::invalid("components", "name one at least"));
        }
        for component in [Component::Agent, Component::Scheduler] {
            if self.has(component) && !self.has(Component::VmController) {
                let why = format!("{} needs vm-controller, which signs its certificates", component.name());
                return Err(Error::invalid("components", why));
            }
        }
        for (path, replicas) in [
            ("vmController", self.vm_controller.replicas),
            ("scheduler", self.scheduler.replicas),
            ("podAutoscaler", self.pod_autoscaler.replicas),
        ] {
            if replicas.is_some_and(|count| !(1..=REPLICAS).contains(&count)) {
                return Err(Error::invalid(format!("{path}.replicas"), format!("choose 1 to {REPLICAS}")));
            }
        }
        if self.scheduler.upstream_agents && !self.has(Component::Scheduler) {
            let why = "upstream's agents are to find the component scheduler; install it too";
            return Err(Error::invalid("scheduler.upstreamAgents", why));
        }
        if self.overlay.encryption != Encryption::None && self.overlay.network == Network::None {
            return Err(Error::invalid(
                "overlay.encryption",
                "there is no overlay to encrypt; set overlay.network too",
            ));
        }
        Ok(())
    }

    fn check_images(&self) -> Result<(), Error> {
        let tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let version = &self.image.version;
        if version.is_empty() || version.len() > 128 || !version.chars().all(tag) {
            return Err(Error::invalid("image.version", format!("{version:?} is not the tag of an image")));
        }
        let name = |c: char| tag(c) || "/:@".contains(c);
        for (path, text) in [
            ("image.registry", &self.image.registry),
            ("runner.image", &self.runner.image),
            ("scheduler.kubeSchedulerImage", &self.scheduler.kube_scheduler_image),
        ] {
            if text.contains("://") {
                return Err(Error::invalid(path, "leave out the scheme: registry.example:5000/path"));
            }
            if !text.chars().all(name) || text.ends_with('/') || text.starts_with('/') {
                return Err(Error::invalid(
                    path,
                    format!("{text:?} is not the name of an image or a registry"),
                ));
            }
        }
        Ok(())
    }
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
