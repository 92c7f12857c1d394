//! Watches of nodes, pods and migrations: what they show goes into the state.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event as Change, watcher};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use neonvm_api::VirtualMachineMigration;
use neonvm_core_scheduling::permits::{Event, MigrationSeen, NodeSeen, PodSeen};
use neonvm_kit::watch::retry;
use neonvm_types::NamespacedName;

use crate::shared::Shared;

enum Input {
    Node(Box<Change<Node>>),
    Pod(Box<Change<Pod>>),
    Migration(Box<Change<VirtualMachineMigration>>),
}

impl Input {
    fn kind(&self) -> &'static str {
        match self {
            Self::Node(_) => "Node",
            Self::Pod(_) => "Pod",
            Self::Migration(_) => "VirtualMachineMigration",
        }
    }
}

/// What the list that is on its way has shown so far.
#[derive(Debug, Default)]
struct Listing {
    nodes: BTreeSet<String>,
    pods: BTreeSet<String>,
    migrations: BTreeSet<String>,
    /// Nodes, pods listed whole since this watch began.
    whole: (bool, bool),
}

/// Lists all objects again and watches them, until it is dropped. The first lists are as new as the API server's state.
pub(crate) async fn follow(shared: &Shared) {
    let client = &shared.client;
    let settings = watcher::Config::default();
    let watches = &shared.metrics.watches;
    let nodes = watcher(Api::<Node>::all(client.clone()), settings.clone()).backoff(retry());
    let nodes = nodes.inspect(|shown| watches.observe("Node", shown));
    let pods = watcher(Api::<Pod>::all(client.clone()), settings.clone()).backoff(retry());
    let pods = pods.inspect(|shown| watches.observe("Pod", shown));
    let mut all = vec![
        nodes.map_ok(|change| (Instant::now(), Input::Node(Box::new(change)))).boxed(),
        pods.map_ok(|change| (Instant::now(), Input::Pod(Box::new(change)))).boxed(),
    ];
    let migrations = watcher(Api::<VirtualMachineMigration>::all(client.clone()), settings).backoff(retry());
    let migrations = migrations.inspect(|shown| watches.observe("VirtualMachineMigration", shown));
    // Requested once the cluster has the definition: often we are there before.
    let known = futures_util::stream::once(defined(client.clone()));
    let migrations = known.flat_map(|()| futures_util::stream::empty()).chain(migrations);
    all.push(migrations.map_ok(|change| (Instant::now(), Input::Migration(Box::new(change)))).boxed());
    let mut inputs = futures_util::stream::select_all(all);
    let mut listing = Listing::default();
    while let Some(input) = inputs.next().await {
        match input {
            Ok((arrived, input)) => {
                let (kind, began) = (input.kind(), Instant::now());
                let ok = listing.take(shared, input);
                shared.metrics.handled(kind, began.duration_since(arrived), began.elapsed(), ok);
            }
            Err(error) => tracing::debug!(%error, "a watch restarts"),
        }
    }
}

/// Waits until the cluster has the definition of migrations.
async fn defined(client: Client) {
    let name = VirtualMachineMigration::crd_name();
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let api = Api::<CustomResourceDefinition>::all(client);
    let mut changes = std::pin::pin!(watcher(api, only).backoff(retry()).applied_objects());
    while let Some(definition) = changes.next().await {
        if definition.is_ok_and(|definition| definition.name_any() == name) {
            return;
        }
    }
}

impl Listing {
    /// Whether everything of the object could be read.
    fn take(&mut self, shared: &Shared, input: Input) -> bool {
        let ok = match input {
            Input::Node(change) => {
                self.node(shared, *change);
                true
            }
            Input::Pod(change) => self.pod(shared, *change),
            Input::Migration(change) => {
                self.migration(shared, *change);
                true
            }
        };
        if self.whole == (true, true) && !shared.state().is_listed() {
            shared.step(Event::Listed);
        }
        ok
    }

    fn node(&mut self, shared: &Shared, change: Change<Node>) {
        match change {
            Change::Init => self.nodes.clear(),
            Change::InitApply(node) => {
                self.nodes.insert(node.name_any());
                shared.step(Event::Node(Box::new(NodeSeen::from_node(&node))));
            }
            Change::InitDone => {
                shared.state().retain(Some(&self.nodes), None);
                self.nodes.clear();
                self.whole.0 = true;
                shared.place.notify_one();
            }
            Change::Apply(node) => shared.step(Event::Node(Box::new(NodeSeen::from_node(&node)))),
            Change::Delete(node) => shared.step(Event::NodeGone(node.name_any())),
        }
    }

    fn pod(&mut self, shared: &Shared, change: Change<Pod>) -> bool {
        let take = |pod: &Pod| {
            let seen = PodSeen::from_pod(pod, &shared.config.settings);
            let ok = seen.problems.is_empty();
            shared.step(Event::Pod(Box::new(seen)));
            ok
        };
        match change {
            Change::Init => self.pods.clear(),
            Change::InitApply(pod) => {
                self.pods.insert(pod.uid().unwrap_or_default());
                return take(&pod);
            }
            Change::InitDone => {
                shared.state().retain(None, Some(&self.pods));
                self.pods.clear();
                self.whole.1 = true;
                shared.place.notify_one();
            }
            Change::Apply(pod) => return take(&pod),
            Change::Delete(pod) => {
                let key = NamespacedName::new(pod.namespace().unwrap_or_default(), pod.name_any());
                shared.step(Event::PodGone { pod: key, uid: pod.uid().unwrap_or_default() });
            }
        }
        true
    }

    fn migration(&mut self, shared: &Shared, change: Change<VirtualMachineMigration>) {
        match change {
            Change::Init => self.migrations.clear(),
            Change::InitApply(migration) => {
                self.migrations.insert(migration.uid().unwrap_or_default());
                shared.step(Event::Migration(MigrationSeen::from_migration(&migration)));
            }
            Change::InitDone => {
                let gone = shared.state().migrations_except(&self.migrations);
                self.migrations.clear();
                for uid in gone {
                    shared.step(Event::MigrationGone { uid });
                }
                shared.step(Event::MigrationsListed);
            }
            Change::Apply(migration) => {
                shared.step(Event::Migration(MigrationSeen::from_migration(&migration)));
            }
            Change::Delete(migration) => {
                shared.step(Event::MigrationGone { uid: migration.uid().unwrap_or_default() });
            }
        }
    }
}
