//! A VM, the pods it is migrated between, and operations on a migration.

use neonvm_test_support::Need;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use neonvm_api::runner_pod::Receive;
use neonvm_types::runner_protocol::{
    Compression, ExitReason, MIGRATION_PORT, MachineInfo, MigrationParameters, MigrationRequest,
    MigrationRole, MigrationState as State, MigrationStatus, SizeRequest,
};
use neonvm_types::{Bytes, MilliCpu};
use serde_json::{Value, json};

use crate::lab::{Lab, lab};
use crate::runner::{Pod, Runner, base, until};

/// A VM and all its pods.
pub(crate) struct World {
    pub(crate) pod: Pod<'static>,
    _directory: tempfile::TempDir,
}

/// Whether every user can execute a program: not in the home of root.
fn is_reachable(program: &std::path::Path) -> bool {
    let mode = |path: &std::path::Path| std::fs::metadata(path).map(|found| found.permissions().mode());
    program.ancestors().all(|path| mode(path).is_ok_and(|mode| mode & 0o001 != 0))
}

impl World {
    pub(crate) fn new() -> Need<Self> {
        let lab: &'static Lab = lab()?;
        let directory = tempfile::tempdir().unwrap();
        let base = base(directory.path());
        let is_root = rustix::process::geteuid().is_root();
        let user = (is_root && is_reachable(&std::env::current_exe().unwrap())).then_some(64055);
        let (spec, identity, network) = (json!({}), None, None);
        let pod = Pod { lab, base, walk: 500, user, spec, identity, network };
        Ok(Self { pod, _directory: directory })
    }

    /// A guest that is up.
    pub(crate) async fn source(&self) -> Runner {
        let source = Runner::start(&self.pod, None);
        source.ready().await;
        source
    }

    /// A target of the migration `id` that waits.
    pub(crate) async fn target(&self, source: &Runner, id: &str) -> Runner {
        let target = self.early_target(source, id).await;
        target.is(State::Waiting).await;
        target
    }

    pub(crate) async fn early_target(&self, source: &Runner, id: &str) -> Runner {
        self.changed_target(source, id, |_| {}).await
    }

    /// A target whose source has reported something else.
    pub(crate) async fn changed_target(
        &self,
        source: &Runner,
        id: &str,
        change: impl FnOnce(&mut MachineInfo),
    ) -> Runner {
        let mut machine = source.status().await.unwrap().machine.unwrap();
        change(&mut machine);
        let receive = Receive {
            migration: id.to_owned(),
            source: format!("{}:25183", source.address),
            machine,
            size: SizeRequest { cpu: MilliCpu::new(1000), memory: Bytes::mib(256) },
            cpus: 1,
            disk_queues: None,
        };
        Runner::start(&self.pod, Some(receive))
    }
}

pub(crate) fn fast() -> MigrationParameters {
    MigrationParameters { channels: 2, ..MigrationParameters::default() }
}

/// So slow that there is time for faults.
pub(crate) fn slow() -> MigrationParameters {
    MigrationParameters {
        bandwidth: Bytes::mib(2),
        channels: 1,
        compression: Compression::None,
        auto_converge: false,
        downtime_limit_ms: 1,
        ..MigrationParameters::default()
    }
}

pub(crate) fn request(target: &Runner, id: &str, parameters: MigrationParameters) -> Value {
    to(SocketAddr::new(target.address, MIGRATION_PORT), id, parameters)
}

/// The order to migrate to the runner that listens there.
fn to(target: SocketAddr, id: &str, parameters: MigrationParameters) -> Value {
    let target = target.to_string();
    serde_json::to_value(MigrationRequest { id: id.to_owned(), target, parameters }).unwrap()
}

pub(crate) async fn begin(source: &Runner, target: &Runner, id: &str, parameters: MigrationParameters) {
    begin_at(source, SocketAddr::new(target.address, MIGRATION_PORT), id, parameters).await;
}

/// The same by another way.
pub(crate) async fn begin_at(source: &Runner, at: SocketAddr, id: &str, parameters: MigrationParameters) {
    let request = to(at, id, parameters);
    let (code, text) = source.call("PUT", "/v1/migration", &request).await.unwrap();
    assert_eq!(code, 202, "{text}");
}

pub(crate) async fn migration(runner: &Runner) -> MigrationStatus {
    until("a status", async || runner.status().await?.migration).await
}

/// Waits for the end of a migration that leaves the guest on its source, and checks that the guest works.
pub(crate) async fn stays(source: &Runner, end: State) -> String {
    source.is(end).await;
    let reason = migration(source).await.reason;
    source.lives().await;
    let (code, text) = source.call("PUT", "/v1/size", &json!({ "cpu": 1, "memory": "256Mi" })).await.unwrap();
    assert_eq!(code, 202, "{text}");
    reason
}

/// Migrates it to the end.
pub(crate) async fn moves(source: &mut Runner, target: &Runner, id: &str) {
    begin(source, target, id, fast()).await;
    let exit = source.exit().await;
    assert_eq!(exit.reason, ExitReason::Migrated, "{exit:?}");
    let status = target.ready().await;
    let moved = status.migration.unwrap();
    assert_eq!((moved.role, moved.state, moved.id.as_str()), (MigrationRole::Target, State::Completed, id));
    assert!(moved.progress.downtime_ms.is_some(), "{moved:?}");
    assert_eq!(status.memory.asked, Bytes::mib(256));
    target.lives().await;
}
