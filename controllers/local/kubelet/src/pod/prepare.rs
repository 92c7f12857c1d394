//! Network and volumes of a pod: made before it starts, kept while it lives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use neonvm_api::runner_pod::SSH_PRIVATE_DIRECTORY;
use tokio::sync::{mpsc, watch};

use super::own_root::{self, Layout};
use super::state::{Task, Worker};
use super::{Handle, PodDirectory};
use crate::network::attachments;
use crate::node::Node;
use crate::problem::Problem;
use crate::volumes::Held;
use crate::{files, naming, sys};
use neonvm_core_kubelet::{Event, Phase};

/// First and longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

struct Preparation {
    node: Arc<Node>,
    handle: Arc<Handle>,
    ip: watch::Sender<String>,
    events: mpsc::Sender<Event>,
    /// Whether its containers have a user and a root of their own.
    own_root: bool,
}

/// Prepares a pod, and keeps its volumes up to date afterwards.
pub(super) fn start(worker: &Worker) -> Task {
    let preparation = Preparation {
        node: Arc::clone(&worker.node),
        handle: Arc::clone(&worker.handle),
        ip: worker.ip.clone(),
        events: worker.events.clone(),
        own_root: match Layout::read(&worker.handle.directory) {
            Ok(known) => known.own_root,
            // Containers that run already are those of an earlier version.
            Err(_) => sys::can_make_roots() && worker.machine.phase != Phase::Running,
        },
    };
    Task(tokio::spawn(preparation.run()))
}

impl Preparation {
    async fn run(self) {
        let mut held = Held::default();
        let mut pause = PAUSES.0;
        loop {
            let problem = match self.prepare(&mut held).await {
                Ok(()) => break,
                Err(problem) => problem,
            };
            let (reason, message) = (problem.reason.to_owned(), problem.message.clone());
            if problem.is_final {
                let _ = self.events.send(Event::Refused { reason, message }).await;
                return;
            }
            let pod = Arc::clone(&self.handle.pod.borrow());
            self.node.events.warning(&pod, problem.reason, message.clone());
            let _ = self.events.send(Event::HeldUp { reason, message: message.clone() }).await;
            // What is missing may appear; then there is no need to wait.
            tokio::select! {
                () = held.changed() => tokio::time::sleep(Duration::from_millis(100)).await,
                () = async {
                    tokio::time::sleep(pause / 10).await;
                    let pulls = problem.reason == "ErrImagePull";
                    if pulls {
                        let reason = "ImagePullBackOff".to_owned();
                        let message = format!("Back-off pulling image: {message}");
                        let _ = self.events.send(Event::HeldUp { reason, message }).await;
                    }
                    tokio::time::sleep(pause).await;
                } => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
        if self.events.send(Event::Prepared).await.is_err() {
            return;
        }
        self.follow(&mut held).await;
    }

    async fn prepare(&self, held: &mut Held) -> Result<(), Problem> {
        let (node, directory) = (&self.node, &self.handle.directory);
        let failed = |error: io::Error| Problem::new("FailedCreatePodSandBox", error.to_string());
        for path in [directory.path().to_path_buf(), directory.root(), directory.etc(), directory.exec()] {
            files::directory(&path, 0o700).map_err(failed)?;
        }
        let pod = Arc::clone(&self.handle.pod.borrow());
        let extra = attachments::interfaces(&pod);
        let extra = extra.map_err(|message| Problem::new("FailedCreatePodSandBox", message))?;
        let address = node.network.attach(&self.handle.uid, &extra).await.map_err(failed)?;
        node.network.free_ports(&self.handle.uid, &pod).await.map_err(failed)?;
        self.ip.send_if_modified(|ip| {
            let text = address.to_string();
            let differs = *ip != text;
            *ip = text;
            differs
        });
        let name = pod.metadata.name.clone().unwrap_or_default();
        write_etc(directory, &name, &address.to_string()).map_err(failed)?;
        if let Some(hierarchy) = &node.hierarchy {
            let group = naming::pod_cgroup(&node.config.cluster, &node.config.name, &self.handle.uid);
            hierarchy.create(&group).map_err(failed)?;
            hierarchy.limit_processes(&group).map_err(failed)?;
        }
        let around = node.surroundings(&self.handle.uid, &address.to_string());
        let context = node.volumes(&self.handle, &pod, self.owner(&address.to_string()));
        let mounts = context.lay_out(&pod, &around, held).await?;
        Layout { own_root: self.own_root, mounts }.write(directory).map_err(failed)
    }

    /// The user of the pod, if it has one of its own.
    fn owner(&self, ip: &str) -> Option<u32> {
        own_root::user(ip).filter(|_| self.own_root)
    }

    /// Follows changes of what the volumes show.
    async fn follow(&self, held: &mut Held) {
        let mut pods = self.handle.pod.subscribe();
        let mut pause = PAUSES.0;
        loop {
            tokio::select! {
                () = held.changed() => {}
                changed = pods.changed() => if changed.is_err() { return },
            }
            let pod = Arc::clone(&pods.borrow_and_update());
            if pod.metadata.deletion_timestamp.is_some() {
                // It keeps what it shows; its secrets may be gone before it.
                return;
            }
            let around = self.node.surroundings(&self.handle.uid, &self.ip.borrow());
            let context = self.node.volumes(&self.handle, &pod, self.owner(&self.ip.borrow()));
            if let Err(problem) = context.refresh(&pod, &around, held).await {
                // The old files stay, as kubelets keep them.
                self.node.events.warning(&pod, problem.reason, problem.message);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            } else {
                pause = PAUSES.0;
            }
        }
    }
}

/// Files that take the place of the host's own in the pod: names, DNS servers, and how to log into the guest.
fn write_etc(directory: &PodDirectory, name: &str, address: &str) -> io::Result<()> {
    let etc = directory.etc();
    let hosts = format!(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{address}\t{name}\n169.254.254.254\tguest-vm\n"
    );
    files::replace(&etc.join("hosts"), hosts.as_bytes(), 0o644)?;
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    // What systemd-resolved listens on is not there in another network namespace; its own servers are.
    let resolved = std::fs::read_to_string("/run/systemd/resolve/resolv.conf");
    let servers = if own.contains("127.0.0.53") { resolved.unwrap_or(own) } else { own };
    files::replace(&etc.join("resolv.conf"), servers.as_bytes(), 0o644)?;
    // Paths are those of a command's own root. The guest's key is new at every start, and nothing but the guest is at the other end of
    // the pod's link.
    let key = format!("{SSH_PRIVATE_DIRECTORY}/id_ed25519");
    let ssh = format!(
        "Host guest-vm\n    User root\n    IdentityFile {key}\n    IdentitiesOnly yes\n    StrictHostKeyChecking no\n    \
         UserKnownHostsFile /dev/null\n    LogLevel ERROR\n"
    );
    files::replace(&etc.join("ssh_config"), ssh.as_bytes(), 0o644)
}
