//! Feeds the live view: four watches (nodes, VMs, migrations, events), and requests at an interval to the scheduler, the agents
//! and the runners. What cannot be read is reported with its remedy, and the rest is shown without it.

mod convert;
pub(super) mod counters;
mod services;
mod watch;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams};
use kube::runtime::watcher::Config;
use neonvm_api::{VirtualMachine, VirtualMachineMigration};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use super::flags::duration;
use super::resource::NamespaceClient;
use crate::args::top::Live;
use crate::connect::Connection;
use crate::error::Result;
use crate::live::input::{Change, Input, Millis, Origin};
use crate::live::model::Fleet;
use crate::settings::Settings;
use counters::Target;

/// Inputs that wait to be taken in.
const WAITING: usize = 256;
/// Shortest interval.
const SHORTEST: Duration = Duration::from_millis(500);

/// What is observed, until dropped.
pub(super) struct Feed {
    inputs: Receiver<Input>,
    targets: tokio::sync::watch::Sender<Vec<Target>>,
    _tasks: JoinSet<()>,
}

/// Milliseconds since 1970.
pub(super) fn now() -> Millis {
    jiff::Timestamp::now().as_millisecond()
}

impl Feed {
    /// Starts the watches and the requests; returns an empty fleet with the name of the cluster.
    ///
    /// # Errors
    /// If the cluster cannot be reached or its VMs may not be listed.
    pub(super) async fn open(settings: &Settings, args: &Live) -> Result<(Self, Fleet)> {
        let interval = duration("interval", &args.interval)?.max(SHORTEST);
        let all = settings.place().all_namespaces;
        let client = NamespaceClient::open(settings).await?;
        let vms: Api<VirtualMachine> = client.api_of(all);
        // What fails at once is an error as elsewhere.
        let one = ListParams::default().limit(1);
        client.connection.within("cannot list VMs", vms.list(&one)).await?;
        let (sender, inputs) = channel(WAITING);
        let (targets, chosen) = tokio::sync::watch::channel(Vec::new());
        let mut tasks = JoinSet::new();
        watches(&mut tasks, &client, all, &sender);
        let connection = client.connection.clone();
        tasks.spawn(services::poll(connection, args.system_namespace.clone(), interval, sender.clone()));
        tasks.spawn(counters::poll(client.connection.clone(), interval, chosen, sender));
        let cluster = cluster_of(&client.connection);
        let namespace = (!all).then(|| crate::render::one_line(&client.namespace));
        Ok((Self { inputs, targets, _tasks: tasks }, Fleet::new(cluster, namespace)))
    }

    pub(super) async fn next(&mut self) -> Option<Input> {
        self.inputs.recv().await
    }

    pub(super) fn apply(&mut self, fleet: &mut Fleet, input: Input) {
        let mut next = Some(input);
        let mut vms = false;
        while let Some(input) = next {
            vms |= matches!(input, Input::Vms(_));
            fleet.apply(now(), input);
            next = self.inputs.try_recv().ok();
        }
        if vms {
            self.targets.send_replace(counters::targets(fleet));
        }
    }
}

fn cluster_of(connection: &Connection) -> String {
    crate::render::one_line(connection.cluster().unwrap_or(&connection.server))
}

fn watches(tasks: &mut JoinSet<()>, client: &NamespaceClient, all: bool, sender: &Sender<Input>) {
    let nodes: Api<Node> = Api::all(client.connection.client());
    let vms: Api<VirtualMachine> = client.api_of(all);
    let moves: Api<VirtualMachineMigration> = client.api_of(all);
    let events: Api<Event> = client.api_of(all);
    let about = Config::default().fields("involvedObject.kind=VirtualMachine");
    let plain = Config::default;
    let to = || sender.clone();
    tasks.spawn(watch::follow(nodes, plain(), Origin::Nodes, to(), convert::node, |c| Some(Input::Nodes(c))));
    tasks.spawn(watch::follow(vms, plain(), Origin::Vms, to(), convert::vm, |c| Some(Input::Vms(c))));
    tasks.spawn(watch::follow(moves, plain(), Origin::Moves, to(), convert::migration, |c| {
        Some(Input::Moves(c))
    }));
    tasks
        .spawn(watch::each(events, about, Origin::Events, to(), |event| Input::Event(convert::event(event))));
}

type Wrap<K, T> = fn(Change<K, T>) -> Option<Input>;
