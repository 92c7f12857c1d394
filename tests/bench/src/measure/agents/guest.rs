//! Runners and the guests behind them: a port of the guest is reached through an upgraded connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Message;

/// Longest head of a request, in bytes.
const HEAD: usize = 8 << 10;

/// What happened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Monitors that are connected.
    pub(super) monitors: AtomicUsize,
    /// Metrics that were read.
    pub(super) readings: AtomicUsize,
}

/// Answers for all runners, until it is dropped.
pub(super) async fn serve(acceptor: TlsAcceptor, port: u16, counts: Arc<Counts>) {
    let Ok(listener) = TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).await else { return };
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (acceptor, counts) = (acceptor.clone(), Arc::clone(&counts));
        connections.spawn(async move {
            // An agent that was killed needs no answer.
            connection(acceptor, stream, &counts).await.ok();
        });
    }
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream, counts: &Counts) -> anyhow::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let head = head(&mut stream).await?;
    let upgraded =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: neonvm-stream\r\n\r\n";
    let port = head.split_whitespace().nth(1).and_then(|path| path.strip_prefix("/v1/guest/"));
    let port: u16 = port.context("not a port of a guest")?.parse()?;
    stream.write_all(upgraded.as_bytes()).await?;
    stream.flush().await?;
    match port {
        9100 => metrics(&mut stream, counts).await,
        10301 => {
            counts.monitors.fetch_add(1, Ordering::Relaxed);
            let ended = monitor(stream).await;
            counts.monitors.fetch_sub(1, Ordering::Relaxed);
            ended
        }
        _ => bail!("nothing listens at {port}"),
    }
}

/// Reads to the end of a request's head.
async fn head(stream: &mut TlsStream<TcpStream>) -> anyhow::Result<String> {
    let (mut head, mut part) = (Vec::new(), [0_u8; 1024]);
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let count = stream.read(&mut part).await?;
        if count == 0 || head.len() > HEAD {
            bail!("the connection ended");
        }
        head.extend(part.iter().take(count));
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// An idle guest: its exporter shows as many lines as ours does.
async fn metrics(stream: &mut TlsStream<TcpStream>, counts: &Counts) -> anyhow::Result<()> {
    let values = [
        ("host_load1", "0.01"),
        ("host_load5", "0.02"),
        ("host_load15", "0.02"),
        ("host_memory_total_bytes", "1000000000"),
        ("host_memory_available_bytes", "900000000"),
        ("host_memory_cached_bytes", "20000000"),
        ("host_cpu_pressure_some_avg10", "0"),
        ("host_memory_pressure_some_avg10", "0"),
    ];
    let body = values.map(|(name, value)| format!("# TYPE {name} gauge\n{name} {value}\n")).concat();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    loop {
        head(stream).await?;
        counts.readings.fetch_add(1, Ordering::Relaxed);
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
    }
}

/// A monitor that agrees to everything.
async fn monitor(stream: TlsStream<TcpStream>) -> anyhow::Result<()> {
    let mut socket = tokio_tungstenite::accept_async(stream).await?;
    let mut introduced = false;
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else { continue };
        let request: Value = serde_json::from_str(&text)?;
        let id = request.get("id").cloned().unwrap_or_default();
        let answer = match request.get("type").and_then(Value::as_str) {
            _ if !introduced => json!({"version": 2}),
            Some("DownscaleRequest") => {
                json!({"type": "DownscaleResult", "Ok": true, "Status": "", "id": id})
            }
            Some("UpscaleNotification") => json!({"type": "UpscaleConfirmation", "id": id}),
            Some("HealthCheck") => json!({"type": "HealthCheck", "id": id}),
            _ => continue,
        };
        introduced = true;
        socket.send(Message::text(answer.to_string())).await?;
    }
    Ok(())
}
