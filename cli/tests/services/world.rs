//! Controller, scheduler and agents against an API server in the process of the test, with fake nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use neonvm_agent::AgentConfig;
use neonvm_e2e::client::KubeClient;
use neonvm_e2e::sessions::{Failure, Limits, Player, Range, Session};
use neonvm_kit::lease::Times;
use neonvm_kit::port::Reserved;
use neonvm_test_cluster::{ApiServer, NAMESPACE, apply, eventually};
use neonvm_vm_controller::{Registration, WebhookClient, WebhookConfig, WebhookScope};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{guest, node};

/// Commands of a session.
pub(crate) const LENGTH: usize = 8;
/// Time for anything that a command orders: hundreds of times what it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Services and API server; gone when dropped.
pub(crate) struct World {
    server: ApiServer,
    services: JoinSet<()>,
    _listen: Reserved,
}

/// What VMs of fake nodes may be.
pub(crate) fn limits() -> Limits {
    Limits {
        cpu: Range { min: 1, max: 8000 },
        // Agents add 100 MiB to what a guest uses, and three quarters of the memory may be in use: with less no VM is idle.
        memory: Range { min: 136, max: 16 * 1024 },
        images: vec!["example.com/a:1".into(), "example.com/b:2".into()],
        vms: 3,
        removes_images: false,
    }
}

/// The nodes of a session.
fn nodes(seed: u64) -> [String; 2] {
    ["a", "b"].map(|side| format!("s{seed}-{side}"))
}

fn namespace(seed: u64) -> String {
    format!("s{seed}")
}

impl World {
    /// With two nodes, their agents and a namespace for each seed.
    pub(crate) async fn start(seeds: &[u64]) -> Self {
        let server = ApiServer::with_our_kinds().await;
        let listen = Reserved::loopback().unwrap();
        let mut services = JoinSet::new();
        let controller = controller(&server, &listen).await;
        services.spawn(async move {
            neonvm_vm_controller::run(controller, std::future::pending()).await.unwrap();
        });
        services.spawn(node::play(server.client.clone()));
        let mut world = Self { server, services, _listen: listen };
        world.until_registered().await;
        world.scheduler().await;
        for seed in seeds {
            let object =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(*seed) } });
            apply(&world.server.client, &object).await;
            world.kubeconfig(*seed);
            for name in nodes(*seed) {
                world.node(&name, *seed).await;
                world.agent(&name);
            }
        }
        world
    }

    async fn until_registered(&self) {
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let api: Api<DynamicObject> =
                Api::all_with(self.server.client.clone(), &ApiResource::from_gvk(&gvk));
            eventually(kind, async || {
                api.list(&kube::api::ListParams::default()).await.is_ok_and(|list| !list.items.is_empty())
            })
            .await;
        }
    }

    async fn scheduler(&mut self) {
        let config = neonvm_scheduler::Config {
            kubeconfig: Some(self.server.kubeconfig()),
            identity: "scheduler".into(),
            lease: Times {
                duration: Duration::from_secs(60),
                renew_deadline: Duration::from_secs(50),
                retry: Duration::from_millis(200),
            },
            ..neonvm_scheduler::Config::default()
        };
        let running = neonvm_scheduler::start(config).await.unwrap();
        self.services.spawn(async move { running.lead(std::future::pending()).await.unwrap() });
    }

    async fn node(&self, name: &str, seed: u64) {
        let labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "session": format!("s{seed}") });
        let client = &self.server.client;
        apply(
            client,
            &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } }),
        )
        .await;
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        let params = PatchParams::default();
        api.patch(name, &params, &Patch::Merge(json!({ "spec": { "taints": null } }))).await.unwrap();
        let room = json!({ "cpu": "128", "memory": "512Gi", "pods": "100" });
        let ready = json!([{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "" }]);
        let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": ready } });
        api.patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
    }

    /// Everything as fast as it can be.
    fn agent(&mut self, node: &str) {
        let mut settings = serde_json::to_value(AgentConfig::default()).unwrap();
        for (path, value) in [
            ("/monitor/serverPort", u64::from(guest::MONITOR)),
            ("/monitor/connectionRetryMinWaitSeconds", 1),
            ("/monitor/retryDeniedDownscaleSeconds", 1),
            ("/monitor/retryFailedRequestSeconds", 1),
            ("/metrics/system/port", u64::from(guest::METRICS)),
            ("/metrics/system/secondsBetweenRequests", 1),
            ("/scheduler/requestAtLeastEverySeconds", 2),
            ("/scheduler/retryFailedRequestSeconds", 1),
            ("/scheduler/retryDeniedUpscaleSeconds", 1),
            ("/neonvm/retryFailedRequestSeconds", 1),
        ] {
            *settings.pointer_mut(path).unwrap() = value.into();
        }
        let config = neonvm_agent::Config {
            kubeconfig: Some(self.server.kubeconfig()),
            node: node.into(),
            namespace: NAMESPACE.into(),
            identity: node.into(),
            listen: ([127, 0, 0, 1], 0).into(),
            pod_ip: None,
            metrics: None,
            dump_state: None,
            probes: None,
            vm_metrics: None,
            history: None,
            agent: AgentConfig::parse(&settings.to_string(), "agent.json").unwrap(),
        };
        self.services.spawn(async move { neonvm_agent::run(config, std::future::pending()).await.unwrap() });
    }

    fn path(&self, seed: u64) -> std::path::PathBuf {
        self.server.directory().join(format!("{}.kubeconfig", namespace(seed)))
    }

    /// A kubeconfig for the namespace of a session.
    fn kubeconfig(&self, seed: u64) {
        let text = std::fs::read_to_string(self.server.kubeconfig()).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        file["contexts"][0]["context"]["namespace"] = json!(namespace(seed));
        std::fs::write(self.path(seed), file.to_string()).unwrap();
    }

    fn player(&self, seed: u64) -> Player<'static> {
        let (kubeconfig, home) = (self.path(seed), self.server.directory().to_owned());
        let neonctl = move |words: &[String]| neonctl(words, seed, &kubeconfig, &home);
        Player {
            neonctl: Box::new(neonctl),
            client: KubeClient::new(self.server.kubeconfig()).in_namespace(&namespace(seed)),
            patience: PATIENCE,
            idle: true,
            ends_in_boot: true,
        }
    }

    /// Runs a session in its namespace.
    pub(crate) async fn play(&self, session: Session) -> Result<(), Box<Failure>> {
        let player = self.player(session.seed);
        tokio::task::spawn_blocking(move || player.play(&session)).await.unwrap()
    }
}

async fn controller(server: &ApiServer, listen: &Reserved) -> neonvm_vm_controller::Config {
    let mut config = neonvm_vm_controller::Config {
        kubeconfig: Some(server.kubeconfig_of_service("vm-controller").await),
        ..neonvm_vm_controller::Config::default()
    };
    config.settings.certificate_pause = 1;
    config.settings.restart_pause = 1;
    config.webhook = Some(WebhookConfig {
        listen: listen.address(),
        names: Vec::new(),
        register: Some(Registration::Url(format!("https://{}", listen.address()))),
        scope: WebhookScope::All,
        autoscaler: false,
        client: Some(WebhookClient {
            authority: server.directory().join("ca.crt"),
            names: vec![neonvm_test_cluster::CALLER.to_owned()],
        }),
    });
    config
}

/// The command line as a person has it; VMs are kept to the nodes of their session.
fn neonctl(words: &[String], seed: u64, kubeconfig: &Path, home: &Path) -> Command {
    let mut words = words.to_vec();
    if words.get(1).is_some_and(|verb| verb == "create") {
        words.splice(2..2, ["--node-selector".to_owned(), format!("session=s{seed}")]);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_neonctl"));
    let environment = BTreeMap::from([("HOME", home), ("KUBECONFIG", kubeconfig)]);
    command.args(words).env_clear().envs(environment).stdin(Stdio::null());
    command
}
