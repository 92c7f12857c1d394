//! The node as a service: set-up, and the watches that drive it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event as Change, watcher};
use neonvm_kit::ca::Authority;
use neonvm_kit::private;
use neonvm_kit::supervise::Health;

use crate::events::Events;
use crate::images::Images;
use crate::network::{NodeNetwork, Peer};
use crate::node::{self, Node};
use crate::node_object::{self, Offer, Registration};
use crate::objects::Objects;
use crate::pod::{self, state_file};
use crate::rooms::Rooms;
use crate::storage::Storage;
use crate::{Config, Error, files, naming, runner_service, server};
use neonvm_core_kubelet::size::Need;
use neonvm_core_kubelet::status::has_ended;

/// Runs a node until `stop` ends. Pods continue: their processes are found again at the next start.
///
/// # Errors
/// If the node cannot be set up. That the API server does not answer is no error: it is tried again.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), Error> {
    node_object::check(&config)?;
    let _only = prepare(&config).await?;
    let client = neonvm_kit::client::connect(Some(&config.kubeconfig)).await?;
    let authority = Authority::open(&config.authority)?;
    let network = NodeNetwork::start(&config).await?;
    let listener = network.listen(config.listen)?;
    let local = listener.local_addr().map_err(failed("listen for", &config.data))?;
    let runners = runner_service::listen(&config.data);
    let runners = runners.map_err(failed("listen for runners in", &config.data))?;
    let offer = Offer::from_capacity(&config.capacity, &config.data);
    let storage = Storage::new(client.clone(), &config.name, &config.data);
    let events = Events::start(client.clone(), &config.name);
    let executable = match &config.executable {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(failed("find the program for", &config.data))?,
    };
    let node = Arc::new(Node {
        objects: Arc::new(Objects::new(client.clone())),
        images: Arc::new(Images::new(config.images.clone(), events.clone())),
        hierarchy: node::hierarchy(&config),
        address: network.node_address(config.listen),
        allocatable: (offer.cpu_milli, offer.memory_for_pods),
        rooms: Rooms::new(Need { cpu_milli: offer.cpu_milli, memory: offer.memory_for_pods }),
        authority: authority.certificate().to_owned(),
        storage,
        pods: parking_lot::Mutex::default(),
        workers: parking_lot::Mutex::default(),
        client,
        events,
        network,
        executable,
        config,
    });
    let registration = Registration {
        client: node.client.clone(),
        name: node.config.name.clone(),
        address: node.address.clone(),
        port: local.port(),
        offer,
        pods: node.network.pods(),
        runner: node_object::HostProgram::new(&node.executable, &node.config),
    };
    let (tls, renewal) = server::tls(authority, &node, local)?;
    let _workers = Workers(Arc::clone(&node));
    take_up(&node).await?;
    // On the heap: with it the work of a node would be too large for the stack of a thread.
    let volumes = Box::pin(node.storage.keep());
    let work = async {
        // The node must be registered before a client requests a pod's log, but pods need not wait for that.
        let registered = async {
            registration.begin().await;
            registration.keep().await;
        };
        let health = Health::default();
        tokio::select! {
            ended = health.supervise("registration", registered) => ended,
            ended = health.supervise("watch of pods", follow_pods(&node)) => ended,
            ended = health.supervise("watch of nodes", follow_nodes(&node)) => ended,
            ended = health.supervise("care for volumes", volumes) => ended,
            ended = health.supervise("renewal of the certificate", renewal) => ended,
            ended = health.supervise("server", server::serve(&node, listener, tls)) => ended,
            ended = health.supervise("service for runners", runner_service::serve(&node, runners)) => ended,
            ended = health.supervise("rotation of logs", server::logs::keep_short(&node)) => ended,
        }
    };
    tokio::select! {
        // The pods continue; the next process of this node takes them up.
        ended = work => Err(ended.into()),
        () = stop => Ok(()),
    }
}

/// Makes the node's directories; the lock that keeps other processes out while it is held.
async fn prepare(config: &Config) -> Result<std::fs::File, Error> {
    for directory in [&config.data, &config.images.directory] {
        files::directory(directory, 0o700).map_err(failed("create", directory))?;
    }
    let path = config.data.join("lock");
    let locking = tokio::task::spawn_blocking(move || lock(&path)).await;
    let locked = locking.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    locked.map_err(failed("lock", &config.data))
}

fn failed(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |source| Error::File { what, path, source }
}

/// Ends the tasks of the pods with the node, however it ends.
struct Workers(Arc<Node>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in std::mem::take(&mut *self.0.workers.lock()) {
            worker.abort();
        }
    }
}

/// Two processes for one node would fight for its pods. One that is just ending is waited for.
fn lock(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    let file = private::options().write(true).create(true).truncate(false).open(path)?;
    files::lock(&file, true)?;
    Ok(file)
}

/// Continues with the pods of a former run, and removes what no pod owns.
async fn take_up(node: &Arc<Node>) -> Result<(), Error> {
    let data = node.config.data.clone();
    let failed = |source| Error::File { what: "read", path: data.display().to_string(), source };
    let known = state_file::load_all(&node.config.data).map_err(failed)?;
    let keep: BTreeSet<String> = known.iter().map(|(uid, _)| uid.clone()).collect();
    if let Err(error) = node.network.sweep(&keep).await {
        tracing::warn!(%error, "what former pods left in the network cannot be removed");
    }
    node.images.sweep(&format!("{}.", node.config.name), &keep);
    if let Some(hierarchy) = &node.hierarchy {
        let own = format!("{}/{}", naming::cluster_cgroup(&node.config.cluster), node.config.name);
        for uid in hierarchy.children(&own).into_iter().filter(|uid| !keep.contains(uid)) {
            if let Err(error) = hierarchy.remove(&format!("{own}/{uid}")) {
                tracing::warn!(%error, uid, "the cgroup of a former pod cannot be removed");
            }
        }
    }
    for (uid, saved) in known {
        let handle = pod::spawn_known(node, saved);
        node.pods.lock().insert(uid, handle);
    }
    Ok(())
}

async fn follow_pods(node: &Arc<Node>) {
    let api: Api<Pod> = Api::all(node.client.clone());
    let selector = format!("spec.nodeName={}", node.config.name);
    let stream =
        watcher(api, watcher::Config::default().fields(&selector)).backoff(neonvm_kit::watch::retry());
    let mut stream = std::pin::pin!(stream);
    let mut listed = BTreeSet::new();
    while let Some(change) = stream.next().await {
        match change {
            Err(error) => tracing::debug!(%error, "the watch of pods starts again"),
            Ok(Change::Init) => listed.clear(),
            Ok(Change::InitApply(pod)) => {
                listed.insert(pod.metadata.uid.clone().unwrap_or_default());
                see(node, pod);
            }
            Ok(Change::InitDone) => {
                // Only a whole list shows that a pod is gone.
                let gone: Vec<_> = {
                    let pods = node.pods.lock();
                    pods.iter()
                        .filter(|(uid, _)| !listed.contains(*uid))
                        .map(|(_, h)| Arc::clone(h))
                        .collect()
                };
                gone.iter().for_each(|handle| handle.see_gone());
            }
            Ok(Change::Apply(pod)) => see(node, pod),
            Ok(Change::Delete(pod)) => {
                let handle = node.pods.lock().get(pod.metadata.uid.as_deref().unwrap_or("")).cloned();
                if let Some(handle) = handle {
                    handle.see_gone();
                }
            }
        }
        node.workers.lock().retain(|worker| !worker.is_finished());
    }
}

fn see(node: &Arc<Node>, pod: Pod) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    // UIDs become names of directories.
    if uid.is_empty() || uid.contains('/') || uid.starts_with('.') {
        return;
    }
    let pod = Arc::new(pod);
    let known = node.pods.lock().get(&uid).cloned();
    match known {
        Some(handle) => handle.see(pod),
        // It ended before this node observed it, or its files are lost: it is not run again.
        None if has_ended(&pod) => {}
        None => {
            let handle = pod::spawn_new(node, &pod);
            node.pods.lock().insert(uid, handle);
        }
    }
}

/// Follows the other nodes: routes to their pods.
async fn follow_nodes(node: &Arc<Node>) {
    if node.network.pods().is_none() {
        return std::future::pending().await;
    }
    let api: Api<NodeObject> = Api::all(node.client.clone());
    let (reader, writer) = kube::runtime::reflector::store();
    let stream = kube::runtime::reflector(writer, watcher(api, watcher::Config::default()))
        .backoff(neonvm_kit::watch::retry());
    let mut stream = std::pin::pin!(stream);
    let mut known: Option<BTreeSet<Peer>> = None;
    while let Some(change) = stream.next().await {
        if !matches!(change, Ok(Change::InitDone | Change::Apply(_) | Change::Delete(_))) {
            continue;
        }
        let peers: BTreeSet<Peer> = reader.state().iter().filter_map(|node| peer(node)).collect();
        if known.as_ref() == Some(&peers) {
            continue;
        }
        let list: Vec<Peer> = peers.iter().copied().collect();
        match node.network.set_peers(&list).await {
            Ok(()) => known = Some(peers),
            // The next heartbeat of any node is the next attempt.
            Err(error) => tracing::warn!(%error, "routes to other nodes cannot be set"),
        }
    }
}

fn peer(node: &NodeObject) -> Option<Peer> {
    let pods = node.spec.as_ref()?.pod_cidr.as_ref()?.parse().ok()?;
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let via = addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()?;
    Some(Peer { pods, via })
}
