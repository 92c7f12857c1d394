//! The Node object and its lease. The lease is the only thing that is written again and again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use neonvm_api::names::annotation;
use neonvm_kit::error::causes;
use neonvm_types::runner_protocol::HostFacts;
use serde_json::{Map, Value, json};

use crate::naming::Subnet;
use crate::{Capacity, Config, Error, Network};

/// Time between two heartbeats, and how long one counts.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// Longest time in which the host's facts are found out.
const FACTS_WITHIN: Duration = Duration::from_secs(15);
/// Where leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";
/// First and longest pause after a refusal.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The taint of nodes that have just been made.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) cpu_milli: u64,
    pub(crate) memory: u64,
    pub(crate) memory_for_pods: u64,
    pub(crate) pods: u32,
    pub(crate) storage: u64,
}

impl Offer {
    /// By the settings, and what the host has.
    pub(crate) fn from_capacity(capacity: &Capacity, data: &std::path::Path) -> Self {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let machine = total.unwrap_or(1 << 20) * 1024;
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let memory = capacity.memory.unwrap_or(machine);
        let usual = if capacity.memory.is_some() { 0 } else { (machine / 10).min(1 << 30) };
        let reserved = capacity.reserved_memory.unwrap_or(usual);
        let storage = rustix::fs::statvfs(data).map_or(0, |stat| stat.f_blocks * stat.f_frsize);
        Self {
            cpu_milli: capacity.cpu_milli.unwrap_or(cpus * 1000),
            memory,
            memory_for_pods: memory.saturating_sub(reserved),
            pods: capacity.pods.unwrap_or(250),
            storage,
        }
    }

    fn amounts(&self, memory: u64) -> Value {
        let cpu = if self.cpu_milli.is_multiple_of(1000) {
            (self.cpu_milli / 1000).to_string()
        } else {
            format!("{}m", self.cpu_milli)
        };
        json!({ "cpu": cpu, "memory": format!("{}Ki", memory / 1024), "pods": self.pods.to_string(),
            "ephemeral-storage": format!("{}Ki", self.storage / 1024),
            "neonvm/vhost-net": "1000", "neonvm/kvm": "1000" })
    }
}

/// Keeps the object and the lease.
#[derive(Clone)]
pub(crate) struct Registration {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) offer: Offer,
    pub(crate) pods: Option<Subnet>,
    pub(crate) runner: HostProgram,
}

/// The runner's program, which finds out what the host offers to VMs.
#[derive(Clone, Debug)]
pub(crate) struct HostProgram {
    program: PathBuf,
    arguments: [String; 4],
}

impl HostProgram {
    pub(crate) fn new(program: &Path, config: &Config) -> Self {
        let network = match config.network {
            Network::Namespaces(_) => "tap",
            Network::User => "user",
        };
        let accelerator = config.machine.accelerator.as_str();
        let arguments = [
            "runner".to_owned(),
            format!("--accel={accelerator}"),
            format!("--network={network}"),
            "host-facts".to_owned(),
        ];
        Self { program: program.to_owned(), arguments }
    }

    /// The facts as JSON; none if the program does not find them out.
    async fn facts(&self) -> Option<String> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(FACTS_WITHIN, command.output()).await.ok()?.ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        serde_json::from_str::<HostFacts>(text.trim()).ok()?;
        Some(text.trim().to_owned())
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn os_image() -> String {
    let text = read("/etc/os-release");
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

impl Registration {
    fn labels(&self) -> BTreeMap<String, String> {
        let own = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        [
            own("kubernetes.io/os", "linux"),
            own("kubernetes.io/arch", architecture()),
            own("kubernetes.io/hostname", &self.name),
            own("beta.kubernetes.io/os", "linux"),
            own("beta.kubernetes.io/arch", architecture()),
        ]
        .into()
    }

    fn status(&self, old: Option<&NodeObject>) -> Value {
        let now = Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string();
        let known = old.and_then(|node| node.status.as_ref()?.conditions.clone()).unwrap_or_default();
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            let same = known.iter().find(|c| c.type_ == type_ && c.status == status);
            let since =
                same.and_then(|c| c.last_transition_time.as_ref()).map_or(json!(now), |time| json!(time));
            json!({ "type": type_, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since })
        };
        json!({
            "capacity": self.offer.amounts(self.offer.memory),
            "allocatable": self.offer.amounts(self.offer.memory_for_pods),
            "addresses": [{ "type": "InternalIP", "address": self.address }, { "type": "Hostname", "address": self.name }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": self.port } },
            "nodeInfo": {
                "architecture": architecture(), "operatingSystem": "linux", "osImage": os_image(),
                "kernelVersion": read("/proc/sys/kernel/osrelease"), "bootID": crate::process::boot_id(),
                "machineID": read("/etc/machine-id"), "systemUUID": read("/etc/machine-id"),
                "containerRuntimeVersion": format!("process://{}", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": format!("v1.36.0-neonvm.{}", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "" },
            "conditions": [
                condition("MemoryPressure", "False", "NodeHasSufficientMemory", "node has sufficient memory available"),
                condition("DiskPressure", "False", "NodeHasNoDiskPressure", "node has no disk pressure"),
                condition("PIDPressure", "False", "NodeHasSufficientPID", "node has sufficient PID available"),
                condition("Ready", "True", "NodeReady", "node is ready to run runner pods"),
            ],
        })
    }

    /// The range of its pods, as a node's spec has it; nothing without one.
    fn range(&self) -> Map<String, Value> {
        let Some(pods) = self.pods.map(|pods| pods.to_string()) else { return Map::new() };
        [("podCIDR".to_owned(), json!(pods)), ("podCIDRs".to_owned(), json!([pods]))].into_iter().collect()
    }

    /// Whether the object has the range of another network: the cluster was restored, or its network has another number now.
    fn is_elsewhere(&self, node: &NodeObject) -> bool {
        let theirs = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone());
        theirs.is_some_and(|theirs| Some(theirs) != self.pods.map(|pods| pods.to_string()))
    }

    /// Makes the object again, with what people wrote: a range is never changed.
    async fn replace(&self, api: &Api<NodeObject>, old: NodeObject) -> Result<NodeObject, kube::Error> {
        tracing::info!(node = self.name, "the node has another network now; it is registered again");
        let only = Preconditions { uid: old.metadata.uid, resource_version: None };
        api.delete(&self.name, &DeleteParams::default().preconditions(only)).await?;
        let mut labels = old.metadata.labels.unwrap_or_default();
        labels.extend(self.labels());
        let mut annotations = old.metadata.annotations.unwrap_or_default();
        annotations.remove(annotation::HOST_FACTS);
        let mut spec = self.range();
        let theirs = old.spec.unwrap_or_default();
        spec.insert("unschedulable".to_owned(), json!(theirs.unschedulable.unwrap_or_default()));
        spec.insert("taints".to_owned(), json!(theirs.taints.unwrap_or_default()));
        let metadata = json!({ "name": self.name, "labels": labels, "annotations": annotations });
        let object = serde_json::from_value(json!({ "metadata": metadata, "spec": spec }));
        api.create(&PostParams::default(), &object.map_err(kube::Error::SerdeError)?).await
    }

    /// Writes the object as it should be.
    async fn register(&self) -> Result<(), kube::Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let old = match api.get_opt(&self.name).await? {
            Some(old) if self.is_elsewhere(&old) => self.replace(&api, old).await?,
            Some(old) => old,
            None => {
                let object = json!({ "metadata": { "name": self.name, "labels": self.labels() },
                    "spec": self.range() });
                let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                api.create(&PostParams::default(), &object).await?
            }
        };
        api.patch_status(
            &self.name,
            &PatchParams::default(),
            &Patch::Strategic(json!({ "status": self.status(Some(&old)) })),
        )
        .await?;
        // No other component removes the taint that new nodes carry until they are ready.
        let taints = old.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let left: Vec<_> = taints.iter().filter(|taint| taint.key != NOT_READY).collect();
        let mut spec = self.range();
        if left.len() != taints.len() {
            spec.insert("taints".to_owned(), json!(left));
        }
        let patch = json!({ "metadata": { "labels": self.labels() }, "spec": spec });
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Registers the node again if a client has removed it, or has reason to take it for lost.
    async fn check(&self) -> Result<(), kube::Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        match api.get_opt(&self.name).await? {
            Some(node) if is_ready(&node) && !self.is_elsewhere(&node) => Ok(()),
            _ => self.register().await,
        }
    }

    /// Publishes what the host offers to VMs. Nothing depends on it but the reason of a refusal, which is then known before
    /// a target pod is made.
    async fn publish_facts(&self) {
        let Some(facts) = self.runner.facts().await else {
            tracing::debug!("what the host offers to VMs is not known");
            return;
        };
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let patch = json!({ "metadata": { "annotations": { (annotation::HOST_FACTS): facts } } });
        let patched = api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        if let Err(error) = patched {
            tracing::warn!(error = %causes(&error), "what the host offers to VMs cannot be published");
        }
    }

    async fn beat(&self) -> Result<(), kube::Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let spec = json!({ "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{:.6}", Timestamp::now()) });
        let patch = Patch::Merge(json!({ "spec": spec }));
        match api.patch(&self.name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => return done.map(drop),
        }
        let lease = json!({ "metadata": { "name": self.name }, "spec": spec });
        let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        api.create(&PostParams::default(), &lease).await.map(drop)
    }

    /// Registers the node, as often as it takes.
    pub(crate) async fn begin(&self) {
        let mut pause = PAUSES.0;
        loop {
            match tokio::time::timeout(HEARTBEAT, self.register()).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::warn!(error = %causes(&error), "the node cannot be registered"),
                Err(_) => tracing::warn!("the API server does not answer"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        let this = self.clone();
        tokio::spawn(async move { this.publish_facts().await });
    }

    /// Keeps the lease, and the object in case a client removes it.
    pub(crate) async fn keep(&self) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let beat = async {
                self.beat().await?;
                self.check().await
            };
            match tokio::time::timeout(HEARTBEAT, beat).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(error = %causes(&error), "no heartbeat"),
                Err(_) => tracing::warn!("no heartbeat: the API server does not answer"),
            }
        }
    }
}

/// Whether the object reports that the node takes pods.
pub(crate) fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Refuses settings that contradict each other.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let name = &config.name;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
        return Err(Error::Config(format!(
            "{name:?} is no name for a node: lower-case letters, digits, '-' and '.'"
        )));
    }
    Ok(())
}
