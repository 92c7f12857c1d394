//! Where a VM may go depends on its spec and on the nodes, and not on the migrations that it has had.

use k8s_openapi::api::core::v1::{Node, Pod};
use neonvm_api::names::annotation;
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationSpec};
use neonvm_core_migration::phases::plan_target;
use neonvm_core_scheduling::permits::{Event, NodeSeen, PodSeen, Settings as Scheduling, State};
use neonvm_core_scheduling::{Usage, fit};
use neonvm_core_vm_lifecycle::{PodView, pod};
use neonvm_types::runner_protocol::SizeRequest;
use neonvm_types::scheduler_inspect::WhatIf;
use neonvm_types::{Bytes, MilliCpu};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::machine::{settings, vm};

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const SIZE: SizeRequest = SizeRequest { cpu: MilliCpu::new(500), memory: Bytes::gib(1) };

/// One migration: what it requires of its target beside the VM's own rules.
#[derive(Clone, Debug)]
enum Rule {
    Anywhere,
    To(usize),
    Avoid(usize),
    Zone(bool),
    SameHost,
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::Anywhere),
        (0..NODES.len()).prop_map(Rule::To),
        (0..NODES.len()).prop_map(Rule::Avoid),
        any::<bool>().prop_map(Rule::Zone),
        Just(Rule::SameHost),
    ]
}

/// A rule of the spec of the VM.
fn spec() -> impl Strategy<Value = Value> {
    let zone = json!({"nodeSelector": {"zone": "a"}});
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n4"]}]}]}}}});
    let tolerates = json!({"tolerations": [{"key": "mine", "operator": "Exists"}]});
    prop_oneof![Just(json!({})), Just(zone), Just(affinity), Just(tolerates)]
}

fn node(index: usize, tainted: bool) -> Node {
    let taints =
        if tainted && index == 2 { json!([{"key": "mine", "effect": "NoSchedule"}]) } else { json!([]) };
    let zone = if index < 3 { "a" } else { "b" };
    serde_json::from_value(json!({
        "metadata": {"name": NODES[index], "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": NODES[index], "zone": zone}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "100"},
            "conditions": [{"type": "Ready", "status": "True"}]}}))
    .unwrap()
}

fn migration(rule: &Rule) -> VirtualMachineMigration {
    let mut spec = VirtualMachineMigrationSpec::new("db");
    let named = |operator: &str, index: usize| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": operator, "values": [NODES[index]]}]}]}})
    };
    match rule {
        Rule::Anywhere => {}
        Rule::To(index) => spec.node_affinity = serde_json::from_value(named("In", *index)).unwrap(),
        Rule::Avoid(index) => spec.node_affinity = serde_json::from_value(named("NotIn", *index)).unwrap(),
        Rule::Zone(a) => {
            spec.node_selector.insert("zone".to_owned(), if *a { "a" } else { "b" }.to_owned());
        }
        Rule::SameHost => spec.prevent_migration_to_same_host = false,
    }
    let mut migration = VirtualMachineMigration::new("move", spec);
    migration.metadata.uid = Some("uid-move".into());
    migration
}

struct World {
    vm: VirtualMachine,
    nodes: Vec<Node>,
    pod: Pod,
}

impl World {
    fn new(spec: &Value, tainted: bool) -> Self {
        let mut vm = vm();
        let mut object = serde_json::to_value(&vm.spec).unwrap();
        object.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        vm.spec = serde_json::from_value(object).unwrap();
        vm.metadata.labels =
            Some([(neonvm_api::names::label::AUTO_MIGRATION_ENABLED.into(), "true".into())].into());
        let nodes: Vec<Node> = (0..NODES.len()).map(|index| node(index, tainted)).collect();
        let pod = pod::plan(&vm, "db-0", &settings()).unwrap();
        let home = nodes.iter().position(|node| fits(&pod, node, &[])).unwrap();
        let mut world = Self { vm, nodes, pod: Pod::default() };
        world.settle(pod, NODES[home]);
        world
    }

    /// The VM runs in this pod now.
    fn settle(&mut self, mut pod: Pod, home: &str) {
        pod.metadata.uid = pod.metadata.name.clone();
        pod.spec.as_mut().unwrap().node_name = Some(home.to_owned());
        pod.metadata.owner_references = Some(vec![pod::owner(&self.vm).unwrap()]);
        pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        self.pod = pod;
        let status = self.vm.status.get_or_insert_default();
        (status.node, status.pod_name) = (home.to_owned(), self.pod.metadata.name.clone().unwrap());
    }

    fn home(&self) -> String {
        self.vm.status.as_ref().unwrap().node.clone()
    }

    /// Nodes to which a migration with this rule can bring the VM.
    fn targets(&self, rule: &Rule) -> (Pod, BTreeSet<String>) {
        let name = format!("{}x", self.pod.metadata.name.as_ref().unwrap());
        let plan = plan_target(&self.vm, &migration(rule), &name, &self.home(), SIZE, &settings()).unwrap();
        let here = std::slice::from_ref(&self.pod);
        let fitting = self.nodes.iter().filter(|node| fits(&plan, node, here));
        let names = fitting.map(|node| node.metadata.name.clone().unwrap()).collect();
        (plan, names)
    }

    fn migrate(&mut self, rule: &Rule, choice: usize) {
        let (plan, targets) = self.targets(rule);
        let chosen = targets.iter().nth(choice % targets.len().max(1)).cloned();
        if let Some(chosen) = chosen {
            self.settle(plan, &chosen);
        }
    }

    /// As a controller of this version writes the labels and annotations of a pod that an earlier one has made.
    fn adopt(&mut self) {
        let annotations = self.pod.metadata.annotations.get_or_insert_default();
        annotations.remove(annotation::PLACEMENT);
        let seen = PodView::from_pod(&self.pod, "neonvm");
        let change = pod::metadata_change(&self.vm, &seen, &settings()).unwrap();
        let annotations = self.pod.metadata.annotations.get_or_insert_default();
        for (key, value) in change.annotations {
            match value {
                Some(value) => drop(annotations.insert(key, value)),
                None => drop(annotations.remove(&key)),
            }
        }
    }

    fn scheduler(&self, settings: Scheduling, more: Option<Pod>) -> State {
        let mut state = State::new(settings);
        let at = Duration::from_secs(1);
        for node in &self.nodes {
            state.step(at, Event::Node(Box::new(NodeSeen::from_node(node))));
        }
        let seen = PodSeen::from_pod(&self.pod, state.settings());
        assert_eq!(seen.problems, Vec::<String>::new());
        let more = more.map(|pod| PodSeen::from_pod(&pod, state.settings()));
        for seen in more.into_iter().chain([seen]) {
            state.step(at, Event::Pod(Box::new(seen)));
        }
        state.step(at, Event::Listed);
        state.step(at, Event::MigrationsListed);
        state
    }

    /// What `neonctl vm migrate --dry-run` shows.
    fn dry_run(&self) -> BTreeSet<String> {
        let state = self.scheduler(Scheduling::default(), None);
        let question = WhatIf { namespace: "ns".into(), vm: "db".into(), leave: true, ..WhatIf::default() };
        let answer = state.what_if(&question).unwrap();
        answer.targets.into_iter().filter(|target| target.fits).map(|target| target.node).collect()
    }

    /// The node for which the VM leaves one that is above its watermark.
    fn leaves_for(&self) -> Option<String> {
        let low = neonvm_core_scheduling::permits::Pair::both(0.3);
        let settings = Scheduling { node_watermarks: [(self.home(), low)].into(), ..Scheduling::default() };
        let filler = json!({"metadata": {"name": "filler", "namespace": "ns", "uid": "filler"}, "spec": {
            "nodeName": self.home(),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "12Gi"}}}]}});
        let state = self.scheduler(settings, Some(serde_json::from_value(filler).unwrap()));
        let view = state.inspect_node(&self.home()).unwrap();
        view.next.first().and_then(|planned| planned.target.clone())
    }
}

fn fits(pod: &Pod, node: &Node, pods: &[Pod]) -> bool {
    let home = node.metadata.name.as_deref();
    let here = pods.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == home);
    fit(pod, node, &Usage::default(), here).is_ok()
}

proptest! {
    #[test]
    fn targets_do_not_depend_on_the_past(
        spec in spec(),
        tainted in any::<bool>(),
        history in prop::collection::vec((rule(), 0..4usize), 0..6),
        earlier in any::<bool>(),
        last in rule(),
    ) {
        let mut world = World::new(&spec, tainted);
        for (rule, choice) in &history {
            world.migrate(rule, *choice);
        }
        if earlier {
            world.adopt();
        }
        // The same VM, started on the node where it is now.
        let mut fresh = World::new(&spec, tainted);
        let first = pod::plan(&fresh.vm, "db-0", &settings()).unwrap();
        fresh.settle(first, &world.home());

        prop_assert_eq!(world.targets(&last).1, fresh.targets(&last).1, "migrate");
        let (_, free) = world.targets(&Rule::Anywhere);
        prop_assert_eq!(world.dry_run(), free.clone(), "a dry run and migrate");
        prop_assert_eq!(world.leaves_for(), fresh.leaves_for(), "watermark");
        prop_assert_eq!(world.leaves_for().is_some(), !free.is_empty(), "watermark and migrate");
    }
}
