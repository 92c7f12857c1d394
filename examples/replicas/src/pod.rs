//! One pod: a process and its object. When the process ends by itself another one takes its place.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::REQUEST;
use super::load::{Readiness, request};
use super::server::Manner;
use super::spec::Spec;

/// Between two questions whether a pod that starts is ready.
const LOOK: Duration = Duration::from_millis(100);
/// The longest that it may take, and the longest that it may take to end.
const STARTING: Duration = Duration::from_secs(120);
const ENDING: Duration = Duration::from_secs(8);
/// First and longest pause after a process that ended by itself; one that lived longer begins with the first again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
const TRIES: u32 = 64;

/// What all pods share.
pub(crate) struct Stage {
    pub(crate) client: kube::Client,
    program: PathBuf,
    /// The next address, within a network of 254.
    next: AtomicU32,
}

impl Stage {
    pub(crate) fn new(client: kube::Client) -> anyhow::Result<Arc<Self>> {
        let program = std::env::current_exe().context("cannot find this program")?;
        Ok(Arc::new(Self { client, program, next: AtomicU32::new(0) }))
    }

    /// A listener at an address that no other pod has: below 127.64.0.0, where nodes of local clusters have theirs, and
    /// in a network that depends on this process.
    fn listen(&self, port: u16) -> anyhow::Result<(TcpListener, SocketAddr)> {
        let own = std::process::id();
        let mut last = None;
        for _ in 0..TRIES {
            let host = self.next.fetch_add(1, Ordering::Relaxed) % 254 + 1;
            let address =
                Ipv4Addr::from((127 << 24) | ((2 + own / 256 % 62) << 16) | ((own % 256) << 8) | host);
            let address = SocketAddr::from((address, port));
            match TcpListener::bind(address) {
                Ok(listener) => return Ok((listener, address)),
                Err(error) => last = Some(error),
            }
        }
        let error = last.map_or_else(String::new, |error| error.to_string());
        anyhow::bail!("port {port} is free on no address: {error}")
    }
}

/// Ends when the pod of this number is not wanted any more, or the fleet ends.
async fn unwanted(mut specs: watch::Receiver<Spec>, number: usize) {
    let _ = specs.wait_for(|spec| spec.replicas <= number).await;
}

fn is_wanted(specs: &watch::Receiver<Spec>, number: usize) -> bool {
    specs.has_changed().is_ok() && specs.borrow().replicas > number
}

/// Simulates a pod as long as it is wanted; returns its number.
pub(crate) async fn keep(
    stage: Arc<Stage>,
    number: usize,
    specs: watch::Receiver<Spec>,
    readiness: Readiness,
) -> usize {
    let mut pause = PAUSES.0;
    while is_wanted(&specs, number) {
        let begun = Instant::now();
        let name = specs.borrow().name.clone();
        if let Err(error) = once(&stage, number, &specs, &readiness).await {
            tracing::warn!("a pod of {name}: {error:#}");
        }
        if begun.elapsed() > PAUSES.1 {
            pause = PAUSES.0;
        }
        let _ = tokio::time::timeout(pause, unwanted(specs.clone(), number)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
    number
}

/// One process, from its start to its end.
async fn once(
    stage: &Stage,
    number: usize,
    specs: &watch::Receiver<Spec>,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    let spec = specs.borrow().clone();
    let (listener, address) = stage.listen(spec.port)?;
    let mut child = Command::new(&stage.program)
        .args(["pod", "--parent", &std::process::id().to_string()])
        .args(&spec.arguments)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", stage.program.display()))?;
    let object = Object {
        pods: Api::namespaced(stage.client.clone(), &spec.namespace),
        name: format!("{}-{}", spec.name, child.id().unwrap_or_default()),
        address,
        begun: Timestamp::now(),
        spec,
    };
    let lived = tokio::select! {
        ended = child.wait() => Err(anyhow::anyhow!("its process ended: {}", ended?)),
        lived = live(&object, number, specs.clone(), readiness) => lived,
        () = unwanted(specs.clone(), number) => Ok(()),
    };
    // First no client is sent there any more, then it ends.
    readiness.remove(address);
    let removed = object.remove().await;
    stop(&mut child).await;
    lived.and(removed)
}

async fn live(
    object: &Object,
    number: usize,
    mut specs: watch::Receiver<Spec>,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    object.create().await?;
    object.write_status(false).await?;
    let mut manner = Manner::default();
    tokio::time::timeout(STARTING, started(object.address)).await.context("it does not become ready")?;
    let wanted = specs.borrow().metrics;
    behave(object.address, &mut manner, wanted).await?;
    object.write_status(true).await?;
    readiness.add(object.address);
    while is_wanted(&specs, number) {
        let wanted = specs.borrow_and_update().metrics;
        behave(object.address, &mut manner, wanted).await?;
        if specs.changed().await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn started(address: SocketAddr) {
    while !matches!(request(address, "GET", "/ready").await, Ok((200, _))) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Its metrics answer as wanted from now on.
async fn behave(address: SocketAddr, now: &mut Manner, wanted: Manner) -> anyhow::Result<()> {
    if *now != wanted {
        let (status, text) = request(address, "PUT", &format!("/metrics/{}", wanted.word())).await?;
        ensure!(status == 200, "it does not take {wanted:?}: {text}");
        *now = wanted;
    }
    Ok(())
}

async fn stop(child: &mut Child) {
    let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

struct Object {
    pods: Api<Pod>,
    name: String,
    address: SocketAddr,
    begun: Timestamp,
    spec: Spec,
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> anyhow::Result<T> {
    Ok(tokio::time::timeout(REQUEST, request).await.context("the API server did not answer")??)
}

impl Object {
    async fn create(&self) -> anyhow::Result<()> {
        let spec = &self.spec;
        let mut pod = json!({"metadata": spec.template.metadata, "spec": spec.template.spec});
        merge(
            &mut pod,
            &json!({"metadata": {"name": self.name,
                "labels": {"app.kubernetes.io/managed-by": "simulated-pods"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": spec.name,
                    "uid": spec.uid, "controller": true, "blockOwnerDeletion": false}]},
            // No scheduler gives it to a node.
            "spec": {"schedulingGates": [{"name": "workload.vm.neon.tech/played-elsewhere"}]}}),
        );
        let pod: Pod = serde_json::from_value(pod)?;
        within(self.pods.create(&PostParams::default(), &pod)).await.context("cannot create its Pod")?;
        Ok(())
    }

    async fn write_status(&self, ready: bool) -> anyhow::Result<()> {
        let (now, begun) = (Timestamp::now().to_string(), self.begun.to_string());
        let word = if ready { "True" } else { "False" };
        let condition =
            |kind: &str, word: &str| json!({"type": kind, "status": word, "lastTransitionTime": now});
        let address = self.address.ip().to_string();
        let containers = self.spec.template.spec.as_ref().map(|spec| spec.containers.as_slice());
        let containers: Vec<Value> = containers
            .unwrap_or_default()
            .iter()
            .map(|container| {
                json!({"name": container.name, "ready": ready, "started": true, "restartCount": 0,
                    "image": container.image.as_deref().unwrap_or_default(), "imageID": "",
                    "state": {"running": {"startedAt": begun}}})
            })
            .collect();
        let conditions: Vec<Value> = [("Initialized", "True"), ("ContainersReady", word), ("Ready", word)]
            .map(|(kind, word)| condition(kind, word))
            .into();
        let status = json!({"status": {"phase": "Running", "startTime": begun, "podIP": address,
            "podIPs": [{"ip": address}], "conditions": conditions, "containerStatuses": containers}});
        let how = PatchParams::default();
        let patch = Patch::Merge(&status);
        within(self.pods.patch_status(&self.name, &how, &patch)).await.context("cannot write its status")?;
        Ok(())
    }

    async fn remove(&self) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        match tokio::time::timeout(REQUEST, self.pods.delete(&self.name, &now)).await {
            Ok(Err(kube::Error::Api(answer))) if answer.code == 404 => Ok(()),
            Ok(done) => Ok(done.map(drop).context("cannot delete its Pod")?),
            Err(_) => anyhow::bail!("the API server did not answer"),
        }
    }
}

/// Merges objects (RFC 7386, without removing anything).
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
