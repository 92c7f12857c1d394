//! One service: how many of it are ready, of which version, who leads, and why it is not well. Pure.

use jiff::Timestamp;
use neonvm_api::names::{POD_AUTOSCALER_ACCOUNT, SCHEDULER_LEASE, agent_lease};
use serde_json::{Value, json};

use super::parts::{Part, SERVICE, ServiceObjects};
use crate::commands::install::{ready, why};
use crate::commands::object::text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Service {
    /// It works, and this is how that is known.
    Works(String),
    /// No object shows whether it works.
    Unknown(String),
    /// It does not do its work.
    Fails(String),
}

/// Lease of the vm-controller that leads.
const CONTROLLER_LEASE: &str = "a3b22509.neon.tech";
const AUTOSCALER_LEASE: &str = "neonvm-pod-autoscaler";
/// Gives devices to runner pods. Nodes of a local cluster need none: no word about it where it is not installed.
const DEVICES: &str = "device-plugin";
/// Note of a service of which there is nothing.
const ABSENT: &str = "no pods and no lease";
/// Nodes that are listed one by one.
const NAMED: usize = 3;

/// Which leases a service holds.
enum Leases {
    /// One, by the replica that works.
    One(&'static str),
    /// One for each node.
    PerNode,
    None,
}

/// Name, kind and leases of each service.
const SERVICES: [(&str, Leases); 6] = [
    ("vm-controller", Leases::One(CONTROLLER_LEASE)),
    ("scheduler", Leases::One(SCHEDULER_LEASE)),
    ("agent", Leases::PerNode),
    (DEVICES, Leases::None),
    ("vxlan-controller", Leases::None),
    ("pod-autoscaler", Leases::One(AUTOSCALER_LEASE)),
];

/// A service, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::commands) struct Component {
    pub(in crate::commands) name: &'static str,
    /// Ready and desired pods, or registrations; none: nothing runs as pods, or it may not be read.
    pub(in crate::commands) ready: Option<(u64, u64)>,
    pub(in crate::commands) version: String,
    /// Who holds its lease.
    pub(in crate::commands) leader: String,
    /// Seconds since its lease was renewed.
    pub(in crate::commands) renewed: Option<i64>,
    /// None: nothing shows it.
    pub(in crate::commands) is_well: Option<bool>,
    /// Why it is not well, or what could not be read.
    pub(in crate::commands) note: String,
}

impl Component {
    fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Marks it as not well; later reasons follow the first.
    fn fails(&mut self, reason: &str) {
        self.is_well = Some(false);
        self.add(reason);
    }

    fn works(&mut self) {
        self.is_well = self.is_well.or(Some(true));
    }

    fn add(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
    }

    /// With what its objects show: that of a service which has done its work, or has not.
    pub(in crate::commands) fn with(mut self, activity: &Service) -> Self {
        match activity {
            Service::Fails(note) => {
                if self.note == ABSENT {
                    self.note.clear();
                }
                self.fails(note);
            }
            Service::Works(note) => {
                self.works();
                if self.ready.is_none() && self.leader.is_empty() {
                    // It does its work, so that it runs: as a process of this host.
                    if self.note == ABSENT {
                        self.note.clear();
                    }
                    self.add(note);
                }
            }
            Service::Unknown(note) if self.note == ABSENT => self.add(note),
            Service::Unknown(_) => {}
        }
        self
    }

    /// The cells of its row: name, ready, version, leader, age of the lease, note.
    pub(in crate::commands) fn cells(&self) -> Vec<String> {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let ready = match (self.ready, self.is_well) {
            (Some((ready, desired)), _) => format!("{ready}/{desired}"),
            (None, Some(true)) => "yes".to_owned(),
            (None, Some(false)) => "no".to_owned(),
            (None, None) => "-".to_owned(),
        };
        let renewed = self.renewed.map(|age| format!("{age}s ago")).unwrap_or_default();
        vec![
            self.name.to_owned(),
            ready,
            dash(&self.version),
            dash(&self.leader),
            dash(&renewed),
            dash(&self.note),
        ]
    }

    pub(in crate::commands) fn json(&self) -> Value {
        json!({"name": self.name, "ready": self.ready.map(|(ready, _)| ready), "desired": self.ready.map(|(_, all)| all),
            "version": self.version, "leader": self.leader, "renewedSeconds": self.renewed, "working": self.is_well,
            "note": self.note})
    }
}

/// Every service and the webhooks. `nodes` are the names of all nodes.
pub(in crate::commands) fn all(parts: &ServiceObjects, nodes: &[&str], now: Timestamp) -> Vec<Component> {
    let mut all: Vec<Component> =
        SERVICES.iter().map(|(name, leases)| service(name, leases, parts, nodes, now)).collect();
    all.retain(|component| component.name != DEVICES || component.ready.is_some());
    all.push(webhooks(parts));
    all
}

fn service(
    name: &'static str,
    leases: &Leases,
    parts: &ServiceObjects,
    nodes: &[&str],
    now: Timestamp,
) -> Component {
    let mut component = Component::new(name);
    let workload = parts
        .workloads
        .objects()
        .iter()
        .find(|object| text(object, "/metadata/name").strip_prefix("neonvm-") == Some(name));
    if let Some(workload) = workload {
        rollout(&mut component, workload, &parts.pods);
    } else if let Some(missing) = parts.workloads.missing() {
        component.add(missing);
    }
    match leases {
        Leases::One(lease) => one(&mut component, lease, parts, workload.is_some(), now),
        Leases::PerNode => per_node(&mut component, parts, nodes, now),
        Leases::None => {}
    }
    if component == Component::new(name) {
        component.add(ABSENT);
    }
    component
}

/// How far its pods are, and why not further.
fn rollout(component: &mut Component, workload: &Value, pods: &Part) {
    let state = ready::State::from_object(workload);
    component.ready = Some((state.ready, state.wanted));
    component.version = version(workload, component.name);
    if state.is_done {
        component.works();
        return;
    }
    let label = text(workload, "/metadata/name");
    let own =
        pods.objects().iter().filter(|pod| text(pod, "/metadata/labels/app.kubernetes.io~1name") == label);
    let own: Vec<&Value> = own.collect();
    let unready = own.iter().find(|pod| !super::is_true(pod, "Ready"));
    let reason = match (unready, pods.missing()) {
        (Some(pod), _) => format!("pod {}: {}", text(pod, "/metadata/name"), why::of_pod(pod)),
        (None, Some(missing)) => missing.to_owned(),
        (None, None) if own.is_empty() => {
            why::of_workload(workload).unwrap_or("it has no pods yet").to_owned()
        }
        (None, None) => "pods of an older version are being replaced".to_owned(),
    };
    if state.ready == 0 || unready.is_some() { component.fails(&reason) } else { component.add(&reason) }
}

/// The tag of the image of the container that is named as the service.
fn version(workload: &Value, name: &str) -> String {
    let containers = workload.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let own = containers.into_iter().flatten().find(|container| text(container, "/name") == name);
    let image = own.map(|container| text(container, "/image")).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default().split('@').next().unwrap_or_default();
    last.split_once(':').map(|(_, tag)| tag.to_owned()).unwrap_or_default()
}

/// The holder of a lease, the seconds since its renewal, and the seconds it lasts; none if it is not held.
fn held(lease: &Value, now: Timestamp) -> Option<(String, i64, i64)> {
    let holder = text(lease, "/spec/holderIdentity");
    let renewed: Timestamp = text(lease, "/spec/renewTime").parse().ok()?;
    let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(15);
    let age = now.as_second().saturating_sub(renewed.as_second()).max(0);
    (!holder.is_empty()).then(|| (holder.to_owned(), age, lasts))
}

fn one(component: &mut Component, name: &str, parts: &ServiceObjects, is_installed: bool, now: Timestamp) {
    let lease = parts.leases.objects().iter().find(|lease| text(lease, "/metadata/name") == name);
    match (lease, lease.and_then(|lease| held(lease, now))) {
        (_, Some((holder, age, lasts))) => {
            if age > lasts {
                component.fails(&format!("its leader {holder} has not renewed its lease for {age} s"));
            } else {
                component.works();
            }
            component.leader = holder;
            component.renewed = Some(age);
        }
        (Some(_), None) => component.fails("its lease has no holder"),
        (None, None) => match parts.leases.missing() {
            Some(missing) => component.add(missing),
            None if is_installed => component.fails(&format!("its lease {name} has never been held")),
            None => {}
        },
    }
}

/// Each node's agent has one; those of nodes that are gone do not count.
fn per_node(component: &mut Component, parts: &ServiceObjects, nodes: &[&str], now: Timestamp) {
    let found = parts.leases.objects().iter().filter_map(|lease| {
        let name = text(lease, "/metadata/name");
        let node = nodes.iter().find(|node| agent_lease(node) == name)?;
        Some((*node, held(lease, now)))
    });
    let (mut fresh, mut late, mut oldest) = (0, Vec::new(), None);
    for (node, held) in found {
        match held {
            Some((_, age, lasts)) if age <= lasts => {
                fresh += 1;
                oldest = oldest.max(Some(age));
            }
            Some((_, age, _)) => late.push(format!("{node} for {age} s")),
            None => late.push(format!("{node} without a holder")),
        }
    }
    late.extend(without_lease(parts).map(|node| format!("{node} has none")));
    if fresh > 0 {
        component.works();
        component.leader = if fresh == 1 { "1 node".to_owned() } else { format!("{fresh} nodes") };
        component.renewed = oldest;
    }
    if !late.is_empty() {
        let more = late.len().saturating_sub(NAMED);
        late.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        component.fails(&format!("leases not renewed: {}{more}", late.join(", ")));
    } else if let Some(missing) = parts.leases.missing() {
        component.add(missing);
    }
}

/// Nodes whose agent is ready and has no lease.
fn without_lease(parts: &ServiceObjects) -> impl Iterator<Item = &str> {
    let is_agent = |pod: &&Value| text(pod, "/metadata/labels/app.kubernetes.io~1name") == "neonvm-agent";
    let ready = parts.pods.objects().iter().filter(|pod| super::is_true(pod, "Ready"));
    let nodes = ready.filter(is_agent).map(|pod| text(pod, "/spec/nodeName"));
    let has_lease = |node: &str| {
        let mut leases = parts.leases.objects().iter();
        leases.any(|lease| text(lease, "/metadata/name") == agent_lease(node))
    };
    nodes.filter(move |node| parts.leases.missing().is_none() && !has_lease(node))
}

/// Both registered, and their service has endpoints.
fn webhooks(parts: &ServiceObjects) -> Component {
    let mut component = Component::new("webhooks");
    let hooks = parts.hooks.objects();
    if let Some(missing) = parts.hooks.missing() {
        component.add(missing);
        return component;
    }
    let is_installed = !parts.workloads.objects().is_empty();
    if hooks.is_empty() && !is_installed {
        component.add("not registered");
        return component;
    }
    // A process of a local cluster registers the one that it serves.
    if is_installed {
        component.ready = Some((u64::try_from(hooks.len()).unwrap_or(u64::MAX), 2));
        if hooks.len() < 2 {
            component.fails("the vm-controller has not registered them");
            return component;
        }
    }
    let place = hooks_of(hooks).map(|hook| {
        let path = "/clientConfig/service";
        (text(hook, &format!("{path}/namespace")), text(hook, &format!("{path}/name")))
    });
    let Some((namespace, name)) = place.into_iter().find(|(_, name)| !name.is_empty()) else {
        component.works();
        component.add("served by a process");
        return component;
    };
    if (namespace, name) != (parts.namespace.as_str(), SERVICE) {
        component.fails(&format!(
            "registered at {namespace}/{name}, which is not this installation: VMs cannot be created or changed"
        ));
        return component;
    }
    match (ready_behind(parts, SERVICE), parts.endpoints.missing()) {
        (_, Some(missing)) => component.add(missing),
        (0, None) => component.fails(&format!(
            "service {namespace}/{name} has no ready endpoint: VMs cannot be created or changed"
        )),
        (count, None) => {
            component.works();
            component.add(&format!("{count} ready endpoints"));
            let names = |hook: &Value| text(hook, "/clientConfig/service/name") == POD_AUTOSCALER_ACCOUNT;
            if hooks_of(hooks).any(names) && ready_behind(parts, POD_AUTOSCALER_ACCOUNT) == 0 {
                component.add(&format!(
                    "PodAutoscalers are not validated: service {namespace}/{POD_AUTOSCALER_ACCOUNT} has no ready endpoint"
                ));
            }
        }
    }
    component
}

/// Webhooks of all registrations.
fn hooks_of(registrations: &[Value]) -> impl Iterator<Item = &Value> {
    registrations.iter().flat_map(|one| one.pointer("/webhooks").and_then(Value::as_array)).flatten()
}

/// How many ready endpoints a service has.
fn ready_behind(parts: &ServiceObjects, service: &str) -> usize {
    let slices = parts.endpoints.objects().iter();
    let own = slices.filter(|slice| text(slice, "/metadata/labels/kubernetes.io~1service-name") == service);
    let endpoints = own.flat_map(|slice| slice.pointer("/endpoints").and_then(Value::as_array)).flatten();
    let is_ready = |one: &&Value| one.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    endpoints.filter(is_ready).count()
}

#[cfg(test)]
mod tests;
