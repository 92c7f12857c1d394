//! A fake runner: the real interface, and behind it the size that a Linux guest would have in the memory device of the real plan.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use neonvm_api::runner_pod::RunnerConfig;
use neonvm_e2e::sessions::Workload;
use neonvm_kit::ca::Identity;
use neonvm_types::Bytes as Memory;
use neonvm_types::runner_protocol::{
    CpuStatus, Exit, ExitReason, GUEST_PORT_PATH, MIGRATION_CANCEL_PATH, MIGRATION_PATH, MachineInfo,
    MemoryStatus, MigrationProgress, MigrationRequest, MigrationRole, MigrationState as State,
    MigrationStatus, PauseRequest, PauseStatus, ProcessExit, RunnerState, RunnerStatus, STREAM_PROTOCOL,
    SizeRequest,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{device, guest};

type Body = BoxBody<Bytes, Infallible>;

/// Time between two steps of a migration: enough for a cancellation to come between them.
const STEP: Duration = Duration::from_millis(60);
/// Time in which the controller notes that a migration has begun.
const NOTED: Duration = Duration::from_millis(200);
/// Time from the start of a guest to the end of a workload that ends at once.
const BOOT: Duration = Duration::from_millis(50);

/// Targets that wait, by their migration.
pub(crate) type Targets = Arc<Mutex<BTreeMap<String, Machine>>>;

/// The VM of a runner.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) status: Arc<watch::Sender<RunnerStatus>>,
    /// What the guest has without the memory device, and what it can use of that.
    memory: (Memory, Memory),
}

impl Machine {
    /// It runs, or waits for its guest. A workload that ends does so before the guest counts as running.
    pub(crate) fn start(config: &RunnerConfig) -> Self {
        let guest = &config.spec.guest;
        let memory = device::of(guest);
        let size = match &config.receive {
            Some(receive) => receive.size,
            None => SizeRequest { cpu: guest.cpus.r#use, memory: guest.memory_use().unwrap() },
        };
        let info = MachineInfo {
            accelerator: "tcg".into(),
            accelerator_note: "there is no /dev/kvm".into(),
            machine_type: "pc-q35-7.2".into(),
            ..MachineInfo::default()
        };
        let mut status = RunnerStatus {
            sequence: 1,
            state: RunnerState::Running,
            ready: true,
            machine: Some(config.receive.as_ref().map_or(info, |receive| receive.machine.clone())),
            ..RunnerStatus::default()
        };
        let ends = match Workload::of(&[&guest.command[..], &guest.args[..]].concat()) {
            Some(Workload::EndsWell) => Some(0),
            Some(Workload::EndsBadly) => Some(3),
            _ => None,
        };
        if let Some(receive) = &config.receive {
            (status.state, status.ready) = (RunnerState::Preparing, false);
            let id = receive.migration.clone();
            status.migration =
                Some(MigrationStatus { id, role: MigrationRole::Target, ..MigrationStatus::default() });
        } else if ends.is_some() {
            (status.state, status.ready) = (RunnerState::Booting, false);
        }
        let machine = Self { status: Arc::new(watch::Sender::new(status)), memory };
        machine.resize(size);
        if let (Some(code), None) = (ends, &config.receive) {
            let machine = machine.clone();
            tokio::spawn(async move {
                tokio::time::sleep(BOOT).await;
                let workload = Some(ProcessExit { code: Some(code), ..ProcessExit::default() });
                machine.end(Exit {
                    workload,
                    ..Exit::new(ExitReason::WorkloadEnded, format!("exit code {code}"))
                });
            });
        }
        machine
    }

    fn change(&self, change: impl FnOnce(&mut RunnerStatus)) {
        self.status.send_modify(|status| {
            change(status);
            status.sequence += 1;
        });
    }

    pub(crate) fn end(&self, exit: Exit) {
        self.change(|status| {
            if status.exit.is_none() {
                (status.state, status.ready, status.exit) = (RunnerState::Ended, false, Some(exit));
            }
        });
    }

    /// The guest takes what it can.
    fn resize(&self, size: SizeRequest) {
        let (base, usable) = self.memory;
        let actual = base.saturating_add(size.memory.saturating_sub(base).min(usable));
        self.change(|status| {
            status.cpu = CpuStatus { asked: size.cpu, applied: size.cpu, online: size.cpu.cpus_rounded_up() };
            status.memory = MemoryStatus { asked: size.memory, actual };
        });
    }

    /// Its migration comes to a state; whether it did.
    fn moves(&self, state: State) -> bool {
        let mut moved = false;
        self.change(|status| {
            let Some(migration) = status.migration.as_mut().filter(|migration| !migration.state.is_over())
            else {
                return;
            };
            moved = true;
            migration.state = state;
            if state == State::Completed {
                migration.progress = MigrationProgress {
                    qemu_status: "completed".into(),
                    downtime_ms: Some(42),
                    ..MigrationProgress::default()
                };
                if migration.role == MigrationRole::Target {
                    (status.state, status.ready) = (RunnerState::Running, true);
                }
            }
        });
        moved
    }

    /// Copies the guest to the target, unless the migration is cancelled.
    async fn carry(self, target: Machine) {
        tokio::time::sleep(NOTED).await;
        for (own, other) in [(State::Copying, State::Receiving), (State::Copying, State::Arrived)] {
            if !(self.moves(own) && target.moves(other)) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        if self.moves(State::HandingOver) && target.moves(State::Completed) && self.moves(State::Completed) {
            self.end(Exit::new(ExitReason::Migrated, "it lives on"));
        }
    }

    fn begin(&self, request: MigrationRequest, targets: &Targets) -> StatusCode {
        let active = |status: &RunnerStatus| {
            let source = status.migration.as_ref().filter(|now| now.role == MigrationRole::Source);
            source.filter(|now| !now.state.is_over() || now.id == request.id).map(|now| now.id.clone())
        };
        match active(&self.status.borrow()) {
            Some(id) if id != request.id => return StatusCode::CONFLICT,
            Some(_) => return StatusCode::ACCEPTED,
            None => {}
        }
        let Some(target) = targets.lock().unwrap().get(&request.id).cloned() else {
            return StatusCode::NOT_FOUND;
        };
        let mode = serde_json::to_string(&request.parameters).unwrap();
        let migration =
            MigrationStatus { id: request.id, state: State::Negotiating, mode, ..MigrationStatus::default() };
        self.change(|status| status.migration = Some(migration));
        tokio::spawn(self.clone().carry(target));
        StatusCode::ACCEPTED
    }

    /// An order about its migration.
    fn order(&self, path: &str, body: &[u8], targets: &Targets) -> StatusCode {
        if path == MIGRATION_PATH {
            return self.begin(serde_json::from_slice(body).unwrap(), targets);
        }
        let id = serde_json::from_slice::<serde_json::Value>(body).unwrap()["id"].clone();
        let now = self.status.borrow().migration.clone();
        match now.filter(|now| id == now.id.as_str()) {
            None => StatusCode::NOT_FOUND,
            Some(now) if path != MIGRATION_CANCEL_PATH || now.state.has_left() => StatusCode::CONFLICT,
            Some(_) => {
                self.moves(State::Cancelled);
                StatusCode::ACCEPTED
            }
        }
    }
}

/// Serves until dropped.
pub(crate) async fn serve(address: SocketAddr, secret: &Secret, machine: Machine, targets: Targets) {
    let text = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
    let identity = Identity { certificate: text("tls.crt"), key: text("tls.key") };
    let mut tls = neonvm_kit::tls::server(&identity, &text("ca.crt")).unwrap();
    tls.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(address).await.unwrap();
    let mut open = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, machine, targets) = (acceptor.clone(), machine.clone(), Arc::clone(&targets));
        open.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, machine.clone(), Arc::clone(&targets)));
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            let _ = connection.with_upgrades().await;
        });
    }
}

async fn answer(
    mut request: Request<Incoming>,
    machine: Machine,
    targets: Targets,
) -> Result<Response<Body>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if let Some(port) = path.strip_prefix(GUEST_PORT_PATH) {
        let (port, upgrade) = (port.parse().unwrap(), hyper::upgrade::on(&mut request));
        tokio::spawn(async move {
            let Ok(stream) = upgrade.await else { return };
            guest::connected(port, TokioIo::new(stream), machine).await;
        });
        let switched = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let switched =
            switched.header(header::CONNECTION, "upgrade").header(header::UPGRADE, STREAM_PROTOCOL);
        return Ok(switched.body(Full::new(Bytes::new()).boxed()).unwrap());
    }
    if (&method, path.as_str()) == (&Method::GET, "/v1/status") {
        let mut receiver = machine.status.subscribe();
        receiver.mark_changed();
        let stream = unfold(Some(receiver), async |receiver| {
            let mut receiver = receiver?;
            receiver.changed().await.ok()?;
            let status = receiver.borrow_and_update().clone();
            let mut line = serde_json::to_vec(&status).unwrap();
            line.push(b'\n');
            Some((Ok(Frame::data(Bytes::from(line))), status.exit.is_none().then_some(receiver)))
        });
        return Ok(Response::new(BoxBody::new(StreamBody::new(Box::pin(stream)))));
    }
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let code = match (method, path.as_str()) {
        (Method::PUT, "/v1/size") => {
            machine.resize(serde_json::from_slice(&body).unwrap());
            StatusCode::OK
        }
        (Method::PUT, "/v1/pause") => {
            let PauseRequest { paused } = serde_json::from_slice(&body).unwrap();
            machine.change(|status| status.pause = PauseStatus { asked: paused, applied: paused });
            StatusCode::OK
        }
        (Method::PUT | Method::POST, path) if path.starts_with(MIGRATION_PATH) => {
            machine.order(path, &body, &targets)
        }
        (_, path) => panic!("the controller asks for {path}"),
    };
    let body =
        if code.is_success() { serde_json::to_vec(&*machine.status.borrow()).unwrap() } else { Vec::new() };
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = code;
    Ok(response)
}
