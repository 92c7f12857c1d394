//! Simulated runners: one listener answers for all of them, each at an address of its own in 127.0.0.0/8.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::LOOK;

/// Longest head of a request, in bytes.
const HEAD: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Runners {
    streams: AtomicUsize,
}

impl Runners {
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Answers, until it is dropped.
    pub(crate) async fn serve(self: Arc<Self>, acceptor: TlsAcceptor, port: u16) {
        let address = SocketAddr::from(([0, 0, 0, 0], port));
        let Ok(listener) = TcpListener::bind(address).await else { return };
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let (acceptor, runners) = (acceptor.clone(), Arc::clone(&self));
            // A controller that was killed needs no answer.
            connections.spawn(async move { drop(runners.runner(acceptor, stream).await) });
        }
    }

    /// One stream: a document, then silence until the controller goes.
    async fn runner(&self, acceptor: TlsAcceptor, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = acceptor.accept(stream).await?;
        let mut head: Vec<u8> = Vec::new();
        let mut part = [0_u8; 512];
        while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            let count = stream.read(&mut part).await?;
            if count == 0 || head.len() > HEAD {
                return Ok(());
            }
            head.extend(part.iter().take(count));
        }
        drop(head);
        let line = concat!(
            r#"{"sequence":1,"state":"Running","ready":true,"machine":{"accelerator":"tcg","machineType":"pc-q35-7.2"},"#,
            r#""cpu":{"asked":"250m","applied":"250m","online":1},"memory":{"asked":"1Gi","actual":"1Gi"}}"#,
            "\n"
        );
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = format!("{head}{:x}\r\n{line}\r\n", line.len());
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
        let _open = Open::new(&self.streams);
        stream.read(&mut part).await.map(drop)
    }
}

/// Counts a stream while it lives.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn new(streams: &'a AtomicUsize) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(streams)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
