//! A client that reaches a port and has no rights.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use neonvm_e2e::fuzz::{Random, frames, request, rounds};
use neonvm_test_support::{need, needs};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

use super::health::Health;
use crate::cluster::Cluster;
use crate::sockets::{ListenAddress, listeners_of};

/// Connections at once.
const AT_ONCE: usize = 12;
/// Time to connect, and to wait for an answer.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_millis(150);
/// Paths that any client may read, of all services.
const OPEN: [&str; 7] = ["/healthz", "/readyz", "/livez", "/version", "/metrics", "/ready", "/openid"];

/// What is done to a listener.
#[derive(Debug)]
enum Case {
    /// Bytes without TLS.
    Plain(Vec<u8>),
    /// A first record of TLS, damaged.
    Hello(Vec<u8>),
    /// Bytes in TLS, with the path that they ask for, if it is known.
    Inside(Vec<u8>, String),
    /// Nothing more, for as long as the other side bears it.
    HalfOpen(Vec<u8>),
}

/// The first bytes of a client.
fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

fn case(random: &mut Random, config: &Arc<ClientConfig>) -> Case {
    match random.below(12) {
        0 => {
            let length = random.below(4096);
            Case::Plain(random.bytes(length))
        }
        1 => Case::Plain(request(random).bytes),
        2 => {
            let mut bytes = hello(config);
            random.damage(&mut bytes);
            Case::Hello(bytes)
        }
        3 => {
            let length = random.below(9);
            Case::HalfOpen(random.bytes(length))
        }
        4 => Case::Inside(frames(random), String::new()),
        5 => {
            let length = random.below(4096);
            Case::Inside(random.bytes(length), String::new())
        }
        6 => {
            // Very many bytes, of which no service wants one.
            let mut bytes = request(random).bytes;
            bytes.resize(4 << 20, b' ');
            Case::Inside(bytes, String::new())
        }
        _ => {
            let made = request(random);
            Case::Inside(made.bytes, made.path)
        }
    }
}

/// Sends bytes and reads what there is for a short time.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> Vec<u8> {
    let _ = timeout(CONNECT, stream.write_all(bytes)).await;
    let _ = timeout(CONNECT, stream.flush()).await;
    let mut answer = vec![0; 16 << 10];
    match timeout(ANSWER, stream.read(&mut answer)).await {
        Ok(Ok(length)) => answer.truncate(length),
        _ => answer.clear(),
    }
    answer
}

/// What was gained by a case, if anything.
async fn attack(address: SocketAddr, config: Arc<ClientConfig>, case: Case) -> Option<String> {
    let connected = timeout(CONNECT, TcpStream::connect(address)).await;
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        // It has no place for us just now; whether it has one for others is looked at after the round.
        _ => return None,
    };
    match case {
        Case::Plain(bytes) | Case::Hello(bytes) => drop(exchange(stream, &bytes).await),
        Case::HalfOpen(bytes) => {
            let mut stream = stream;
            let _ = stream.write_all(&bytes).await;
            let _ = timeout(CONNECT, stream.read(&mut [0; 64])).await;
        }
        Case::Inside(bytes, path) => {
            let name = address.ip().into();
            let stream =
                timeout(CONNECT, TlsConnector::from(config).connect(name, stream)).await.ok()?.ok()?;
            let answer = exchange(stream, &bytes).await;
            let answer = String::from_utf8_lossy(&answer);
            let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or_default();
            let is_gain = matches!(status, "200" | "201" | "202" | "101") && !is_open(&path);
            if is_gain || status == "500" {
                let start: String = answer.chars().take(300).collect();
                return Some(format!("{address} answers {path:?} with {start:?}"));
            }
        }
    }
    None
}

/// Whether a path is one that any client may read, however it is written.
fn is_open(path: &str) -> bool {
    path.is_empty() || OPEN.iter().any(|open| path.contains(open)) || path == "/api" || path == "/apis"
}

/// Where the processes of a cluster listen, of those that can be reached from here.
fn targets(cluster: &Cluster) -> Vec<SocketAddr> {
    let found = listeners_of(cluster);
    let addresses = found.into_iter().filter_map(|listener| match listener.place {
        ListenAddress::Tcp(mut address) => {
            if address.ip().is_unspecified() {
                address.set_ip([127, 0, 0, 1].into());
            }
            Some(address)
        }
        _ => None,
    });
    addresses.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_clients_gain_break_and_fill_nothing() {
    need!(needs::network_namespaces());
    let cluster = Cluster::start(1);
    let targets = targets(&cluster);
    assert!(targets.len() > 4, "{targets:?}");
    let mut health = Health::from_cluster(&cluster, "anonymous");
    let config = Arc::new(neonvm_kit::tls::unchecked().unwrap());
    for round in rounds("anonymous") {
        let mut random = Random::new(round.seed);
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut running = JoinSet::new();
        for _ in 0..round.cases {
            let address = *random.choose(&targets).unwrap();
            let case = case(&mut random, &config);
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let config = Arc::clone(&config);
            running.spawn(async move {
                let gained = attack(address, config, case).await;
                drop(place);
                gained
            });
        }
        let gained: Vec<String> = running.join_all().await.into_iter().flatten().collect();
        assert!(gained.is_empty(), "anonymous {} {} # {gained:#?}", round.seed, round.cases);
        tokio::task::block_in_place(|| health.check(&round));
    }
    health.report();
}
