//! Requests to agents.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use neonvm_core_vertical_scaling::monitor::informant::What;
use neonvm_types::informant_protocol::{
    AgentId, AgentIdentificationMessage, Empty, ExpectedAgent, MoreResourcesRequest, agent_path,
};
use tokio::net::TcpStream;

/// Longest answer, in bytes; theirs have about a hundred.
const LONGEST: usize = 4 * 1024;
/// Most characters of an answer with an error that are kept.
const SHOWN: usize = 200;

/// Sends a request within its time, and reads the answer.
///
/// # Errors
/// Why there is no valid answer, in words.
pub(super) async fn call(
    agent: AgentId,
    address: &str,
    what: What,
) -> Result<AgentIdentificationMessage, String> {
    let within = what.within();
    match tokio::time::timeout(within, exchange(agent, address, what)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} ms", within.as_millis())),
    }
}

/// Method, path and body.
fn request(agent: AgentId, what: What) -> (Method, &'static str, serde_json::Result<Vec<u8>>) {
    let expected = ExpectedAgent { expected_id: agent };
    match what {
        What::Id => (Method::GET, agent_path::ID, serde_json::to_vec(&Empty {})),
        What::Suspend => (Method::POST, agent_path::SUSPEND, serde_json::to_vec(&expected)),
        What::Resume => (Method::POST, agent_path::RESUME, serde_json::to_vec(&expected)),
        What::TryUpscale => {
            let more = MoreResourcesRequest { cpu: false, memory: true, expected_id: agent };
            (Method::POST, agent_path::TRY_UPSCALE, serde_json::to_vec(&more))
        }
    }
}

async fn exchange(agent: AgentId, address: &str, what: What) -> Result<AgentIdentificationMessage, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (host, prefix) = match address.split_once('/') {
        Some((host, prefix)) => (host, format!("/{prefix}")),
        None => (address, String::new()),
    };
    let (method, path, body) = request(agent, what);
    let body = body.map_err(|error| text(&error))?;
    let stream = TcpStream::connect(host).await.map_err(|error| format!("{host}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(16 * 1024);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let exchanged = async {
        let request = hyper::Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(HOST, host)
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| text(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST).collect().await;
        Ok::<_, String>((status, body.map_err(|error| text(&error))?.to_bytes()))
    };
    // The connection is driven here: when the answer is there, or late, it ends.
    let (status, body) = tokio::select! {
        exchanged = exchanged => exchanged?,
        Err(error) = connection => return Err(error.to_string()),
    };
    if status != StatusCode::OK {
        let body = String::from_utf8_lossy(&body);
        let shown: String = body.chars().filter(|character| !character.is_control()).take(SHOWN).collect();
        return Err(format!("{status}: {shown}"));
    }
    serde_json::from_slice(&body).map_err(|error| text(&error))
}
