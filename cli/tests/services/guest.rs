//! What the agent reaches of a guest: metrics of an idle one, and a monitor that consents to everything.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::runner::Machine;

/// Port of the metrics.
pub(crate) const METRICS: u16 = 29_100;
/// Port of the monitor.
pub(crate) const MONITOR: u16 = 20_301;

/// What connects to a port of the guest through its runner.
pub(crate) async fn connected(port: u16, stream: impl AsyncRead + AsyncWrite + Unpin, machine: Machine) {
    match port {
        METRICS => show(stream, machine).await,
        MONITOR => consent(stream).await,
        _ => None,
    };
}

/// One answer on a connection.
async fn show(mut stream: impl AsyncRead + AsyncWrite + Unpin, machine: Machine) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let total = machine.status.borrow().memory.actual.get();
    let body: String = [
        ("host_load1", 0),
        ("host_load5", 0),
        ("host_memory_total_bytes", total),
        ("host_memory_available_bytes", total),
        ("host_memory_cached_bytes", 0),
    ]
    .map(|(name, value)| format!("# TYPE {name} gauge\n{name} {value}\n"))
    .concat();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()
}

async fn consent(stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
    let mut socket = tokio_tungstenite::accept_async(stream).await.ok()?;
    let mut greeted = false;
    loop {
        let text = match socket.next().await?.ok()? {
            Message::Text(text) => text.to_string(),
            Message::Close(_) => return None,
            _ => continue,
        };
        let answer = if greeted {
            let request: Value = serde_json::from_str(&text).ok()?;
            let id = &request["id"];
            match request["type"].as_str()? {
                "HealthCheck" => json!({ "type": "HealthCheck", "id": id }),
                "UpscaleNotification" => json!({ "type": "UpscaleConfirmation", "id": id }),
                "DownscaleRequest" => {
                    json!({ "type": "DownscaleResult", "Ok": true, "Status": "fine", "id": id })
                }
                _ => continue,
            }
        } else {
            json!({ "version": 2 })
        };
        greeted = true;
        socket.send(Message::Text(answer.to_string().into())).await.ok()?;
    }
}
