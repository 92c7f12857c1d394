//! The runner interface over HTTP: with mutual TLS on the pod's addresses, without on a socket inside the container.

mod answer;
mod disks;
mod metrics;
mod migration;
mod serve;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use neonvm_kit::http::{Budget, status_of};
use neonvm_types::guest::DAEMON_PORT;
use neonvm_types::runner_protocol as protocol;
use neonvm_types::runner_protocol::{
    PauseRequest, RunnerCpu, RunnerState, RunnerStatus, SizeRequest, SuspendState, SuspendStatus,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};

use answer::{Body, json, text};
pub(crate) use serve::{listen_locally, listen_with_tls};
pub(crate) use statistics::Statistics;

use crate::command::{Command, Refusal};
use crate::console::Console;
use crate::guest::disks::Disks;
use crate::migration::volumes::Volume;
use crate::network::{Meter, Reach};
use crate::suspend::Streams;

/// Bytes of a request's body.
const LARGEST: usize = 64 << 10;
/// Time to reach a port of the guest.
const CONNECT: Duration = Duration::from_secs(5);
/// Time for a suspended VM to wake.
const WAKE: Duration = Duration::from_secs(30);

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Everything: it showed the right certificate, or is inside the container.
    Trusted,
    /// Reach ports of the guest, but for its daemon's: it is the agent of this node.
    Agent,
    /// Read disks that are not written: it is another runner of the same VM.
    Twin,
    /// May query whether the guest is ready and, if the VM counts its traffic, the counters.
    Stranger,
}

impl Peer {
    /// Whether it may use a path, by whatever method.
    fn may(self, path: &str) -> bool {
        matches!(path, protocol::READY_PATH | protocol::METRICS_PATH)
            || match self {
                Self::Trusted => true,
                Self::Twin => path.starts_with(protocol::VOLUME_PATH),
                // The daemon writes files and takes CPUs away; metrics and the monitor are all that agents need.
                // Numbers in other spellings are refused.
                Self::Agent => path
                    .strip_prefix(protocol::GUEST_PORT_PATH)
                    .is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != DAEMON_PORT)),
                Self::Stranger => false,
            }
    }
}

/// What the VM offers once it runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) console: Console,
    pub(crate) reach: Reach,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) volumes: Arc<Vec<Volume>>,
    /// Counters of the guest's traffic, where it is counted.
    pub(crate) meter: Option<Arc<Meter>>,
    /// Connections of the agent into the guest.
    pub(crate) streams: Arc<Streams>,
}

/// Names in certificates of clients that have separate rights.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// DNS name of a runner of this machine.
    pub(crate) machine: String,
    /// Common name of the agent of this node; none if the node is unknown.
    pub(crate) agent: Option<String>,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By which names clients are recognised.
    pub(crate) own: Own,
    /// `spec.enableNetworkMonitoring`.
    pub(crate) counts_traffic: bool,
    pub(crate) status: watch::Receiver<Arc<RunnerStatus>>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) running: watch::Receiver<Option<Running>>,
    /// What bodies of requests take.
    pub(crate) bodies: Arc<Budget>,
}

pub(crate) async fn handle(shared: Arc<Shared>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if !peer.may(&path) {
        return text(StatusCode::FORBIDDEN, "a client certificate of the internal authority is needed");
    }
    let allowed = match path.as_str() {
        protocol::READY_PATH => return ready(&shared),
        protocol::DISKS_PATH if request.method() == Method::GET => return disks::report(&shared).await,
        protocol::CPU_CURRENT_PATH
        | protocol::STATUS_PATH
        | protocol::STATISTICS_PATH
        | protocol::METRICS_PATH
        | protocol::CONSOLE_PATH => Method::GET,
        protocol::CPU_CHANGE_PATH | protocol::POWER_OFF_PATH | protocol::WAKE_PATH => Method::POST,
        protocol::FREEZE_PATH | protocol::THAW_PATH => Method::POST,
        protocol::MIGRATION_CANCEL_PATH
        | protocol::MIGRATION_RECOVER_PATH
        | protocol::MIGRATION_SETTLE_PATH => Method::POST,
        protocol::SIZE_PATH
        | protocol::DISKS_PATH
        | protocol::LIMITS_PATH
        | protocol::PAUSE_PATH
        | protocol::SUSPEND_PATH
        | protocol::MIGRATION_PATH => Method::PUT,
        path if path.starts_with(protocol::VOLUME_PATH) => Method::GET,
        path if path.starts_with(protocol::GUEST_PORT_PATH) => Method::GET,
        _ => return text(StatusCode::NOT_FOUND, "no such path"),
    };
    if request.method() != allowed {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, &format!("use {allowed}"));
        if let Ok(value) = HeaderValue::from_str(allowed.as_str()) {
            response.headers_mut().insert(header::ALLOW, value);
        }
        return response;
    }
    match path.as_str() {
        protocol::CPU_CURRENT_PATH => cpu_current(&shared),
        protocol::CPU_CHANGE_PATH => cpu_change(&shared, request).await,
        protocol::STATUS_PATH => status(&shared, request.uri().query()),
        protocol::SIZE_PATH => size(&shared, request).await,
        protocol::DISKS_PATH => migration::call(&shared, request, Command::GrowDisk).await,
        protocol::LIMITS_PATH => migration::call(&shared, request, Command::LimitDisks).await,
        protocol::PAUSE_PATH => {
            let pause = |request: PauseRequest, answer| Command::Pause(request.paused, answer);
            migration::call(&shared, request, pause).await
        }
        protocol::SUSPEND_PATH => migration::call(&shared, request, Command::Suspend).await,
        protocol::WAKE_PATH => match wake(&shared).await {
            Ok(()) => text(StatusCode::OK, "the VM runs"),
            Err(response) => response,
        },
        protocol::FREEZE_PATH => disks::freeze(&shared, request).await,
        protocol::THAW_PATH => disks::thaw(&shared).await,
        protocol::STATISTICS_PATH => statistics(&shared).await,
        protocol::METRICS_PATH => metrics::page(&shared).await,
        protocol::POWER_OFF_PATH => power_off(&shared).await,
        protocol::CONSOLE_PATH => console(&shared, request).await,
        protocol::MIGRATION_PATH => migration::call(&shared, request, Command::Move).await,
        protocol::MIGRATION_CANCEL_PATH => migration::call(&shared, request, Command::CancelMove).await,
        protocol::MIGRATION_RECOVER_PATH => migration::call(&shared, request, Command::RecoverMove).await,
        protocol::MIGRATION_SETTLE_PATH => migration::call(&shared, request, Command::SettleMove).await,
        path if path.starts_with(protocol::VOLUME_PATH) => migration::volume(&shared, path).await,
        path => {
            let port = path.trim_start_matches(protocol::GUEST_PORT_PATH).to_owned();
            guest_port(&shared, peer, &port, request).await
        }
    }
}

fn suspension(shared: &Shared) -> SuspendState {
    shared.status.borrow().suspend.as_ref().map_or(SuspendState::Awake, |suspend| suspend.state)
}

/// Wakes the VM if it is suspended, for a command that needs the guest.
async fn wake(shared: &Shared) -> Result<(), Response<Body>> {
    if suspension(shared) == SuspendState::Awake {
        return Ok(());
    }
    let gone = || text(StatusCode::SERVICE_UNAVAILABLE, "the VM has ended");
    shared.commands.send(Command::Knock).await.map_err(|_| gone())?;
    let mut status = shared.status.clone();
    let has_no_room = |suspend: &SuspendStatus| suspend.waits_for_room() && suspend.room() == Some(false);
    let decided = status.wait_for(|status| {
        let suspend = status.suspend.as_ref();
        suspend.is_none_or(|suspend| suspend.state == SuspendState::Awake || has_no_room(suspend))
    });
    match tokio::time::timeout(WAKE, decided).await {
        Ok(Ok(status)) if status.suspend.as_ref().is_some_and(has_no_room) => {
            let why =
                "the VM is suspended, and its node has no room for it to wake: see its condition Suspended";
            Err(text(StatusCode::SERVICE_UNAVAILABLE, why))
        }
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(gone()),
        Err(_) => {
            let why = format!("the VM is suspended and did not wake within {} s", WAKE.as_secs());
            Err(text(StatusCode::GATEWAY_TIMEOUT, &why))
        }
    }
}

fn ready(shared: &Shared) -> Response<Body> {
    if shared.status.borrow().ready {
        text(StatusCode::OK, "ready")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "the guest is not up")
    }
}

fn cpu_current(shared: &Shared) -> Response<Body> {
    let cpu = shared.status.borrow().cpu;
    if cpu.online == 0 {
        return text(StatusCode::GATEWAY_TIMEOUT, "the guest has not reported yet how many CPUs are online");
    }
    json(StatusCode::OK, &RunnerCpu { vcpus: cpu.applied })
}

async fn cpu_change(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let body = match read(shared, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match RunnerCpu::decode(&body) {
        Ok(cpu) => {
            let memory = shared.status.borrow().memory.asked;
            match resize(shared, SizeRequest { cpu: cpu.vcpus, memory }).await {
                Ok(()) => text(StatusCode::OK, ""),
                Err(response) => response,
            }
        }
        Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

async fn size(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let body = match read(shared, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match neonvm_types::objects::from_slice::<SizeRequest>(&body) {
        Ok(size) => match resize(shared, size).await {
            Ok(()) => json(StatusCode::ACCEPTED, &**shared.status.borrow()),
            Err(response) => response,
        },
        Err(error) => text(StatusCode::BAD_REQUEST, &format!("cannot read the size: {error}")),
    }
}

async fn resize(shared: &Shared, size: SizeRequest) -> Result<(), Response<Body>> {
    let gone = || text(StatusCode::SERVICE_UNAVAILABLE, "the VM has ended");
    let (answer, answered) = oneshot::channel();
    shared.commands.send(Command::Resize(size, answer)).await.map_err(|_| gone())?;
    match answered.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(refusal(&why)),
        Err(_) => Err(gone()),
    }
}

fn refusal(why: &Refusal) -> Response<Body> {
    match why {
        Refusal::Wrong(why) => text(StatusCode::BAD_REQUEST, why),
        Refusal::Conflict(why) => text(StatusCode::CONFLICT, why),
        Refusal::Unknown(why) => text(StatusCode::NOT_FOUND, why),
    }
}

async fn power_off(shared: &Shared) -> Response<Body> {
    match shared.commands.send(Command::PowerOff).await {
        Ok(()) => text(StatusCode::ACCEPTED, "the power button is pressed"),
        Err(_) => text(StatusCode::GONE, "the VM has ended"),
    }
}

fn status(shared: &Shared, query: Option<&str>) -> Response<Body> {
    let watching =
        query.is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"));
    if watching {
        return answer::lines(status_lines(shared.status.clone()));
    }
    json(StatusCode::OK, &**shared.status.borrow())
}

/// The document now and at each change; it ends with the VM.
fn status_lines(status: watch::Receiver<Arc<RunnerStatus>>) -> impl futures_util::Stream<Item = Bytes> {
    futures_util::stream::unfold((status, true, false), |(mut status, first, done)| async move {
        if done || (!first && status.changed().await.is_err()) {
            return None;
        }
        let document = Arc::clone(&status.borrow_and_update());
        let mut line = serde_json::to_vec(&*document).unwrap_or_default();
        line.push(b'\n');
        let last = document.state == RunnerState::Ended;
        Some((Bytes::from(line), (status, false, last)))
    })
}

async fn statistics(shared: &Shared) -> Response<Body> {
    let running = shared.running.borrow().clone();
    match running {
        // A suspended guest is not asked: that would wake it.
        Some(running) if suspension(shared) != SuspendState::Awake => {
            json(StatusCode::OK, &running.statistics.without_guest())
        }
        Some(running) => json(StatusCode::OK, &running.statistics.collect().await),
        None => not_yet(),
    }
}

fn not_yet() -> Response<Body> {
    text(StatusCode::SERVICE_UNAVAILABLE, "the VM does not run yet")
}

async fn console(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    if let Err(response) = wake(shared).await {
        return response;
    }
    let running = shared.running.borrow().clone();
    let Some(running) = running else { return not_yet() };
    upgrade(request, |stream| running.console.serve(stream))
}

async fn guest_port(shared: &Shared, peer: Peer, port: &str, request: Request<Incoming>) -> Response<Body> {
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port != 0) else {
        return text(StatusCode::BAD_REQUEST, &format!("{port:?} is not a port: use 1 to 65535"));
    };
    if peer == Peer::Agent && suspension(shared) != SuspendState::Awake {
        return text(StatusCode::CONFLICT, "the VM is suspended");
    }
    if let Err(response) = wake(shared).await {
        return response;
    }
    let running = shared.running.borrow().clone();
    let Some(running) = running else { return not_yet() };
    if shared.status.borrow().pause.applied {
        let why = format!(
            "port {port} of the guest does not answer: the VM is paused; resume it: neonctl vm resume"
        );
        return text(StatusCode::CONFLICT, &why);
    }
    let Some(address) = running.reach.address(port) else {
        let why = format!(
            "port {port} of the guest is not forwarded in user-mode networking; add it to spec.guest.ports"
        );
        return text(StatusCode::NOT_FOUND, &why);
    };
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return text(
                StatusCode::BAD_GATEWAY,
                &format!("port {port} of the guest does not answer: {error}"),
            );
        }
        Err(_) => {
            return text(StatusCode::GATEWAY_TIMEOUT, &format!("port {port} of the guest does not answer"));
        }
    };
    let _ = stream.set_nodelay(true);
    if peer != Peer::Agent {
        return upgrade(request, move |client| neonvm_kit::join::join(client, stream));
    }
    // Cut by one packet, to which a guest that stands still owes no answer.
    let _ = stream.set_zero_linger();
    let streams = Arc::clone(&running.streams);
    upgrade(request, move |client| async move {
        tokio::select! {
            () = neonvm_kit::join::join(client, stream) => {}
            () = streams.cut() => {}
        }
    })
}

/// Turns the connection into a stream of bytes, served by `with`.
fn upgrade<F, W>(mut request: Request<Incoming>, with: W) -> Response<Body>
where
    W: FnOnce(TokioIo<hyper::upgrade::Upgraded>) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let asked = |headers: &HeaderMap| {
        headers.get(header::UPGRADE).is_some_and(|protocol| protocol == protocol::STREAM_PROTOCOL)
    };
    if !asked(request.headers()) {
        let why = format!("ask for an upgrade to {}", protocol::STREAM_PROTOCOL);
        return text(StatusCode::UPGRADE_REQUIRED, &why);
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            with(TokioIo::new(upgraded)).await;
        }
    });
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol::STREAM_PROTOCOL));
    response
}

/// Only known peers get as far as a path with a body.
async fn read(shared: &Shared, request: Request<Incoming>) -> Result<Bytes, Response<Body>> {
    let (head, body) = request.into_parts();
    let read = shared.bodies.read(&head.headers, body, true, LARGEST).await;
    read.map(|(bytes, _)| bytes).map_err(|why| text(status_of(why), &why.to_string()))
}
