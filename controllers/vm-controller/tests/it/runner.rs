//! A fake runner: the real interface, no VM behind it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use neonvm_api::runner_pod::RunnerConfig;
use neonvm_kit::ca::Identity;
use neonvm_types::Bytes as Memory;
use neonvm_types::runner_protocol::{
    CpuStatus, DiskLimitStatus, DiskRequest, Exit, LimitRequest, LimitsByDisk, MIGRATION_CANCEL_PATH,
    MIGRATION_PATH, MIGRATION_RECOVER_PATH, MIGRATION_SETTLE_PATH, MachineInfo, MemoryStatus,
    MigrationProgress, MigrationRequest, MigrationRole, MigrationState, MigrationStatus, PauseRequest,
    PauseStatus, Problem, ProblemReason, RunnerState, RunnerStatus, SizeRequest,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, Infallible>;

/// The state of a runner; tests drive migrations through it.
#[derive(Clone, Debug)]
pub(crate) struct Machine(pub(crate) Arc<watch::Sender<RunnerStatus>>);

impl Machine {
    pub(crate) fn new(config: &RunnerConfig) -> Self {
        let guest = &config.spec.guest;
        let (cpu, memory) = (guest.cpus.r#use, guest.memory_use().unwrap());
        let status = RunnerStatus {
            sequence: 1,
            state: RunnerState::Running,
            ready: true,
            machine: Some(MachineInfo {
                accelerator: "tcg".into(),
                accelerator_note: "there is no /dev/kvm".into(),
                root_size_note: "spec.guest.rootDisk.size: 1Gi is less than the image's 2Gi".into(),
                machine_type: "pc-q35-7.2".into(),
                ..MachineInfo::default()
            }),
            cpu: CpuStatus { asked: cpu, applied: cpu, online: cpu.cpus_rounded_up() },
            memory: MemoryStatus { asked: memory, actual: memory },
            disk_limits: in_force(config.spec.limits_by_disk()),
            disks: config.claims.iter().map(|(disk, claim)| (disk.clone(), claim.size)).collect(),
            ..RunnerStatus::default()
        };
        let status = match &config.receive {
            None => status,
            Some(receive) => RunnerStatus {
                state: RunnerState::Preparing,
                ready: false,
                machine: Some(receive.machine.clone()),
                memory: MemoryStatus { asked: receive.size.memory, actual: receive.size.memory },
                migration: Some(MigrationStatus {
                    id: receive.migration.clone(),
                    role: MigrationRole::Target,
                    ..MigrationStatus::default()
                }),
                ..status
            },
        };
        Self(Arc::new(watch::Sender::new(status)))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut RunnerStatus)) {
        self.0.send_modify(|status| {
            change(status);
            status.sequence += 1;
        });
    }

    pub(crate) fn end(&self, exit: Exit) {
        self.change(|status| {
            (status.state, status.ready, status.exit) = (RunnerState::Ended, false, Some(exit));
        });
    }

    pub(crate) fn state(&self) -> Option<MigrationState> {
        self.0.borrow().migration.as_ref().map(|migration| migration.state)
    }

    pub(crate) fn moves(&self, state: MigrationState) {
        self.change(|status| {
            let runs = matches!(state, MigrationState::Completed);
            let Some(migration) = &mut status.migration else { return };
            migration.state = state;
            if migration.role == MigrationRole::Target && runs {
                (status.state, status.ready) = (RunnerState::Running, true);
            }
            if runs {
                migration.progress = MigrationProgress {
                    qemu_status: "completed".into(),
                    downtime_ms: Some(42),
                    passes: 3,
                    ..MigrationProgress::default()
                };
            }
        });
    }

    fn order(&self, path: &str, body: &[u8]) -> StatusCode {
        if path == MIGRATION_PATH {
            let request: MigrationRequest = serde_json::from_slice(body).unwrap();
            let busy = self.0.borrow().migration.as_ref().is_some_and(|now| {
                now.id != request.id && now.role == MigrationRole::Source && !now.state.is_over()
            });
            if busy {
                return StatusCode::CONFLICT;
            }
            if self.0.borrow().migration.as_ref().is_none_or(|now| now.id != request.id) {
                let mode = serde_json::to_string(&request.parameters).unwrap();
                let state = MigrationState::Negotiating;
                let migration = MigrationStatus { id: request.id, state, mode, ..MigrationStatus::default() };
                self.change(|status| status.migration = Some(migration));
            }
            return StatusCode::ACCEPTED;
        }
        let id =
            serde_json::from_slice::<serde_json::Value>(body).unwrap()["id"].as_str().unwrap().to_owned();
        let Some(now) = self.0.borrow().migration.clone().filter(|now| now.id == id) else {
            return StatusCode::NOT_FOUND;
        };
        match path {
            MIGRATION_CANCEL_PATH if now.state.has_left() => return StatusCode::CONFLICT,
            MIGRATION_CANCEL_PATH => self.moves(MigrationState::Cancelled),
            MIGRATION_SETTLE_PATH if now.role == MigrationRole::Target => {
                self.moves(MigrationState::Completed);
            }
            MIGRATION_SETTLE_PATH => self.moves(MigrationState::Failed),
            MIGRATION_RECOVER_PATH => self.moves(MigrationState::PostCopy),
            other => panic!("the controller asks for {other}"),
        }
        StatusCode::ACCEPTED
    }

    fn resize(&self, size: SizeRequest, keeps: Option<Memory>) {
        self.change(|status| {
            status.cpu = CpuStatus { asked: size.cpu, applied: size.cpu, online: size.cpu.cpus_rounded_up() };
            let actual = keeps.map_or(size.memory, |keeps| keeps.max(size.memory));
            status.memory = MemoryStatus { asked: size.memory, actual };
            status.problems.clear();
            if actual != size.memory {
                let reason = ProblemReason::MemoryNotReleased;
                status.problems.push(Problem { reason, message: "the guest does not let go".into() });
            }
        });
    }
}

/// What the runner does about sizes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Temper {
    /// Memory that the guest does not give back.
    pub(crate) keeps: Option<Memory>,
    pub(crate) refuses: bool,
}

/// Serves until dropped.
pub(crate) async fn serve(
    address: SocketAddr,
    secret: &Secret,
    machine: Machine,
    temper: watch::Receiver<Temper>,
) {
    let text = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
    let identity = Identity { certificate: text("tls.crt"), key: text("tls.key") };
    let mut tls = neonvm_kit::tls::server(&identity, &text("ca.crt")).unwrap();
    tls.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(address).await.unwrap();
    let mut open = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, machine, temper) = (acceptor.clone(), machine.clone(), temper.clone());
        open.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            assert!(stream.get_ref().1.peer_certificates().is_some(), "no client certificate");
            let service = service_fn(move |request| answer(request, machine.clone(), temper.clone()));
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

fn in_force(limits: LimitsByDisk) -> BTreeMap<String, DiskLimitStatus> {
    let status = |limits| DiskLimitStatus { limits, ..DiskLimitStatus::default() };
    limits.into_iter().map(|(disk, limits)| (disk, status(limits))).collect()
}

fn refused(status: http::StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

async fn answer(
    request: Request<Incoming>,
    machine: Machine,
    temper: watch::Receiver<Temper>,
) -> Result<Response<Body>, Infallible> {
    let json = |status: &RunnerStatus| Bytes::from(serde_json::to_vec(status).unwrap());
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/status") => {
            assert_eq!(request.uri().query(), Some("watch=true"));
            let mut receiver = machine.0.subscribe();
            receiver.mark_changed();
            let stream = futures_util::stream::unfold(Some(receiver), move |receiver| async move {
                let mut receiver = receiver?;
                receiver.changed().await.ok()?;
                let status = receiver.borrow_and_update().clone();
                let mut line = serde_json::to_vec(&status).unwrap();
                line.push(b'\n');
                let next = status.exit.is_none().then_some(receiver);
                Some((Ok(Frame::data(Bytes::from(line))), next))
            });
            Ok(Response::new(BoxBody::new(StreamBody::new(stream))))
        }
        (&Method::PUT, "/v1/size") => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let size: SizeRequest = serde_json::from_slice(&body).unwrap();
            let temper = temper.borrow().clone();
            if temper.refuses {
                return Ok(refused(http::StatusCode::UNPROCESSABLE_ENTITY, "above the maximum"));
            }
            machine.resize(size, temper.keeps);
            let body = json(&machine.0.borrow());
            Ok(Response::new(Full::new(body).boxed()))
        }
        (&Method::PUT, "/v1/disks") => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let DiskRequest { disk, size } = serde_json::from_slice(&body).unwrap();
            let accepted = json(&machine.0.borrow());
            if temper.borrow().refuses {
                return Ok(refused(http::StatusCode::CONFLICT, "the VM moves"));
            }
            machine.change(|status| status.disks.extend([(disk, size)]));
            Ok(Response::new(Full::new(accepted).boxed()))
        }
        (&Method::PUT, "/v1/disks/limits") => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let LimitRequest { limits } = serde_json::from_slice(&body).unwrap();
            let accepted = json(&machine.0.borrow());
            machine.change(|status| status.disk_limits = in_force(limits));
            Ok(Response::new(Full::new(accepted).boxed()))
        }
        (&Method::PUT, "/v1/pause") => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let PauseRequest { paused } = serde_json::from_slice(&body).unwrap();
            if temper.borrow().refuses {
                // As a runner of a version that has no such path.
                return Ok(refused(http::StatusCode::NOT_FOUND, "no such path"));
            }
            machine.change(|status| status.pause = PauseStatus { asked: paused, applied: paused });
            let body = json(&machine.0.borrow());
            Ok(Response::new(Full::new(body).boxed()))
        }
        (&Method::PUT | &Method::POST, path) if path.starts_with(MIGRATION_PATH) => {
            let path = path.to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let status = machine.order(&path, &body);
            let body = if status.is_success() { json(&machine.0.borrow()) } else { Bytes::new() };
            let mut response = Response::new(Full::new(body).boxed());
            *response.status_mut() = status;
            Ok(response)
        }
        (_, path) => panic!("the controller asks for {path}"),
    }
}
