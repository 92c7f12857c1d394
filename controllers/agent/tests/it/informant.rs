//! A fake informant with a behaviour that the test determines, and the metrics port of its guest.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::StatusCode;
use neonvm_kit::http::{FullRequest, FullResponse, serve_openly, text};
use neonvm_types::informant_protocol::AgentDesc;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use crate::guest::load;
use crate::web::{Reply, Web};

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// All is well.
    Good,
    /// Downscaling is denied.
    Deny,
    /// `/register` is answered without a request to `/id`.
    NoId,
    /// `/register` is answered, and the agent is never resumed.
    NoResume,
    ResumeTwice,
    Version(u32),
    /// No port of metrics is named.
    NoMetrics,
    /// Every request is answered with this status.
    Status(u16),
    /// Requests other than `/register` are answered with this status.
    LaterStatus(u16),
    /// Requests are taken and not answered.
    Silence,
    /// Requests other than `/register` are taken and not answered.
    LaterSilence,
    /// This text instead of a document.
    Text(&'static str),
    /// A document of many megabytes.
    Huge,
}

#[derive(Debug)]
struct Shared {
    ip: IpAddr,
    metrics: u16,
    mode: Mutex<Mode>,
    /// Registered agents; the last one is the current one.
    agents: Mutex<Vec<AgentDesc>>,
    /// Path and body of every request.
    requests: Mutex<Vec<(String, Value)>>,
}

#[derive(Debug)]
pub(crate) struct Informant {
    shared: Arc<Shared>,
    pub(crate) metrics: Web,
    load: Arc<Mutex<u32>>,
    task: JoinHandle<()>,
}

impl Drop for Informant {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Informant {
    /// Idle, at this port, with metrics at a free one that it names.
    pub(crate) async fn start(ip: IpAddr, port: u16, mode: Mode) -> Self {
        let units = Arc::new(Mutex::new(1));
        let shows = Arc::clone(&units);
        let answer = move |_: &_| Reply::Text(200, load(*shows.lock().unwrap()));
        let metrics = Web::start(SocketAddr::new(ip, 0), answer).await;
        let shared = Arc::new(Shared {
            ip,
            metrics: metrics.address.port(),
            mode: Mutex::new(mode),
            agents: Mutex::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let served = Arc::clone(&shared);
        let task =
            tokio::spawn(serve_openly(listener, move |request| answered(Arc::clone(&served), request)));
        Self { shared, metrics, load: units, task }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
    }

    /// Work for so many compute units.
    pub(crate) fn load(&self, units: u32) {
        *self.load.lock().unwrap() = units;
    }

    /// Bodies of the requests to this path so far.
    pub(crate) fn requests(&self, path: &str) -> Vec<Value> {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|(own, _)| own == path).map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn agent(&self) -> Option<AgentDesc> {
        self.shared.agents.lock().unwrap().last().cloned()
    }

    /// As if it was restarted: no agent is known.
    pub(crate) fn forget(&self) {
        self.shared.agents.lock().unwrap().clear();
    }

    /// Calls the current agent; status and body.
    pub(crate) async fn call(&self, path: &str, more: Value) -> (u16, String) {
        let agent = self.agent().unwrap();
        let mut body = json!({ "expectedID": agent.agent_id });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(self.shared.ip, &agent, "POST", path, &body.to_string()).await
    }
}

async fn answered(shared: Arc<Shared>, request: FullRequest) -> FullResponse {
    let path = request.uri().path().to_owned();
    if path == "/monitor" {
        return text(StatusCode::NOT_FOUND, "text/plain", "there is no monitor");
    }
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(request.headers()["content-type"], "application/json");
    shared.requests.lock().unwrap().push((path.clone(), body.clone()));
    let mode = *shared.mode.lock().unwrap();
    let status = |status: u16| text(StatusCode::from_u16(status).unwrap(), "text/plain", "no");
    match mode {
        Mode::Status(code) => return status(code),
        Mode::LaterStatus(code) if path != "/register" => return status(code),
        Mode::Silence => std::future::pending().await,
        Mode::LaterSilence if path != "/register" => std::future::pending().await,
        Mode::Text(answer) => return text(StatusCode::OK, "application/json", answer),
        Mode::Huge => return text(StatusCode::OK, "application/json", Bytes::from(vec![b' '; 8 << 20])),
        _ => {}
    }
    let answer = match path.as_str() {
        "/register" => return register(shared, mode, body).await,
        "/unregister" => {
            let gone: AgentDesc = serde_json::from_value(body).unwrap();
            shared.agents.lock().unwrap().retain(|agent| *agent != gone);
            json!({ "wasActive": true })
        }
        "/health-check" => {
            let agents = shared.agents.lock().unwrap();
            if !agents.iter().any(|agent| json!(agent.agent_id) == body["agentID"]) {
                return status(404);
            }
            json!({})
        }
        "/downscale" => json!({ "Ok": mode != Mode::Deny, "Status": "as the test determines" }),
        "/upscale" => json!({}),
        _ => return status(404),
    };
    text(StatusCode::OK, "application/json", answer.to_string())
}

/// As upstream's: the identity is verified before the answer; then the old agent is suspended and the new one resumed.
async fn register(shared: Arc<Shared>, mode: Mode, body: Value) -> FullResponse {
    let agent: AgentDesc = serde_json::from_value(body).unwrap();
    if mode != Mode::NoId {
        let (status, body) = call(shared.ip, &agent, "GET", "/id", "{}").await;
        let known: Value = serde_json::from_str(&body).unwrap_or_default();
        if status != 200 || known["data"]["agentID"] != json!(agent.agent_id) {
            return text(StatusCode::BAD_REQUEST, "text/plain", format!("/id: {status} {body}"));
        }
    }
    let old = shared.agents.lock().unwrap().last().cloned();
    shared.agents.lock().unwrap().push(agent.clone());
    let metrics =
        if mode == Mode::NoMetrics { json!({}) } else { json!({ "prometheus": { "port": shared.metrics } }) };
    let version = if let Mode::Version(version) = mode { version } else { 4 };
    tokio::spawn(async move {
        if let Some(old) = old {
            let body = json!({ "expectedID": old.agent_id }).to_string();
            call(shared.ip, &old, "POST", "/suspend", &body).await;
        }
        let times = [(Mode::NoResume, 0), (Mode::ResumeTwice, 2)];
        let times = times.iter().find(|(own, _)| *own == mode).map_or(1, |(_, times)| *times);
        for _ in 0..times {
            let body = json!({ "expectedID": agent.agent_id }).to_string();
            call(shared.ip, &agent, "POST", "/resume", &body).await;
        }
    });
    let answer = json!({ "protoVersion": version, "metricsMethod": metrics });
    text(StatusCode::OK, "application/json", answer.to_string())
}

/// A request to an agent, from this address; 0 if there was no answer.
pub(crate) async fn call(
    from: IpAddr,
    agent: &AgentDesc,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let (address, prefix) = agent.agent_serve_addr.split_once('/').unwrap();
    let length = body.len();
    let head =
        format!("{method} /{prefix}{path} HTTP/1.1\r\nHost: agent\r\nContent-Length: {length}\r\n\r\n");
    let answer = raw(from, address.parse().unwrap(), format!("{head}{body}").as_bytes()).await;
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Sends bytes from this address and returns all that is answered; empty if there is no connection.
pub(crate) async fn raw(from: IpAddr, to: SocketAddr, bytes: &[u8]) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let Ok(mut stream) = socket.connect(to).await else { return String::new() };
    let mut answer = Vec::new();
    // What is refused may be answered before all of it was sent.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}
