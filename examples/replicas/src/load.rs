//! The clients of a fleet: each has one request open at any time, at the pod that has the fewest.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time for one request: a pod may have a long queue.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer that is read, in bytes.
const MOST_ANSWER: u64 = 64 << 10;
/// First and longest pause after a request that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A pod that is ready, and how many requests it has.
#[derive(Debug)]
struct Target {
    address: SocketAddr,
    open: AtomicUsize,
}

/// One request more, while it lives.
struct Open(Arc<Target>);

impl Open {
    fn at(target: &Arc<Target>) -> Self {
        target.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(target))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What clients go by.
#[derive(Debug, Default)]
struct Scene {
    clients: usize,
    ready: Vec<Arc<Target>>,
}

/// The clients, and the pods they can use.
#[derive(Debug, Default)]
pub(crate) struct Load {
    scene: watch::Sender<Scene>,
    clients: Vec<JoinHandle<()>>,
}

/// Where pods register while they are ready.
#[derive(Clone, Debug)]
pub(crate) struct Readiness(watch::Sender<Scene>);

impl Readiness {
    pub(crate) fn add(&self, address: SocketAddr) {
        let target = Arc::new(Target { address, open: AtomicUsize::new(0) });
        self.0.send_modify(|scene| scene.ready.push(target));
    }

    pub(crate) fn remove(&self, address: SocketAddr) {
        self.0.send_modify(|scene| scene.ready.retain(|target| target.address != address));
    }

    /// Pods that are ready.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().ready.len()
    }

    /// Waits until there are not `count` of them.
    pub(crate) async fn other_than(&self, count: usize) {
        // The sender is our own, so this does not fail.
        let _ = self.0.subscribe().wait_for(|scene| scene.ready.len() != count).await;
    }
}

impl Load {
    pub(crate) fn readiness(&self) -> Readiness {
        Readiness(self.scene.clone())
    }

    /// From now on there are so many clients. Those that are too many finish what they have begun.
    pub(crate) fn set(&mut self, clients: usize) {
        self.scene.send_if_modified(|scene| std::mem::replace(&mut scene.clients, clients) != clients);
        for number in 0..clients {
            let scene = self.scene.subscribe();
            match self.clients.get_mut(number) {
                Some(known) if known.is_finished() => *known = tokio::spawn(client(number, scene)),
                Some(_) => {}
                None => self.clients.push(tokio::spawn(client(number, scene))),
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for client in &self.clients {
            client.abort();
        }
    }
}

async fn client(number: usize, mut scene: watch::Receiver<Scene>) {
    let mut pause = PAUSES.0;
    loop {
        let open = {
            let possible = |scene: &Scene| number >= scene.clients || !scene.ready.is_empty();
            let Ok(scene) = scene.wait_for(possible).await else { return };
            let idlest = scene.ready.iter().min_by_key(|target| target.open.load(Ordering::Relaxed));
            match idlest {
                Some(target) if number < scene.clients => Open::at(target),
                _ => return,
            }
        };
        if matches!(request(open.0.address, "GET", "/").await, Ok((200, _))) {
            pause = PAUSES.0;
        } else {
            drop(open);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Status and body of an answer; a connection for each request.
pub(crate) async fn request(at: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(at).await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {at}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut text = String::new();
        stream.take(MOST_ANSWER).read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}
