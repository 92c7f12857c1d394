//! One service: how many of it are ready, of which version, who leads, and why it is not well. Pure.

use jiff::Timestamp;
use neonvm_api::names::{SCHEDULER_LEASE, agent_lease};
use serde_json::{Value, json};

use super::facts::{Facts, Source};
use super::finding::{Finding, fail, ok, warn};
use crate::commands::install::{ready, why};
use crate::commands::object::{is_true, text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// It works, and this is how that is known.
    Works(String),
    /// No object shows whether it works.
    Unknown(String),
    /// It does not do its work.
    Fails(String),
}

/// Lease of the vm-controller that leads.
pub(crate) const CONTROLLER_LEASE: &str = "a3b22509.neon.tech";
const AUTOSCALER_LEASE: &str = "neonvm-pod-autoscaler";
/// Makes what VMs need of their node, and is installed with the vm-controller. The kubelet of a local cluster does it itself.
const NODES: &str = "node";
/// Note of a service of which there is nothing.
const ABSENT: &str = "no pods and no lease";
/// How notes begin about what could not be read.
const UNREAD: &str = "you lack permission";
/// Nodes that are listed one by one.
const NAMED: usize = 3;

enum Leases {
    /// One, by the replica that works.
    One(&'static str),
    /// One for each node.
    PerNode,
    None,
}

const SERVICES: [(&str, Leases); 6] = [
    ("vm-controller", Leases::One(CONTROLLER_LEASE)),
    ("scheduler", Leases::One(SCHEDULER_LEASE)),
    ("agent", Leases::PerNode),
    (NODES, Leases::None),
    ("vxlan-controller", Leases::None),
    ("pod-autoscaler", Leases::One(AUTOSCALER_LEASE)),
];

/// A service, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) name: &'static str,
    /// Ready and desired pods, or registrations; none: nothing runs as pods, or it may not be read.
    pub(crate) ready: Option<(u64, u64)>,
    pub(crate) version: String,
    pub(crate) leader: String,
    /// Seconds since its lease was renewed.
    pub(crate) renewed: Option<i64>,
    /// None: nothing shows it.
    pub(crate) is_well: Option<bool>,
    /// Why it is not well, or what could not be read.
    pub(crate) note: String,
}

impl Component {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Marks it as not well; later reasons follow the first.
    pub(super) fn fails(&mut self, reason: &str) {
        self.is_well = Some(false);
        self.add(reason);
    }

    pub(super) fn works(&mut self) {
        self.is_well = self.is_well.or(Some(true));
    }

    pub(super) fn add(&mut self, note: &str) {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
    }

    /// With what its objects show: that of a service which has done its work, or has not.
    pub(crate) fn with(mut self, activity: &Service) -> Self {
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
    pub(crate) fn cells(&self) -> Vec<String> {
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

    /// The same for `doctor`; none if nothing is known of it.
    fn finding(&self, namespace: &str) -> Option<Finding> {
        let [_, ready, version, leader, _, note] = self.cells().try_into().ok()?;
        let found = match self.is_well {
            Some(false) => {
                let detail = if self.ready.is_some() { format!("{ready} ready: {note}") } else { note };
                let remedy = format!(
                    "see the details: kubectl describe pods -n {namespace}; on a local cluster: neonctl local logs"
                );
                fail(self.name, detail, remedy)
            }
            None if self.note.starts_with(UNREAD) => {
                warn(self.name, note, format!("request the role view in namespace {namespace}"))
            }
            None if self.ready.is_none() => return None,
            _ => {
                let ready = self.ready.map(|_| format!("{ready} ready")).unwrap_or_default();
                let known = [&ready, &version, &leader, &note].map(String::as_str);
                let known: Vec<&str> = known.into_iter().filter(|text| !["", "-"].contains(text)).collect();
                ok(self.name, known.join(", "))
            }
        };
        Some(found.at(namespace))
    }

    pub(crate) fn json(&self) -> Value {
        json!({"name": self.name, "ready": self.ready.map(|(ready, _)| ready), "desired": self.ready.map(|(_, all)| all),
            "version": self.version, "leader": self.leader, "renewedSeconds": self.renewed, "working": self.is_well,
            "note": self.note})
    }
}

/// Every service, by its own objects alone.
pub(crate) fn all(facts: &Facts) -> Vec<Component> {
    let mut all: Vec<Component> =
        SERVICES.iter().map(|(name, leases)| service(name, leases, facts)).collect();
    let has_controller =
        all.iter().any(|component| component.name == "vm-controller" && component.ready.is_some());
    all.retain(|component| component.name != NODES || component.ready.is_some() || has_controller);
    if let Some(lost) = all.iter_mut().find(|component| component.name == NODES && component.ready.is_none())
    {
        lost.note.clear();
        lost.fails("it is not installed: no VM starts or grows; run neonctl install");
    }
    all
}

/// What `doctor` finds of every service, and of the webhooks.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let namespace = &facts.namespace;
    if facts.is_absent() && facts.all(Source::Machines).is_empty() {
        let found = "no pods and no leases of services in namespace";
        return vec![ok("services", format!("{found} {namespace}")).at("cluster")];
    }
    facts.components().iter().filter_map(|component| component.finding(namespace)).collect()
}

fn service(name: &'static str, leases: &Leases, facts: &Facts) -> Component {
    let mut component = Component::new(name);
    let workload = facts
        .all(Source::Workloads)
        .iter()
        .find(|object| text(object, "/metadata/name").strip_prefix("neonvm-") == Some(name));
    if let Some(workload) = workload {
        rollout(&mut component, workload, facts);
    } else if let Some(missing) = facts.missing(Source::Workloads) {
        component.add(missing);
    }
    match leases {
        Leases::One(lease) => one(&mut component, lease, facts, workload.is_some()),
        Leases::PerNode => per_node(&mut component, facts),
        Leases::None => {}
    }
    if component == Component::new(name) {
        component.add(ABSENT);
    }
    component
}

fn rollout(component: &mut Component, workload: &Value, facts: &Facts) {
    let state = ready::State::from_object(workload);
    component.ready = Some((state.ready, state.wanted));
    component.version = version(workload, component.name);
    if state.is_done {
        component.works();
        return;
    }
    let label = text(workload, "/metadata/name");
    let own = facts
        .all(Source::Pods)
        .iter()
        .filter(|pod| text(pod, "/metadata/labels/app.kubernetes.io~1name") == label);
    let own: Vec<&Value> = own.collect();
    let unready = own.iter().find(|pod| !is_true(pod, "Ready"));
    let reason = match (unready, facts.missing(Source::Pods)) {
        (Some(pod), _) => {
            let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
            let why = facts.trouble_of(node).map(|why| format!("its node {node} is {why}"));
            format!("pod {name}: {}", why.unwrap_or_else(|| why::of_pod(pod)))
        }
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

pub(crate) struct Held {
    holder: String,
    /// Seconds since its renewal.
    age: i64,
    /// Seconds it lasts.
    lasts: i64,
}

impl Held {
    pub(crate) fn is_stale(&self) -> bool {
        self.age > self.lasts
    }
}

/// None if it is not held.
pub(crate) fn held(lease: &Value, now: Timestamp) -> Option<Held> {
    let holder = text(lease, "/spec/holderIdentity");
    let renewed: Timestamp = text(lease, "/spec/renewTime").parse().ok()?;
    let lasts = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(15);
    let age = now.as_second().saturating_sub(renewed.as_second()).max(0);
    (!holder.is_empty()).then(|| Held { holder: holder.to_owned(), age, lasts })
}

fn one(component: &mut Component, name: &str, facts: &Facts, is_installed: bool) {
    let lease = facts.all(Source::Leases).iter().find(|lease| text(lease, "/metadata/name") == name);
    match (lease, lease.and_then(|lease| held(lease, facts.now()))) {
        (_, Some(held)) => {
            let is_stale = held.is_stale();
            let Held { holder, age, .. } = held;
            if is_stale {
                component.fails(&format!("its leader {holder} has not renewed its lease for {age} s"));
            } else {
                component.works();
            }
            component.leader = holder;
            component.renewed = Some(age);
        }
        (Some(_), None) => component.fails("its lease has no holder"),
        (None, None) => match facts.missing(Source::Leases) {
            Some(missing) => component.add(missing),
            None if is_installed => component.fails(&format!("its lease {name} has never been held")),
            None => {}
        },
    }
}

/// Each node's agent has one; those of nodes that are gone do not count.
fn per_node(component: &mut Component, facts: &Facts) {
    let found = facts.all(Source::Leases).iter().filter_map(|lease| {
        let name = text(lease, "/metadata/name");
        let nodes = facts.all(Source::Nodes).iter();
        let node = nodes.map(|node| text(node, "/metadata/name")).find(|node| agent_lease(node) == name)?;
        Some((node, held(lease, facts.now())))
    });
    let (mut fresh, mut late, mut oldest) = (0, Vec::new(), None);
    for (node, held) in found {
        match held {
            Some(held) if !held.is_stale() => {
                fresh += 1;
                oldest = oldest.max(Some(held.age));
            }
            Some(held) => late.push(format!("{node} for {} s", held.age)),
            None => late.push(format!("{node} without a holder")),
        }
    }
    late.extend(without_lease(facts).map(|node| format!("{node} has none")));
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
    } else if let Some(missing) = facts.missing(Source::Leases) {
        component.add(missing);
    }
}

/// Nodes whose agent is ready and has no lease.
fn without_lease(facts: &Facts) -> impl Iterator<Item = &str> {
    let is_agent = |pod: &&Value| text(pod, "/metadata/labels/app.kubernetes.io~1name") == "neonvm-agent";
    let ready = facts.all(Source::Pods).iter().filter(|pod| is_true(pod, "Ready"));
    let nodes = ready.filter(is_agent).map(|pod| text(pod, "/spec/nodeName"));
    let has_lease = |node: &str| {
        let mut leases = facts.all(Source::Leases).iter();
        leases.any(|lease| text(lease, "/metadata/name") == agent_lease(node))
    };
    nodes.filter(move |node| facts.missing(Source::Leases).is_none() && !has_lease(node))
}

#[cfg(test)]
mod tests;
