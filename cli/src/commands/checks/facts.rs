//! What was read of a cluster. Pure; whatever may not be read is known as such, with the right that is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use neonvm_api::names::POD_AUTOSCALER_ACCOUNT;
use neonvm_deploy::{Network, Values};
use serde_json::Value;

use crate::commands::object::text;
use crate::commands::rights::Right;

pub(crate) const SERVICE: &str = "neonvm-webhook";

/// Where networks write down their MTU: flannel, Calico, Cilium.
const NETWORKS: [&str; 3] = [
    "kube-flannel/configmaps/kube-flannel-cfg",
    "kube-system/configmaps/calico-config",
    "kube-system/configmaps/cilium-config",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Nodes,
    Heartbeats,
    Machines,
    Autoscalers,
    Unbound,
    /// Deployments and daemon sets of the services, each with its kind.
    Workloads,
    Pods,
    Leases,
    /// Registrations of webhooks: mutating and validating.
    Hooks,
    /// Whether the service at which they are registered exists.
    HookService,
    Endpoints,
    Definitions,
    Controllers,
    Networks,
    Space,
    Multus,
    Authority,
    Certificates,
    /// Whether the server keeps volumes of images.
    ImageVolumes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) path: String,
    /// The right that it needs: `list nodes`.
    pub(super) right: String,
    /// Items of a list do not name their kind.
    pub(super) kind: Option<&'static str>,
}

impl Source {
    /// How it is read; nothing for what takes more than reading objects.
    pub(super) fn requests(self, namespace: &str) -> Vec<Request> {
        const OURS: &str = "labelSelector=app.kubernetes.io%2Fpart-of%3Dneonvm";
        let all = |path: &str, plural: &str| {
            vec![Request { path: path.to_owned(), right: format!("list {plural}"), kind: None }]
        };
        let own = |group: &str, plural: &str, selector: &str| Request {
            path: format!("{group}/namespaces/{namespace}/{plural}{selector}"),
            right: format!("list {plural} in namespace {namespace}"),
            kind: None,
        };
        let one = |path: &str, plural: &str| Request {
            path: path.to_owned(),
            right: format!("get {plural}"),
            kind: None,
        };
        match self {
            Self::Nodes => all("/api/v1/nodes", "nodes"),
            Self::Heartbeats => {
                all("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "leases of nodes")
            }
            Self::Machines => all("/apis/vm.neon.tech/v1/virtualmachines", "virtualmachines"),
            Self::Autoscalers => all("/apis/autoscaling.aibrix.ai/v1alpha1/podautoscalers", "podautoscalers"),
            Self::Unbound => all("/api/v1/pods?fieldSelector=spec.nodeName%3D", "pods"),
            Self::Workloads => [("deployments", "Deployment"), ("daemonsets", "DaemonSet")]
                .map(|(plural, kind)| Request {
                    kind: Some(kind),
                    ..own("/apis/apps/v1", plural, &format!("?{OURS}"))
                })
                .to_vec(),
            Self::Pods => vec![own("/api/v1", "pods", &format!("?{OURS}"))],
            Self::Leases => vec![own("/apis/coordination.k8s.io/v1", "leases", "")],
            Self::Hooks => ["mutating", "validating"]
                .map(|side| {
                    let plural = format!("{side}webhookconfigurations");
                    let name = format!("neonvm-{side}-webhook-configuration");
                    one(&format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}"), &plural)
                })
                .to_vec(),
            Self::Endpoints => {
                let names = format!(
                    "?labelSelector=kubernetes.io%2Fservice-name%20in%20%28{SERVICE}%2C{POD_AUTOSCALER_ACCOUNT}%29"
                );
                vec![own("/apis/discovery.k8s.io/v1", "endpointslices", &names)]
            }
            Self::Definitions => {
                let plural = "customresourcedefinitions";
                all(&format!("/apis/apiextensions.k8s.io/v1/{plural}"), plural)
            }
            Self::Controllers => all(
                "/apis/apps/v1/deployments?labelSelector=app.kubernetes.io%2Fname%3Dneonvm-vm-controller",
                "deployments",
            ),
            Self::Networks => {
                NETWORKS.map(|path| one(&format!("/api/v1/namespaces/{path}"), "configmaps")).to_vec()
            }
            Self::Space => vec![one(&format!("/api/v1/namespaces/{namespace}"), "namespaces")],
            Self::Multus => vec![one("/apis/k8s.cni.cncf.io/v1", "k8s.cni.cncf.io")],
            Self::Authority => {
                let secret = neonvm_kit::authority::INTERNAL.secret;
                vec![one(&format!("/api/v1/namespaces/{namespace}/secrets/{secret}"), "secrets")]
            }
            Self::Certificates => {
                all("/apis/certificates.k8s.io/v1/certificatesigningrequests", "certificatesigningrequests")
            }
            Self::HookService | Self::ImageVolumes => Vec::new(),
        }
    }
}

/// Objects of a kind, or why there are none to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Read(Vec<Value>),
    /// `you lack permission to list leases in namespace a`
    Unread(String),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// None: it does not report its time.
    pub(crate) server: Option<Timestamp>,
    /// Ours, half-way between question and answer.
    pub(crate) own: Timestamp,
    pub(crate) latency: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) missing: Vec<Right>,
    pub(crate) multus: bool,
    /// Upstream's agents are to find the scheduler.
    pub(crate) upstream_agents: bool,
    /// Root disks are copied out of their images.
    pub(crate) copies_root_disks: bool,
}

impl Wanted {
    /// By the values of an installation, and the rights that the caller lacks for it.
    pub(crate) fn new(values: &Values, cluster: &neonvm_deploy::Facts, missing: Vec<Right>) -> Self {
        Self {
            missing,
            multus: values.overlay.network == Network::Multus,
            upstream_agents: values.scheduler.upstream_agents,
            copies_root_disks: neonvm_deploy::copies_root_disks(values, cluster),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Version of the API server, such as `v1.36.2`.
    pub(crate) version: String,
    pub(crate) clock: Clock,
    pub(crate) namespace: String,
    pub(crate) wanted: Wanted,
    /// Definitions that are served, for users who may not list them.
    pub(crate) served: BTreeSet<String>,
    /// None: something else was in the way.
    pub(crate) keeps_image_volumes: Option<bool>,
    /// None: there are no webhooks, or it may not be read.
    pub(crate) has_hook_service: Option<bool>,
    /// Why agents that hold a lease do not answer; none if they were not asked.
    pub(crate) silent_agents: Option<Vec<String>>,
    pub(crate) found: BTreeMap<Source, Part>,
}

impl Facts {
    pub(crate) fn put(&mut self, source: Source, part: Part) {
        self.found.insert(source, part);
    }

    /// What there is; nothing where it may not be read.
    pub(crate) fn all(&self, source: Source) -> &[Value] {
        match self.found.get(&source) {
            Some(Part::Read(objects)) => objects,
            Some(Part::Unread(_)) | None => &[],
        }
    }

    pub(crate) fn missing(&self, source: Source) -> Option<&str> {
        match self.found.get(&source) {
            Some(Part::Unread(right)) => Some(right),
            Some(Part::Read(_)) | None => None,
        }
    }

    /// Whether it was read, and there is nothing.
    pub(crate) fn has_none(&self, source: Source) -> bool {
        self.missing(source).is_none() && self.all(source).is_empty()
    }

    /// Leaves some of the objects.
    pub(super) fn retain(&mut self, source: Source, keep: impl Fn(&Value) -> bool) {
        if let Some(Part::Read(objects)) = self.found.get_mut(&source) {
            objects.retain(keep);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.server.unwrap_or(self.clock.own)
    }

    /// A cluster of `neonctl local`, whose nodes are processes of one host.
    pub(crate) fn is_local(&self) -> bool {
        self.version.contains("+neonvm")
    }

    /// Namespace and name of the service at which the webhooks are registered.
    pub(super) fn hook_service(&self) -> Option<(String, String)> {
        let mut hooks = self.all(Source::Hooks).iter();
        let found = hooks.find_map(|hook| hook.pointer("/webhooks/0/clientConfig/service"))?;
        Some((text(found, "/namespace").to_owned(), text(found, "/name").to_owned()))
    }
}

pub(super) fn ours() -> BTreeSet<String> {
    neonvm_api::crds().iter().map(|crd| text(crd, "/metadata/name").to_owned()).collect()
}
