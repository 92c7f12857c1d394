//! H5: a client without a certificate takes no memory.

use std::sync::Arc;

use neonvm_test_support::{need, needs};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::cluster::Cluster;
use crate::sockets::{ListenAddress, listeners};

/// Connections at once, and what each sends, in bytes.
const CONNECTIONS: usize = 90;
const BODY: usize = 8 << 20;
/// What a service may have taken at most afterwards, in KiB. Its limit in the manifests is 256 MiB at least; before there were budgets
/// it took 350 to 760 MiB.
const MOST: u64 = 160 << 10;

/// Sends a body for as long as the server reads it.
async fn pour(address: std::net::SocketAddr) -> std::io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    let connector =
        TlsConnector::from(Arc::new(neonvm_kit::tls::unchecked().map_err(std::io::Error::other)?));
    let name = address.ip().into();
    let mut stream = connector.connect(name, stream).await?;
    let head =
        format!("POST /validate-v1-pod-eviction HTTP/1.1\r\nhost: h\r\ncontent-length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let chunk = vec![b' '; 64 << 10];
    for _ in 0..BODY / chunk.len() {
        stream.write_all(&chunk).await?;
    }
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

#[tokio::test]
async fn bodies_of_strangers_are_not_kept() {
    need!(needs::network_namespaces());
    let cluster = Cluster::start(1);
    let processes = cluster.processes();
    for role in ["agent", "scheduler", "vm-controller"] {
        let process = processes.iter().find(|process| process.role == role).unwrap();
        let found = listeners(std::slice::from_ref(process));
        let address = found.into_iter().find_map(|listener| match listener.place {
            ListenAddress::Tcp(address) => Some(address),
            _ => None,
        });
        let mut attack = JoinSet::new();
        for _ in 0..CONNECTIONS {
            attack.spawn(pour(address.unwrap()));
        }
        while attack.join_next().await.is_some() {}
        let most = process.peak_memory();
        println!("{role}: at most {most} KiB");
        assert!(most < MOST, "{role} took {most} KiB");
    }
}
