//! The plugin beside a kubelet of the test's own.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::devices::api::{
    self, AllocateRequest, AllocateResponse, ContainerAllocateRequest, DevicePluginOptions, DeviceSpec,
    Empty, ListAndWatchResponse, RegisterRequest,
};
use crate::devices::connection::{self, Client};

/// Takes registrations in `directory`, as a kubelet that has just started: it removes what is there first.
struct Kubelet {
    directory: PathBuf,
    registrations: mpsc::UnboundedReceiver<RegisterRequest>,
    serving: JoinHandle<()>,
}

impl Kubelet {
    fn start(directory: &Path) -> Self {
        for entry in std::fs::read_dir(directory).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
        let (sender, registrations) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            let answer = move |request: http::Request<hyper::body::Incoming>| {
                let sender = sender.clone();
                assert_eq!(request.uri().path(), api::REGISTER);
                crate::devices::plugin::unary(request, move |registration: RegisterRequest| {
                    sender.send(registration).unwrap();
                    Ok(Empty {})
                })
            };
            connection::serve(listener, answer).await;
        });
        Self { directory: directory.to_path_buf(), registrations, serving }
    }

    /// The next `count` registrations: endpoints by the name of their resource.
    async fn registered(&mut self, count: usize) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        while all.len() < count {
            let next = self.registrations.recv().await.unwrap();
            assert_eq!(next.version, "v1beta1");
            all.insert(next.resource_name, next.endpoint);
        }
        all
    }

    async fn client(&self, endpoint: &str) -> Client {
        Client::connect(&self.directory.join(endpoint)).await.unwrap()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A plugin that runs until it is stopped.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(kubelet: &Path, devices: &Path, kvm: Kvm) -> Self {
        let (directory, devices) = (kubelet.to_path_buf(), devices.to_path_buf());
        let config = Config { directory, devices, sockets: "/run/neonvm/node".into(), kvm, probes: None };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(config, async move {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

/// A `/dev` with these files; character devices need privileges to make, so they are links to one that is there.
fn devices(names: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in names {
        link(directory.path(), name);
    }
    directory
}

fn link(directory: &Path, name: &str) {
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/null", path).unwrap();
}

fn request(containers: &[&[&str]]) -> AllocateRequest {
    let container = |ids: &&[&str]| ContainerAllocateRequest {
        devices_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    AllocateRequest { container_requests: containers.iter().map(container).collect() }
}

async fn allocate(client: &Client, containers: &[&[&str]]) -> Result<Vec<Vec<DeviceSpec>>, tonic::Status> {
    let response: AllocateResponse = client.unary(api::ALLOCATE, request(containers)).await?;
    Ok(response.container_responses.into_iter().map(|container| container.devices).collect())
}

async fn health(client: &Client) -> (usize, String) {
    let mut lists = client.stream::<_, ListAndWatchResponse>(api::LIST_AND_WATCH, Empty {}).await.unwrap();
    let first = lists.message().await.unwrap().unwrap();
    let health = first.devices[0].health.clone();
    assert!(first.devices.iter().all(|unit| unit.health == health));
    (first.devices.len(), health)
}

#[tokio::test]
async fn pods_get_the_devices_of_their_node() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&["kvm", "net/tun"]));
    let mut kubelet = Kubelet::start(directory.path());
    let running = Running::start(directory.path(), devices.path(), Kvm::Auto);
    let endpoints = kubelet.registered(4).await;
    let names: Vec<&str> = endpoints.keys().map(String::as_str).collect();
    assert_eq!(names, ["neonvm/kvm", "neonvm/node", "neonvm/tun", "neonvm/vhost-net"]);
    let client = kubelet.client(&endpoints["neonvm/kvm"]).await;
    let DevicePluginOptions {} = client.unary(api::OPTIONS, Empty {}).await.unwrap();
    assert_eq!(health(&client).await, (1000, "Healthy".to_owned()));
    let file = |path: &str| DeviceSpec {
        container_path: path.to_owned(),
        // As root the plugin makes files that every user may open.
        host_path: match devices.path().join("neonvm").join(path.trim_start_matches("/dev/")).exists() {
            true => path.replace("/dev/", "/dev/neonvm/"),
            false => path.to_owned(),
        },
        permissions: "rw".to_owned(),
    };
    let given = allocate(&client, &[&["kvm-7"], &[], &["kvm-0", "kvm-999"]]).await.unwrap();
    assert_eq!(given, [vec![file("/dev/kvm")], vec![], vec![file("/dev/kvm")]]);
    let refused = allocate(&client, &[&["kvm-7"], &["tun-1"]]).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (tonic::Code::InvalidArgument, "neonvm/kvm has no unit \"tun-1\"")
    );
    let unknown = client.unary::<_, Empty>("/v1beta1.DevicePlugin/PreStartContainer", Empty {}).await;
    assert_eq!(unknown.unwrap_err().code(), tonic::Code::Unimplemented);
    let client = kubelet.client(&endpoints["neonvm/tun"]).await;
    assert_eq!(allocate(&client, &[&["tun-1"]]).await.unwrap(), [[file("/dev/net/tun")]]);
    let client = kubelet.client(&endpoints["neonvm/node"]).await;
    let response: AllocateResponse = client.unary(api::ALLOCATE, request(&[&["node-1"], &[]])).await.unwrap();
    let mounts: Vec<usize> = response.container_responses.iter().map(|one| one.mounts.len()).collect();
    assert_eq!(mounts, [1, 0]);
    let mount = &response.container_responses[0].mounts[0];
    assert_eq!(
        (mount.host_path.as_str(), mount.container_path.as_str()),
        ("/run/neonvm/node", "/run/neonvm-node")
    );
    assert!(mount.read_only && response.container_responses[0].devices.is_empty());
    // Once the node has it, QEMU gets the file for page faults with the socket.
    link(devices.path(), "userfaultfd");
    let with_faults = neonvm_test_support::eventually("the other file", async || {
        let given = allocate(&client, &[&["node-1"]]).await.unwrap().remove(0);
        let is_open = devices.path().join("neonvm/kvm").exists();
        (!given.is_empty() || !is_open).then_some(given)
    });
    assert!(with_faults.await.iter().all(|given| *given == file("/dev/userfaultfd")));
    // This node lacks it: the pod is admitted, and gets nothing.
    let client = kubelet.client(&endpoints["neonvm/vhost-net"]).await;
    assert_eq!(health(&client).await.1, "Healthy");
    assert_eq!(allocate(&client, &[&["vhost-net-1"]]).await.unwrap(), [vec![]]);
    running.end().await;
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kubelet.sock"], "the plugin removes its sockets");
}

#[tokio::test]
async fn a_kubelet_that_starts_again_learns_of_every_resource() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&["kvm", "net/tun"]));
    let mut kubelet = Kubelet::start(directory.path());
    let running = Running::start(directory.path(), devices.path(), Kvm::Never);
    let before = kubelet.registered(4).await;
    drop(kubelet);
    let mut kubelet = Kubelet::start(directory.path());
    assert_eq!(kubelet.registered(4).await, before);
    // By configuration no pod gets it, and pods that request it are admitted.
    let client = kubelet.client(&before["neonvm/kvm"]).await;
    assert_eq!(health(&client).await.1, "Healthy");
    assert_eq!(allocate(&client, &[&["kvm-1"]]).await.unwrap(), [vec![]]);
    let client = kubelet.client(&before["neonvm/tun"]).await;
    assert_eq!(health(&client).await, (1000, "Healthy".to_owned()));
    running.end().await;
}

/// A kubelet that keeps its connection, as one does that is about to end, must not keep memory of the plugin with each registration.
#[tokio::test]
async fn a_new_registration_ends_the_streams_of_the_one_before() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&["net/tun"]));
    let mut kubelet = Kubelet::start(directory.path());
    let running = Running::start(directory.path(), devices.path(), Kvm::Never);
    let endpoints = kubelet.registered(4).await;
    let client = kubelet.client(&endpoints["neonvm/tun"]).await;
    let mut lists = client.stream::<_, ListAndWatchResponse>(api::LIST_AND_WATCH, Empty {}).await.unwrap();
    assert!(lists.message().await.unwrap().is_some());
    let mut next = Kubelet::start(directory.path());
    assert_eq!(next.registered(4).await, endpoints);
    let ended = tokio::time::timeout(Duration::from_secs(60), lists.message()).await;
    assert!(!matches!(ended.expect("the stream ends"), Ok(Some(_))));
    running.end().await;
}

#[tokio::test]
async fn a_plugin_waits_for_a_kubelet() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&["net/tun"]));
    let running = Running::start(directory.path(), devices.path(), Kvm::Never);
    // It has looked for the kubelet now.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let mut kubelet = Kubelet::start(directory.path());
    assert_eq!(kubelet.registered(4).await.len(), 4);
    running.end().await;
}

#[tokio::test]
async fn a_device_that_appears_later_is_offered_then() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&[]));
    let mut kubelet = Kubelet::start(directory.path());
    let running = Running::start(directory.path(), devices.path(), Kvm::Require);
    let endpoints = kubelet.registered(4).await;
    let client = kubelet.client(&endpoints["neonvm/kvm"]).await;
    let mut lists = client.stream::<_, ListAndWatchResponse>(api::LIST_AND_WATCH, Empty {}).await.unwrap();
    let first = lists.message().await.unwrap().unwrap();
    assert!(first.devices.iter().all(|unit| unit.health == "Unhealthy"));
    let refused = allocate(&client, &[&["kvm-1"]]).await.unwrap_err();
    assert_eq!(refused.message(), "this node has no /dev/kvm");
    link(devices.path(), "kvm");
    let second = lists.message().await.unwrap().unwrap();
    assert!(second.devices.iter().all(|unit| unit.health == "Healthy"));
    assert_eq!(allocate(&client, &[&["kvm-1"]]).await.unwrap()[0].len(), 1);
    running.end().await;
}

/// No network can be made there, so pods go to other nodes, and the file may appear later.
#[tokio::test]
async fn a_node_without_tap_devices_offers_no_node_service() {
    let (directory, devices) = (tempfile::tempdir().unwrap(), devices(&["kvm"]));
    let mut kubelet = Kubelet::start(directory.path());
    let running = Running::start(directory.path(), devices.path(), Kvm::Auto);
    let endpoints = kubelet.registered(4).await;
    let client = kubelet.client(&endpoints["neonvm/node"]).await;
    let mut lists = client.stream::<_, ListAndWatchResponse>(api::LIST_AND_WATCH, Empty {}).await.unwrap();
    let first = lists.message().await.unwrap().unwrap();
    assert!(first.devices.iter().all(|unit| unit.health == "Unhealthy"));
    let refused = allocate(&client, &[&["node-1"]]).await.unwrap_err();
    assert_eq!(refused.message(), "this node has no /dev/net/tun");
    link(devices.path(), "net/tun");
    let second = lists.message().await.unwrap().unwrap();
    assert!(second.devices.iter().all(|unit| unit.health == "Healthy"));
    running.end().await;
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let config = Config {
        directory: "/no/such/directory".into(),
        devices: "/dev".into(),
        sockets: "/run/neonvm/node".into(),
        kvm: Kvm::Auto,
        probes: None,
    };
    let error = run(config, std::future::pending()).await.unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/directory: No such file") && error.contains("--kubelet-directory"),
        "{error}"
    );
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config {
        directory: directory.path().into(),
        devices: "/dev".into(),
        sockets: "/run/neonvm/node".into(),
        kvm: Kvm::Auto,
        probes: Some(taken.local_addr().unwrap()),
    };
    let error = run(config, std::future::pending()).await.unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains("--health-probe-bind-address"), "{error}");
}

/// Ready while every resource is registered with the running kubelet; alive all the time.
#[tokio::test]
async fn a_plugin_is_ready_while_the_kubelet_knows_every_resource() {
    let directory = tempfile::tempdir().unwrap();
    let plugins: Vec<_> = Device::ALL
        .into_iter()
        .map(|device| {
            let (_, offer) = watch::channel(device.offer(true, Kvm::Auto));
            Arc::new(Plugin::new(device, offer, PathBuf::new()))
        })
        .collect();
    let status = |path: &str| probes::answer(path, &plugins).status().as_u16();
    assert_eq!((status("/healthz"), status("/readyz")), (200, 503));
    let mut kubelet = Kubelet::start(directory.path());
    let mut keeping = JoinSet::new();
    for plugin in plugins.iter().cloned() {
        let directory = directory.path().to_path_buf();
        keeping.spawn(async move { registration::keep(plugin, &directory).await });
    }
    kubelet.registered(4).await;
    neonvm_test_support::eventually("readiness", async || (status("/readyz") == 200).then_some(())).await;
    drop(kubelet);
    std::fs::remove_file(directory.path().join("kubelet.sock")).unwrap();
    neonvm_test_support::eventually("the end of it", async || (status("/readyz") == 503).then_some(())).await;
    assert_eq!(status("/healthz"), 200);
}
