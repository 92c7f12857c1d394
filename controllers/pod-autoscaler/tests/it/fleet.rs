//! What a cluster does for a deployment: as many pods as it requests, each with its address on the loopback interface
//! and a listener that reports its share of the load.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What the listeners do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// They report the load.
    Well,
    /// They close at once.
    Down,
    /// They never answer.
    Silent,
    /// They talk nonsense.
    Garbage,
    /// Only the first pod answers.
    OnlyFirst,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// The whole load, spread evenly.
    load: AtomicU64,
    pods: AtomicU32,
    manner: Mutex<Manner>,
    pub(crate) scrapes: AtomicU64,
}

impl Shared {
    pub(crate) fn pods(&self) -> u32 {
        self.pods.load(Ordering::Relaxed)
    }

    pub(crate) fn load(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let load = self.load.load(Ordering::Relaxed) as f64;
        load
    }

    /// The load of one pod.
    pub(crate) fn share(&self) -> f64 {
        self.load() / f64::from(self.pods().max(1))
    }
}

pub(crate) struct Fleet {
    pub(crate) shared: Arc<Shared>,
    pub(crate) port: u16,
    playing: JoinHandle<()>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.playing.abort();
    }
}

impl Fleet {
    /// A deployment with so many replicas, and what makes its pods.
    pub(crate) async fn start(client: &Client, name: &str, replicas: i32) -> Self {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let own = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let network = [127, 64 + u8::try_from(std::process::id() % 128).unwrap(), u8::try_from(own).unwrap()];
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        deployments(client).create(&PostParams::default(), &deployment).await.unwrap();
        // Its own on one address of the network is its own on all. It is kept: the first pod listens there.
        let first = TcpListener::bind((address(network, 0), 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            load: AtomicU64::new(0),
            pods: AtomicU32::new(0),
            manner: Mutex::new(Manner::Well),
            scrapes: AtomicU64::new(0),
        });
        let playing =
            tokio::spawn(play(client.clone(), name.to_owned(), network, first, Arc::clone(&shared)));
        let fleet = Self { shared, port, playing };
        fleet.until_pods(u32::try_from(replicas).unwrap()).await;
        fleet
    }

    pub(crate) fn set_load(&self, load: u64) {
        self.shared.load.store(load, Ordering::Relaxed);
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    pub(crate) fn pods(&self) -> u32 {
        self.shared.pods()
    }

    /// Waits until the pods were read so many times more, all together.
    pub(crate) async fn until_scrapes(&self, more: u64) {
        let read = || self.shared.scrapes.load(Ordering::Relaxed);
        let (begun, until) = (read(), tokio::time::Instant::now() + crate::cluster::PATIENCE);
        while read() < begun + more {
            assert!(tokio::time::Instant::now() < until, "{} readings, not {more}", read() - begun);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until there are so many pods, and still are when they were read four times more: while pods come and go their shares
    /// are not quite the load, and what was made of that is over by then.
    pub(crate) async fn until_settled(&self, count: u32) {
        loop {
            self.until_pods(count).await;
            self.until_scrapes(u64::from(count) * 4).await;
            if self.pods() == count {
                return;
            }
        }
    }

    pub(crate) async fn until_pods(&self, count: u32) {
        let until = tokio::time::Instant::now() + crate::cluster::PATIENCE;
        while self.pods() != count {
            assert!(tokio::time::Instant::now() < until, "{} pods, not {count}", self.pods());
            sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) fn deployments(client: &Client) -> Api<Deployment> {
    Api::namespaced(client.clone(), "default")
}

fn address(network: [u8; 3], host: u8) -> Ipv4Addr {
    let [a, b, c] = network;
    Ipv4Addr::new(a, b, c, host + 1)
}

async fn play(client: Client, name: String, network: [u8; 3], first: TcpListener, shared: Arc<Shared>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let port = first.local_addr().unwrap().port();
    let mut first = Some(first);
    let mut running: BTreeMap<u8, tokio::task::AbortHandle> = BTreeMap::new();
    let mut listeners = tokio::task::JoinSet::new();
    loop {
        let wanted = match deployments(&client).get_opt(&name).await.unwrap() {
            Some(deployment) => u8::try_from(deployment.spec.unwrap().replicas.unwrap()).unwrap(),
            None => 0,
        };
        for number in 0..wanted {
            if running.contains_key(&number) {
                continue;
            }
            let at = SocketAddr::new(address(network, number).into(), port);
            let listener = match first.take_if(|_| number == 0) {
                Some(first) => first,
                None => TcpListener::bind(at).await.unwrap(),
            };
            running.insert(number, listeners.spawn(listen(listener, number, Arc::clone(&shared))));
            let pod = json!({"metadata": {"name": format!("{name}-{number}"), "labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}}}]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let made = pods.create(&PostParams::default(), &pod).await.unwrap();
            let status = json!({"status": {"phase": "Running", "podIP": at.ip().to_string(),
                "conditions": [{"type": "Ready", "status": "True"}]}});
            let how = PatchParams::default();
            pods.patch_status(&made.name_any(), &how, &Patch::Merge(status)).await.unwrap();
            // From now on it has its share of the load.
            shared.pods.fetch_max(u32::from(number) + 1, Ordering::Relaxed);
        }
        while let Some((&number, _)) = running.last_key_value().filter(|(number, _)| **number >= wanted) {
            running.remove(&number).unwrap().abort();
            let now = DeleteParams::default().grace_period(0);
            let _ = pods.delete(&format!("{name}-{number}"), &now).await;
        }
        shared.pods.store(wanted.into(), Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn listen(listener: TcpListener, number: u8, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = answer(stream, number, &shared).await;
        });
    }
}

async fn answer(mut stream: TcpStream, number: u8, shared: &Shared) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let count = stream.read(&mut request).await?;
    shared.scrapes.fetch_add(1, Ordering::Relaxed);
    let manner = *shared.manner.lock().unwrap();
    let share = shared.share();
    let text = match manner {
        Manner::Down => return Ok(()),
        Manner::OnlyFirst if number > 0 => return Ok(()),
        Manner::Silent => {
            sleep(Duration::from_secs(600)).await;
            return Ok(());
        }
        Manner::Garbage => "queue_length{ = ???\n<html>\n".to_owned(),
        Manner::Well | Manner::OnlyFirst => format!("# TYPE queue_length gauge\nqueue_length {share}\n"),
    };
    let found = request[..count].starts_with(b"GET /stats ");
    let status = if found { "200 OK" } else { "404 Not Found" };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    stream.write_all(answer.as_bytes()).await
}
