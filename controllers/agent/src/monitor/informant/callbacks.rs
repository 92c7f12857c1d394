//! Where informants call the agent: one port for all VMs of the node, with a path for each registration.
//!
//! Whatever a guest sends comes from a stranger. It may speak for its own VM only: the path has 122 random bits that only its
//! informant was given, and the request must come from the address of that VM's pod.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderValue, Method, StatusCode, header};
use neonvm_core_vertical_scaling::agent::informant::{Call, Refusal};
use neonvm_kit::http::{self, Admitted, FullRequest, FullResponse, Gate, Peer, refuse, text};
use neonvm_kit::places::Places;
use neonvm_types::informant_protocol::{
    AgentId, AgentIdentificationMessage, Empty, ExpectedAgent, MoreResourcesRequest, agent_path,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::metrics::Metrics;

/// Places for connections. An informant makes one request at a time, every ten seconds.
const PLACES: Places = Places { arriving: 0, strangers: 512, per_address: 8, known: 0 };
/// Largest body, in bytes; theirs have about a hundred.
const LARGEST_BODY: usize = 4 << 10;
/// Requests of one registration that may wait.
const WAITING: usize = 4;
/// Time for an answer: an informant waits 5 s for `/suspend`, which is answered last.
const ANSWER: Duration = Duration::from_millis(4500);
/// Time to leave all informants when the agent is stopped.
const LEAVING: Duration = Duration::from_secs(3);
const PLAIN: &str = "text/plain";
const JSON: &str = "application/json";

/// A request of an informant, and where its answer goes.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Result<AgentIdentificationMessage, Refusal>>,
}

#[derive(Debug)]
struct Place {
    /// Address of the VM's pod.
    guest: IpAddr,
    calls: mpsc::Sender<Incoming>,
}

/// All registrations of this agent.
#[derive(Debug)]
pub(crate) struct Callbacks {
    /// Where others reach the server.
    address: SocketAddr,
    places: Mutex<BTreeMap<AgentId, Place>>,
    left: Notify,
    metrics: Arc<Metrics>,
}

/// A path for one registration; dropped, it is gone.
#[derive(Debug)]
pub(super) struct Registered {
    callbacks: Arc<Callbacks>,
    path: AgentId,
    pub(super) calls: mpsc::Receiver<Incoming>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.callbacks.places().remove(&self.path);
        self.callbacks.left.notify_waiters();
    }
}

impl Registered {
    /// What `/register` names as the agent's address.
    pub(super) fn address(&self) -> String {
        format!("{}/{}", self.callbacks.address, self.path)
    }
}

impl Callbacks {
    /// Without any registration.
    pub(crate) fn new(address: SocketAddr, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { address, places: Mutex::default(), left: Notify::new(), metrics })
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<AgentId, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(self: &Arc<Self>, path: AgentId, guest: IpAddr) -> Registered {
        let (sender, calls) = mpsc::channel(WAITING);
        self.places().insert(path, Place { guest: guest.to_canonical(), calls: sender });
        Registered { callbacks: Arc::clone(self), path, calls }
    }

    /// Waits a little until all registrations have been left, so that informants do not miss an agent that was stopped.
    pub(crate) async fn emptied(&self) {
        let emptied = async {
            loop {
                let left = self.left.notified();
                if self.places().is_empty() {
                    return;
                }
                left.await;
            }
        };
        let _ = tokio::time::timeout(LEAVING, emptied).await;
    }

    /// Who may send a body, and what for; from the head alone.
    fn admit(&self, head: &Parts) -> Admitted {
        let Some((path, what)) = split(head.uri.path()) else {
            return refuse(StatusCode::NOT_FOUND, PLAIN, "there is no such registration\n");
        };
        let guest = self.places().get(&path).map(|place| place.guest);
        let from = Peer::from_extensions(&head.extensions).address;
        if guest.is_none() || guest != from {
            if let (Some(guest), Some(from)) = (guest, from) {
                tracing::warn!(%guest, %from, "an informant's request came from another address; it was refused");
            }
            // Whether a path exists is not for others.
            return refuse(StatusCode::NOT_FOUND, PLAIN, "there is no such registration\n");
        }
        let method = if what == agent_path::ID { Method::GET } else { Method::POST };
        if head.method != method {
            let hint = format!("request method must be {method}\n");
            return refuse(StatusCode::METHOD_NOT_ALLOWED, PLAIN, hint);
        }
        Ok(LARGEST_BODY)
    }

    /// Answers a request. The connection is closed: the next request comes in ten seconds.
    async fn answer(self: Arc<Self>, request: FullRequest) -> FullResponse {
        let what = split(request.uri().path()).map_or("", |(_, what)| what).to_owned();
        let mut answer = match self.handle(&request).await {
            Ok(message) => match serde_json::to_vec(&message) {
                Ok(body) => text(StatusCode::OK, JSON, body),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
            },
            Err(Refusal { status, reason }) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                text(status, PLAIN, format!("{reason}\n"))
            }
        };
        self.metrics.informant_asks(&what, answer.status().as_u16());
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        answer
    }

    async fn handle(&self, request: &FullRequest) -> Result<AgentIdentificationMessage, Refusal> {
        let refusal = |status, reason: &str| Refusal { status, reason: reason.to_owned() };
        let gone = || refusal(404, "there is no such registration");
        let (path, what) = split(request.uri().path()).ok_or_else(gone)?;
        let call = decode(what, request.body())?;
        let calls = self.places().get(&path).map(|place| place.calls.clone()).ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        calls.try_send(Incoming { call, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => refusal(503, "too many requests at a time"),
            mpsc::error::TrySendError::Closed(_) => gone(),
        })?;
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(refusal(500, "a request of the agent is still under way")),
        }
    }
}

/// Serves informants until it is dropped.
pub(crate) async fn serve(listener: TcpListener, callbacks: Arc<Callbacks>) {
    let gate = Gate::open(PLACES, &Arc::default());
    let admit = {
        let callbacks = Arc::clone(&callbacks);
        move |head: &Parts| callbacks.admit(head)
    };
    let answer = move |request: FullRequest| Arc::clone(&callbacks).answer(request);
    http::serve(listener, None, gate, admit, answer).await;
}

/// The registration and the path below it.
fn split(path: &str) -> Option<(AgentId, &str)> {
    let rest = path.strip_prefix('/')?;
    let end = rest.find('/')?;
    let what = rest.get(end..)?;
    let known = [agent_path::ID, agent_path::RESUME, agent_path::SUSPEND, agent_path::TRY_UPSCALE];
    known.contains(&what).then_some(())?;
    Some((rest.get(..end)?.parse().ok()?, what))
}

fn decode(what: &str, body: &[u8]) -> Result<Call, Refusal> {
    let read = match what {
        agent_path::ID => neonvm_types::objects::from_slice::<Empty>(body).map(|_| Call::Id),
        agent_path::RESUME => neonvm_types::objects::from_slice(body)
            .map(|ExpectedAgent { expected_id }| Call::Resume(expected_id)),
        agent_path::SUSPEND => neonvm_types::objects::from_slice(body)
            .map(|ExpectedAgent { expected_id }| Call::Suspend(expected_id)),
        _ => neonvm_types::objects::from_slice(body)
            .map(|wanted: MoreResourcesRequest| Call::TryUpscale(wanted.expected_id, wanted.more())),
    };
    read.map_err(|error| Refusal { status: 400, reason: format!("body of {what}: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

    #[test]
    fn only_paths_of_registrations_are_known() {
        let id: AgentId = ID.parse().unwrap();
        assert_eq!(split(&format!("/{ID}/id")), Some((id, "/id")));
        assert_eq!(split(&format!("/{ID}/try-upscale")), Some((id, "/try-upscale")));
        for path in
            ["", "/", "/id", "//id", "/x/id", &format!("/{ID}"), &format!("/{ID}/"), &format!("/{ID}/x/id")]
        {
            assert_eq!(split(path), None, "{path}");
        }
    }

    #[test]
    fn a_guest_speaks_for_its_own_vm_only() {
        let callbacks = Callbacks::new(([127, 0, 0, 1], 1).into(), Arc::default());
        let registered = callbacks.register(ID.parse().unwrap(), [10, 0, 0, 7].into());
        assert_eq!(registered.address(), format!("127.0.0.1:1/{ID}"));
        let head = |method: &str, path: &str, from: [u8; 4]| {
            let peer = Peer { address: Some(from.into()), ..Peer::default() };
            let uri = format!("/{ID}{path}");
            ::http::Request::builder()
                .method(method)
                .uri(uri)
                .extension(peer)
                .body(())
                .unwrap()
                .into_parts()
                .0
        };
        let admitted = |head: &Parts| callbacks.admit(head).map_err(|refused| refused.status().as_u16());
        let (own, other) = ([10, 0, 0, 7], [10, 0, 0, 8]);
        assert_eq!(admitted(&head("GET", "/id", own)), Ok(LARGEST_BODY));
        assert_eq!(admitted(&head("POST", "/suspend", own)), Ok(LARGEST_BODY));
        assert_eq!(admitted(&head("POST", "/suspend", other)), Err(404));
        assert_eq!(admitted(&head("GET", "/suspend", own)), Err(405));
        assert_eq!(admitted(&head("POST", "/id", own)), Err(405));
        drop(registered);
        assert_eq!(admitted(&head("GET", "/id", own)), Err(404));
    }

    #[test]
    fn bodies_are_read_as_upstream_writes_them() {
        let id: AgentId = ID.parse().unwrap();
        let decode = |what: &str, body: &str| decode(what, body.as_bytes());
        assert_eq!(decode("/id", "{}"), Ok(Call::Id));
        assert_eq!(decode("/id", "").unwrap_err().status, 400);
        let expected = format!("\"expectedID\":\"{ID}\"");
        assert_eq!(decode("/resume", &format!("{{{expected}}}")), Ok(Call::Resume(id)));
        assert_eq!(decode("/suspend", &format!("{{{expected}}}")), Ok(Call::Suspend(id)));
        let more = neonvm_types::MoreResources { cpu: false, memory: true };
        let body = format!("{{\"cpu\":false,\"memory\":true,{expected}}}");
        assert_eq!(decode("/try-upscale", &body), Ok(Call::TryUpscale(id, more)));
        assert!(decode("/suspend", "{}").unwrap_err().reason.contains("expectedID"));
    }
}
