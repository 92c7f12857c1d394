//! A running machine: QEMU's process and the session with its monitor.

mod cpu;
mod event;
mod exit;
mod grow;
mod kernel;
mod limits;
mod meeting;
mod memory;
mod migration;
mod process;
mod resources;
mod start;
mod state;
mod statistics;
mod stderr;
mod supervise;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc, watch};

pub use cpu::{CpuError, VcpuThread};
pub use event::{MachineEvent, RunState};
pub use exit::QemuExit;
pub use grow::GrowError;
pub use kernel::firmware;
pub use limits::DiskWork;
pub use memory::{MemoryError, MemoryState};
pub use migration::{
    Abilities, Agreement, JobEnd, MigrationError, MigrationInfo, MigrationPhase, RequestedFeatures, Settings,
    negotiate,
};
pub use resources::{Resources, TapFiles};
pub use start::StartError;
pub use state::layout;
pub use state::{Mapped, StateError, Stored};
pub use statistics::Usage;

use crate::installation::Version;
use crate::plan::MachinePlan;
use crate::qmp::{QmpError, Session};
use process::Process;

/// Sockets of a machine that its owner reads and writes. Each can be taken once.
#[derive(Debug, Default)]
struct Streams {
    console: Option<UnixStream>,
    log: Option<UnixStream>,
    report: Option<UnixStream>,
    stderr: Option<mpsc::Receiver<String>>,
}

/// A machine. QEMU is killed when it is dropped, and when this process ends in whatever way.
#[derive(Debug)]
pub struct Machine {
    plan: Arc<MachinePlan>,
    session: Arc<Session>,
    process: Process,
    version: Version,
    events: broadcast::Sender<MachineEvent>,
    exit: watch::Receiver<Option<QemuExit>>,
    streams: Mutex<Streams>,
    limits: limits::Limits,
    supervisor: tokio::task::JoinHandle<()>,
    meeting: Option<meeting::Meeting>,
    store: Option<meeting::Meeting>,
    is_mapped: bool,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.process.kill();
        self.supervisor.abort();
    }
}

impl Machine {
    /// What it was made of.
    #[must_use]
    pub fn plan(&self) -> &MachinePlan {
        &self.plan
    }

    /// Version of the QEMU that runs it.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether its memory is in a file ([`Resources::mapped`]), which has to stay as it is until QEMU ends.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Number of QEMU's process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The session, for commands that have no method here.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Events from now on; a receiver that is too slow loses the oldest and gets their number as an error.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<MachineEvent> {
        self.events.subscribe()
    }

    fn take<T>(&self, from: impl FnOnce(&mut Streams) -> Option<T>) -> Option<T> {
        from(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The serial console. Must be read: some hundred bytes are buffered, after that a guest that writes blocks.
    #[must_use]
    pub fn take_console(&self) -> Option<UnixStream> {
        self.take(|streams| streams.console.take())
    }

    /// The port of logs. Must be read: a guest waits until it can write.
    #[must_use]
    pub fn take_log(&self) -> Option<UnixStream> {
        self.take(|streams| streams.log.take())
    }

    /// The port of reports. Must be read: a guest waits until it can write.
    #[must_use]
    pub fn take_report(&self) -> Option<UnixStream> {
        self.take(|streams| streams.report.take())
    }

    /// Lines QEMU writes to standard error; lines are dropped while the receiver is full.
    #[must_use]
    pub fn take_stderr(&self) -> Option<mpsc::Receiver<String>> {
        self.take(|streams| streams.stderr.take())
    }

    /// Lets the guest run: at the start, and after a stop.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn continue_(&self) -> Result<(), QmpError> {
        self.session.execute("cont", Value::Null).await.map(drop)
    }

    /// Stops the guest's CPUs.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn stop(&self) -> Result<(), QmpError> {
        self.session.execute("stop", Value::Null).await.map(drop)
    }

    /// What the machine does now.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn status(&self) -> Result<RunState, QmpError> {
        event::run_state(&self.session).await
    }

    /// Presses the power button. A guest that is not up yet does not notice.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn power_button(&self) -> Result<(), QmpError> {
        self.session.execute("system_powerdown", Value::Null).await.map(drop)
    }

    /// Requests QEMU to end at once; buffers of disks are written, those of the guest are lost.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub async fn quit(&self) -> Result<(), QmpError> {
        self.session.execute("quit", Value::Null).await.map(drop)
    }

    pub fn kill(&self) {
        self.process.kill();
    }

    /// Waits for QEMU's end. Every event has been sent before.
    pub async fn wait(&self) -> QemuExit {
        let mut exit = self.exit.clone();
        let end = exit.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.unwrap_or_default()
    }

    /// As [`Machine::wait`], for at most so long.
    pub async fn wait_for(&self, time: Duration) -> Option<QemuExit> {
        tokio::time::timeout(time, self.wait()).await.ok()
    }

    /// How QEMU ended, if it has.
    #[must_use]
    pub fn exited(&self) -> Option<QemuExit> {
        self.exit.borrow().clone()
    }
}
