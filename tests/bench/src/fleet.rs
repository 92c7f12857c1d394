//! Five thousand machines under one controller. API server, node and runners are simulated in this process; the controller is a
//! child of its own, so that its memory and processor time are its own.
//!
//! Every pod gets an address of its own in 127.0.0.0/8; one listener answers for all of them. A certificate of the internal
//! authority for `*.vm.neon.tech` fits every runner.

mod runners;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use neonvm_api::lifetimes::Lifetimes;
use neonvm_apiserver::Server;
use neonvm_kit::authority;
use neonvm_kit::ca::Authority;
use neonvm_kit::signer::Signer;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::report::{Row, Rows};
use crate::service::Service;

use runners::Runners;

/// Where services live.
const NAMESPACE: &str = "neonvm-system";
/// Name for `--only`.
const NAME: &str = "fleet";
/// Port of runners; not the usual one, so that a local cluster may run beside this.
const PORT: u16 = 25_993;
/// Requests at the same time.
const AT_ONCE: usize = 64;
/// Time over which rest is measured.
const REST: Duration = Duration::from_secs(20);
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);

/// Measures.
pub async fn run(program: &Path, directory: &Path, vms: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let config = neonvm_apiserver::server::Config {
        directory: directory.to_owned(),
        listen: "127.0.0.1:0".parse()?,
        names: Vec::new(),
        faults: false,
        has_hpa_controller: true,
    };
    let server = Server::start(&config).await?;
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig("fleet").to_string())?;
    let state = server.state();
    let client = client(&kubeconfig).await?;
    let mut playing = JoinSet::new();
    playing.spawn(until_it_fails(server));
    define(&client).await?;
    let runners = Arc::new(Runners::default());
    let start_controller = || {
        let arguments = [OsStr::new("--kubeconfig"), kubeconfig.as_os_str()];
        Service::start(program, "vm-controller", &arguments, directory)
    };
    let controller = start_controller()?;
    playing.spawn(Arc::clone(&runners).serve(acceptor(&client).await?, PORT));
    playing.spawn(node(client.clone()));
    let revision = || state.with(|engine| engine.store().revision());

    let start = Instant::now();
    create(&client, vms).await?;
    let created = start.elapsed();
    until("all VMs run", || state.with(settled) >= vms).await?;
    let note = format!("{vms} VMs; all objects created after {:.1} s", created.as_secs_f64());
    let running = start.elapsed().as_secs_f64();
    rows.push(Row::at_most(NAME, "created → all Running", running, "s", 60.0).note(note))?;

    quiet(revision).await?;
    let (peak, resident) = (controller.peak_memory()?, controller.memory()?);
    let (before, cpu) = (revision(), controller.cpu()?);
    tokio::time::sleep(REST).await;
    let writes = revision() - before;
    let cpu = controller.cpu()?.saturating_sub(cpu);
    rows.push(Row::at_most(NAME, "writes in 20 s of rest", writes as f64, "", 0.0))?;
    let share = 100.0 * cpu.as_secs_f64() / REST.as_secs_f64();
    rows.push(Row::at_most(NAME, "controller's CPU at rest", share, "%", 2.0).note("of one core"))?;

    drop(controller);
    until("the streams are closed", || runners.streams() == 0).await?;
    let (before, start) = (revision(), Instant::now());
    let controller = start_controller()?;
    until("all runners are connected again", || runners.streams() >= vms).await?;
    let restart = start.elapsed().as_secs_f64();
    let what = "controller restarted → steady";
    rows.push(Row::at_most(NAME, what, restart, "s", 10.0).note("every runner is connected"))?;
    quiet(revision).await?;
    let rewrites = revision() - before;
    rows.push(Row::at_most(NAME, "writes of a restart", rewrites as f64, "", 0.0))?;
    let again = controller.peak_memory()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    rows.push(
        Row::at_most(NAME, "controller's memory, at most", mib(peak.max(again)), "MiB", 300.0)
            .note(format!("{:.0} MiB at rest", mib(resident))),
    )
}

/// Serves. A server that fails leaves its clients without answers, and what they measure ends with an error.
pub(crate) async fn until_it_fails(server: Server) {
    let _ = server.run(std::future::pending()).await;
}

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::from_yaml(&std::fs::read_to_string(kubeconfig)?)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}

async fn until(what: &str, mut is: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        anyhow::ensure!(Instant::now() < deadline, "it did not come about that {what}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until nothing was written for two seconds.
async fn quiet(revision: impl Fn() -> u64) -> anyhow::Result<()> {
    let mut last = (revision(), Instant::now());
    until("there is rest", || {
        if revision() != last.0 {
            last = (revision(), Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(2)
    })
    .await
}

/// Machines that run at the size asked for.
fn settled(engine: &neonvm_apiserver_engine::engine::Engine) -> usize {
    (0_usize..)
        .map_while(|number| {
            engine.object("vm.neon.tech", "virtualmachines", "default", &format!("vm-{number}"))
        })
        .take_while(|vm| {
            let conditions = vm.pointer("/status/conditions").and_then(serde_json::Value::as_array);
            vm.pointer("/status/phase").is_some_and(|phase| phase == "Running")
                && conditions.into_iter().flatten().any(|c| {
                    c.get("type").is_some_and(|t| t == "Scaled")
                        && c.get("status").is_some_and(|s| s == "True")
                })
        })
        .count()
}

pub(crate) async fn define(client: &Client) -> anyhow::Result<()> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    for crd in neonvm_api::crds() {
        api.create(&PostParams::default(), &serde_json::from_value(crd)?).await?;
    }
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine"));
    let vms: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    let deadline = Instant::now() + PATIENCE;
    while vms.list(&kube::api::ListParams::default()).await.is_err() {
        anyhow::ensure!(Instant::now() < deadline, "machines are not served");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn create(client: &Client, machines: usize) -> anyhow::Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("vm.neon.tech", "v1", "VirtualMachine"));
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for _ in 0..AT_ONCE {
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
        let next = Arc::clone(&next);
        running.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= machines {
                    return anyhow::Ok(());
                }
                let vm = json!({"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine",
                    "metadata": {"name": format!("vm-{number}")}, "spec": {"runnerPort": PORT, "guest": {
                        "cpus": {"min": 0.25, "max": 1, "use": 0.25}, "memorySlots": {"min": 1, "max": 4, "use": 1},
                        "rootDisk": {"image": "img:1"}}}});
                api.create(&PostParams::default(), &serde_json::from_value(vm)?).await?;
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(())
}

/// Marks pods as running, each with an address of its own.
async fn node(client: Client) {
    let mut pods = 0;
    let api: Api<Pod> = Api::default_namespaced(client);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut working = JoinSet::new();
    let mut events = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
    loop {
        let Ok(Some(event)) = events.try_next().await else { continue };
        let (watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event else { continue };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, None | Some("Pending")) {
            continue;
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while working.try_join_next().is_some() {}
        pods += 1;
        let (api, address) = (api.clone(), pod_address(pods));
        working.spawn(async move {
            // One that is gone meanwhile needs no status.
            mark_running(&api, &pod.name_any(), address).await.ok();
            drop(place);
        });
    }
}

fn pod_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x7f10_0000 + number)
}

/// What a kubelet writes when the container runs.
async fn mark_running(api: &Api<Pod>, name: &str, address: Ipv4Addr) -> Result<(), kube::Error> {
    let container = json!({"name": "neonvm-runner", "image": "", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {}}});
    let status = json!({"status": {"phase": "Running", "podIP": address.to_string(),
        "containerStatuses": [container]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.map(drop)
}

/// Answers certificate requests of services, as the controller that leads does; never returns.
pub(crate) async fn signing(client: &Client) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    const MANAGER: &str = "bench";
    let internal = authority::INTERNAL;
    let opened = authority::open(client, NAMESPACE, internal, MANAGER).await?;
    authority::publish(client, NAMESPACE, (internal, &opened), MANAGER).await?;
    Ok(Signer::new(
        client.clone(),
        NAMESPACE,
        (authority::Current::new(opened), &Lifetimes::DEFAULT),
        MANAGER,
    )
    .serve())
}

/// TLS with a certificate for every runner, from the authority that the controller made.
async fn acceptor(client: &Client) -> anyhow::Result<TlsAcceptor> {
    let api: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let deadline = Instant::now() + PATIENCE;
    let secret = loop {
        if let Some(secret) = api.get_opt("neonvm-internal-ca").await? {
            break secret;
        }
        anyhow::ensure!(Instant::now() < deadline, "the controller made no authority");
        tokio::time::sleep(LOOK).await;
    };
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()).context("a broken authority")
    };
    let authority = Authority::from_pem(&text("tls.crt")?, &text("tls.key")?)?;
    let identity = authority.server("fleet", &["*.vm.neon.tech".to_owned()])?;
    let mut config = neonvm_kit::tls::server(&identity, authority.certificate())?;
    config.alpn_protocols.clear();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
