//! The socket: who calls, how much of it, and what it gets.

mod caller;
mod cgroup;
mod cluster;
mod wire;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::{Api, Client};
use neonvm_api::{Policy, VirtualMachine};
use neonvm_types::node_protocol::{Answer, Refusal, Request, SOCKET, VERSION, Wants};
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::cpu;
pub use crate::cpu::Cgroups;
use crate::decision::{self, Order, Pod, refused};
use crate::network::{self, Namespace};
use caller::Caller;
pub use cluster::{Cluster, seen};
pub use network::Paths;

/// Connections at the same time, of all pods.
const CONNECTIONS: usize = 256;
/// Connections at the same time of one pod.
const OF_A_POD: usize = 2;
/// Time for a caller to send its request.
const REQUEST: Duration = Duration::from_secs(5);
/// Time for the objects of the API.
const OBJECTS: Duration = Duration::from_secs(10);

/// What is known of the pods of this node.
pub trait Pods: Send + Sync + 'static {
    /// UID of the pod that a process belongs to; `None`: it is no process of a pod. The caller checks afterwards that the process still
    /// lives. Does not wait for anything.
    fn uid(&self, pid: i32) -> Option<String>;

    /// The cgroup of a pod in which a process is whose cgroup is `own`, both within their hierarchy; `None`: `own` is none of this pod.
    fn cgroup(&self, uid: &str, own: &str) -> Option<String>;

    /// The pod with a UID, as the API has it; `None`: there is none on this node.
    fn pod(&self, uid: &str) -> impl Future<Output = Result<Option<Pod>, kube::Error>> + Send;
}

/// The service.
pub struct Service<P> {
    pub pods: P,
    /// Reads VMs and namespaces.
    pub client: Client,
    /// What the installation allows in all namespaces.
    pub policy: Policy,
    pub paths: Paths,
}

impl<P: std::fmt::Debug> std::fmt::Debug for Service<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, client: _, policy, paths } = self;
        let mut text = f.debug_struct("Service");
        text.field("pods", pods).field("policy", policy).field("paths", paths).finish_non_exhaustive()
    }
}

/// Makes the socket, in a directory of its own that is made if it is missing. Every user that reaches it may connect: a runner is any user,
/// and only processes of pods reach it.
///
/// # Errors
/// If the directory or the socket cannot be made.
pub fn listen(directory: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt as _;
    let permit = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    std::fs::create_dir_all(directory)?;
    permit(directory, 0o755)?;
    let path = directory.join(SOCKET);
    // A socket of a service that was here before leads nowhere.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Addresses of sockets are short; paths may not be.
    let handle = std::fs::File::open(directory)?;
    let address: PathBuf = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle)).into();
    let listener = UnixListener::bind(address.join(SOCKET))?;
    permit(&path, 0o666)?;
    Ok(listener)
}

/// Connections of each pod.
type Open = Arc<Mutex<BTreeMap<String, usize>>>;

/// One of them; counted until this is dropped.
struct Turn(Open, String);

impl Turn {
    fn take(open: &Open, uid: &str) -> Option<Self> {
        let mut all = open.lock();
        let count = all.entry(uid.to_owned()).or_default();
        if *count >= OF_A_POD {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(open), uid.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        if let Some(count) = all.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// Serves runners until the socket fails, which it returns.
pub async fn serve<P: Pods>(service: Arc<Service<P>>, listener: UnixListener) -> std::io::Error {
    let open = Open::default();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => stream,
                // The caller is gone, or there are too many files: the next one may fare better.
                Err(error) if is_passing(&error) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(error) => return error,
            },
            Some(_) = connections.join_next() => continue,
        };
        let (service, open) = (Arc::clone(&service), Arc::clone(&open));
        connections.spawn(async move { connection(&service, &open, stream).await });
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::CONNABORTED | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

async fn connection<P: Pods>(service: &Arc<Service<P>>, open: &Open, mut stream: UnixStream) {
    let (answer, files) = match handle(service, open, &mut stream).await {
        Ok(given) => given,
        Err(refusal) => {
            tracing::warn!(reason = refusal.reason, "a request of a pod is refused");
            (Answer::Refused(refusal), Vec::new())
        }
    };
    if let Err(error) = wire::send(&stream, &answer, &files).await {
        tracing::debug!(%error, "an answer was not sent");
    }
    wire::drain(&mut stream).await;
}

async fn handle<P: Pods>(
    service: &Arc<Service<P>>,
    open: &Open,
    stream: &mut UnixStream,
) -> Result<(Answer, Vec<OwnedFd>), Refusal> {
    let unknown =
        |error: std::io::Error| refused(format!("the calling process cannot be determined: {error}"));
    let caller = Caller::of(stream).map_err(unknown)?;
    let uid = service.pods.uid(caller.pid);
    let uid = uid.ok_or_else(|| refused(format!("process {} belongs to no pod of this node", caller.pid)))?;
    let Some(_turn) = Turn::take(open, &uid) else {
        return Err(Refusal { reason: "the pod has other requests open".to_owned(), later: true });
    };
    let request = tokio::time::timeout(REQUEST, wire::receive(stream)).await;
    let request =
        request.unwrap_or_else(|_| Err("no request arrived in time".to_owned())).map_err(refused)?;
    check_version(&request)?;
    let work = service.find(&uid, &caller, request.wants).await?;
    let service = Arc::clone(service);
    let made = tokio::task::spawn_blocking(move || make(&service, &uid, &caller, work));
    made.await.map_err(|error| refused(format!("internal: {error}")))?
}

/// What is to be made, and where.
enum Work {
    Network(Order, Namespace),
    Traffic(Namespace),
    /// Needs no network.
    Cpu,
}

/// Makes what a pod may have.
fn make<P: Pods>(
    service: &Service<P>,
    uid: &str,
    caller: &Caller,
    work: Work,
) -> Result<(Answer, Vec<OwnedFd>), Refusal> {
    let failed = |error: network::Error| refused(error.to_string());
    match work {
        Work::Network(order, place) => {
            let (link, files) = network::make(place, order, service.paths.clone()).map_err(failed)?;
            Ok((Answer::Network(link), files))
        }
        Work::Traffic(place) => Ok((Answer::Traffic(network::traffic(place).map_err(failed)?), Vec::new())),
        Work::Cpu => {
            let own = |group: &str| service.pods.cgroup(uid, group);
            let made = cpu::make((caller.pid, caller.user), &service.paths.cgroups, own);
            let (group, files) = made.map_err(|error| refused(error.to_string()))?;
            Ok((Answer::Cpu(group), files))
        }
    }
}

fn check_version(request: &Request) -> Result<(), Refusal> {
    match request.version {
        VERSION => Ok(()),
        other => {
            Err(refused(format!("version {other} of the protocol is unknown here, which has {VERSION}")))
        }
    }
}

impl<P: Pods> Service<P> {
    /// What a caller of a pod gets, and where it is made.
    async fn find(&self, uid: &str, caller: &Caller, wants: Wants) -> Result<Work, Refusal> {
        let found = tokio::time::timeout(OBJECTS, self.objects(uid)).await;
        let waits = |reason: String| Refusal { reason, later: true };
        let (pod, vm, policy) = found.map_err(|_| waits("the API server does not answer".to_owned()))??;
        let order = decision::order(&pod, &vm, &policy)?;
        let own = self.paths.own_namespace.as_deref();
        let place = || Namespace::of(caller.pid, own).map_err(|error| refused(error.to_string()));
        let work = match wants {
            Wants::Network => Work::Network(order, place()?),
            Wants::Traffic => Work::Traffic(place()?),
            Wants::Cpu => Work::Cpu,
        };
        if !caller.is_alive() {
            return Err(refused("the calling process has ended".to_owned()));
        }
        Ok(work)
    }

    async fn objects(&self, uid: &str) -> Result<(Pod, VirtualMachine, Policy), Refusal> {
        let failed = |error: kube::Error| Refusal {
            reason: format!("the objects of the pod cannot be read: {error}"),
            later: true,
        };
        let pod = self.pods.pod(uid).await.map_err(failed)?;
        // A list may be older than the pod.
        let missing =
            || Refusal { reason: format!("there is no pod with UID {uid} on this node"), later: true };
        let pod = pod.ok_or_else(missing)?;
        let Some((name, _)) = &pod.vm else {
            return Err(refused(format!("pod {} belongs to no VM", pod.name)));
        };
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &pod.namespace);
        let namespaces: Api<NamespaceObject> = Api::all(self.client.clone());
        let (vm, namespace) = tokio::join!(vms.get_opt(name), namespaces.get_metadata(&pod.namespace));
        let vm = vm.map_err(failed)?.ok_or_else(|| refused(format!("there is no VM {name}")))?;
        let labels = namespace.map_err(failed)?.metadata.labels.unwrap_or_default();
        Ok((pod, vm, self.policy.in_namespace(&labels)))
    }
}

#[cfg(test)]
mod tests;
