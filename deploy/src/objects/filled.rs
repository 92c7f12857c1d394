//! What stands in the places of the objects: values, or the places of a chart where Helm puts them.

use std::collections::BTreeMap;

use neonvm_api::policy::SCHEDULER;
use serde_json::{Value, json};

use super::{copies_root_disks, kube_scheduler};
use crate::{Component, Encryption, Facts, Resources, Toleration, Values};

/// Services whose places are filled: by the name in the label of their workload, and of the container that has the resources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filling {
    /// None of these: as the manifest has it.
    pub(crate) replicas: Option<Value>,
    pub(crate) resources: Option<Value>,
    pub(crate) tolerations: Option<Value>,
    pub(crate) node_selector: Option<Value>,
}

/// What becomes of the size of packets that an attachment names.
#[derive(Clone, Debug)]
pub(crate) enum Mtu {
    /// So many bytes less.
    Less(u64),
    /// A place of the chart, of the size without and that with encryption.
    Place(fn(u64, u64) -> String),
}

impl Mtu {
    pub(crate) fn text(&self, mtu: u64) -> String {
        match self {
            Self::Less(bytes) => mtu.saturating_sub(*bytes).to_string(),
            Self::Place(place) => place(mtu, mtu.saturating_sub(smaller(Encryption::Wireguard))),
        }
    }
}

/// Bytes of each packet that encryption takes: WireGuard over IPv4 60, and the tunnel in it, which is over IPv6, 20 more.
pub(crate) fn smaller(encryption: Encryption) -> u64 {
    match encryption {
        Encryption::None => 0,
        Encryption::Wireguard => 80,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Filled {
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) kube_scheduler: String,
    pub(crate) pull_policy: Value,
    pub(crate) pull_secrets: Option<Value>,
    pub(crate) runner_image: String,
    pub(crate) accelerator: Value,
    pub(crate) cpu_scaling_mode: Value,
    pub(crate) cpu_model: Value,
    pub(crate) priority_class: (Value, Value),
    pub(crate) disk_cache: Value,
    pub(crate) backup_hooks: Value,
    /// Life of a certificate and of an authority, in seconds.
    pub(crate) lifetimes: [String; 2],
    pub(crate) log_format: Value,
    pub(crate) root_disk: Value,
    pub(crate) scheduler: Value,
    /// Name of the scheduler of VMs that name none.
    pub(crate) vm_scheduler: Value,
    pub(crate) pod_autoscaler: Value,
    pub(crate) encryption: Value,
    pub(crate) mtu: Mtu,
    pub(crate) services: BTreeMap<&'static str, Filling>,
}

impl Filled {
    pub(crate) fn from_values(values: &Values, facts: &Facts) -> Self {
        let image = &values.image;
        let ours = |name: &str| match image.registry.as_str() {
            "" => format!("{name}:{}", image.version),
            registry => format!("{registry}/{name}:{}", image.version),
        };
        let or = |text: &str, other: String| if text.is_empty() { other } else { text.to_owned() };
        let stock = format!("registry.k8s.io/kube-scheduler:{}", kube_scheduler(facts));
        Self {
            namespace: values.namespace.clone(),
            image: ours("neond"),
            kube_scheduler: or(&values.scheduler.kube_scheduler_image, stock),
            pull_policy: json!(image.pull_policy),
            pull_secrets: (!image.pull_secrets.is_empty()).then(|| json!(image.pull_secrets)),
            runner_image: or(&values.runner.image, ours("neonvm-runner")),
            accelerator: json!(values.runner.accelerator),
            cpu_scaling_mode: json!(values.runner.cpu_scaling_mode),
            cpu_model: json!(values.runner.cpu_model),
            priority_class: (
                json!(values.runner.priority_class.name),
                json!(values.runner.priority_class.value),
            ),
            disk_cache: json!(values.runner.disk_cache),
            backup_hooks: json!(values.runner.backup_hooks),
            lifetimes: [
                values.certificates.lifetime_seconds.to_string(),
                values.certificates.authority_lifetime_seconds.to_string(),
            ],
            log_format: json!(values.log_format),
            root_disk: json!(if copies_root_disks(values, facts) { "copy" } else { "image-volume" }),
            scheduler: json!(values.has(Component::Scheduler).to_string()),
            vm_scheduler: json!(if values.has(Component::Scheduler) { SCHEDULER } else { "" }),
            pod_autoscaler: json!(values.has(Component::PodAutoscaler).to_string()),
            encryption: json!(values.overlay.encryption),
            mtu: Mtu::Less(smaller(values.overlay.encryption)),
            services: services(values),
        }
    }
}

fn services(values: &Values) -> BTreeMap<&'static str, Filling> {
    let filling = |replicas: Option<u16>,
                   resources: &Option<Resources>,
                   tolerations: &Option<Vec<Toleration>>,
                   selector: &Option<BTreeMap<String, String>>| Filling {
        replicas: replicas.map(|count| json!(count)),
        resources: resources.as_ref().map(|one| json!(one)),
        tolerations: tolerations.as_ref().map(|one| json!(one)),
        node_selector: selector.as_ref().map(|one| json!(one)),
    };
    let (controller, autoscaler) = (&values.vm_controller, &values.pod_autoscaler);
    let (scheduler, agent, overlay) = (&values.scheduler, &values.agent, &values.overlay);
    let stock = Filling {
        resources: scheduler.kube_scheduler_resources.as_ref().map(|one| json!(one)),
        ..Filling::default()
    };
    [
        (
            "vm-controller",
            filling(
                controller.replicas,
                &controller.resources,
                &controller.tolerations,
                &controller.node_selector,
            ),
        ),
        (
            "pod-autoscaler",
            filling(
                autoscaler.replicas,
                &autoscaler.resources,
                &autoscaler.tolerations,
                &autoscaler.node_selector,
            ),
        ),
        (
            "scheduler",
            filling(
                scheduler.replicas,
                &scheduler.resources,
                &scheduler.tolerations,
                &scheduler.node_selector,
            ),
        ),
        ("kube-scheduler", stock),
        ("agent", filling(None, &agent.resources, &agent.tolerations, &agent.node_selector)),
        ("vxlan-controller", filling(None, &overlay.resources, &overlay.tolerations, &overlay.node_selector)),
    ]
    .into()
}
