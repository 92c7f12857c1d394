//! What happens to a machine.

use neonvm_types::Bytes;
use serde_json::Value;

use super::migration::{self, JobEnd, MigrationPhase};
use crate::plan;
use crate::qmp::{Event, QmpError, Session};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It runs.
    Running,
    /// It waits for [`super::Machine::continue_`] for the first time.
    Prelaunch,
    /// It was stopped.
    Paused,
    /// The guest is off.
    Shutdown,
    /// The accelerator failed.
    InternalError,
    /// A disk failed, or is full.
    IoError,
    /// The guest's kernel panicked.
    GuestPanicked,
    /// Another state, by QEMU's name.
    Other(String),
}

impl RunState {
    /// Reads QEMU's name (`RunState` in QAPI).
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name {
            "running" => Self::Running,
            "prelaunch" => Self::Prelaunch,
            "paused" => Self::Paused,
            "shutdown" => Self::Shutdown,
            "internal-error" => Self::InternalError,
            "io-error" => Self::IoError,
            "guest-panicked" => Self::GuestPanicked,
            other => Self::Other(other.to_owned()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineEvent {
    /// Its CPUs run.
    Resumed,
    /// Its CPUs do not run any more, because of this state.
    Stopped(RunState),
    /// The accelerator cannot run the guest.
    AcceleratorFailed,
    /// It ends.
    Shutdown {
        /// Whether the guest wanted it.
        guest: bool,
        /// QEMU's `ShutdownCause`: `guest-shutdown`, `guest-reset`, `guest-panic`, `host-qmp-quit`, `host-signal`, ….
        reason: String,
    },
    /// The guest's kernel panicked.
    GuestPanicked,
    PowerButton,
    /// The guest has plugged so much memory beyond the minimum.
    MemoryChanged(Bytes),
    /// A vCPU or another device was unplugged, or the guest has answered the request to unplug one.
    DevicesChanged,
    /// A disk could not be read or written.
    DiskFailed {
        /// Name of the disk in the plan.
        disk: String,
        /// Whether it was written.
        write: bool,
        /// The disk of the host is full.
        full: bool,
        /// The machine was stopped, so that the guest sees no error.
        stopped: bool,
        /// For people.
        reason: String,
    },
    /// A migration of the VM has reached this phase.
    Migration(MigrationPhase),
    /// Its memory has been gone through so often.
    MigrationPass(u64),
    /// The copy of the disk with this number is whole, and is kept in step from now on.
    MirrorReady(usize),
    /// The copy of the disk with this number has ended.
    MirrorEnded(usize, JobEnd),
    /// Another event, by QEMU's name.
    Other(String),
}

pub(super) async fn run_state(session: &Session) -> Result<RunState, QmpError> {
    let answer = session.execute("query-status", Value::Null).await?;
    let name = answer.get("status").and_then(Value::as_str);
    name.map(RunState::parse).ok_or_else(|| QmpError::Garbage("a status without a name".to_owned()))
}

/// Translates an event; `STOP` is not whole without the state.
pub(super) fn translate(event: &Event, plan: &plan::MachinePlan) -> MachineEvent {
    let text = |key: &str| event.text(key).unwrap_or_default().to_owned();
    match event.name.as_str() {
        "RESUME" => MachineEvent::Resumed,
        "STOP" => MachineEvent::Stopped(RunState::Other(String::new())),
        "SHUTDOWN" => {
            MachineEvent::Shutdown { guest: event.truth("guest").unwrap_or(false), reason: text("reason") }
        }
        "GUEST_PANICKED" => MachineEvent::GuestPanicked,
        "POWERDOWN" => MachineEvent::PowerButton,
        "MEMORY_DEVICE_SIZE_CHANGE" => {
            MachineEvent::MemoryChanged(Bytes::new(event.number("size").unwrap_or(0)))
        }
        "DEVICE_DELETED" | "DEVICE_UNPLUG_GUEST_ERROR" | "ACPI_DEVICE_OST" => MachineEvent::DevicesChanged,
        "BLOCK_IO_ERROR" => {
            let names = [text("node-name"), text("qom-path"), text("device")];
            let index = names.iter().find_map(|name| plan::disk_of(name.rsplit('/').next().unwrap_or(name)));
            let disk = index.and_then(|index| plan.disks.get(index));
            MachineEvent::DiskFailed {
                disk: disk.map(|disk| disk.name.clone()).unwrap_or_default(),
                write: event.text("operation") == Some("write"),
                full: event.truth("nospace").unwrap_or(false),
                stopped: event.text("action") == Some("stop"),
                reason: text("reason"),
            }
        }
        "MIGRATION" => MachineEvent::Migration(MigrationPhase::parse(&text("status"))),
        "MIGRATION_PASS" => MachineEvent::MigrationPass(event.number("pass").unwrap_or(0)),
        name => job(name, event).unwrap_or_else(|| MachineEvent::Other(name.to_owned())),
    }
}

/// Events of copies of disks; errors on the way are part of the end.
fn job(name: &str, event: &Event) -> Option<MachineEvent> {
    let index = migration::disk_of_job(event.text("device")?)?;
    let end = match (name, event.text("error")) {
        ("BLOCK_JOB_READY", _) => return Some(MachineEvent::MirrorReady(index)),
        ("BLOCK_JOB_COMPLETED", None) => JobEnd::Whole,
        ("BLOCK_JOB_COMPLETED", Some(error)) => JobEnd::Failed(error.to_owned()),
        ("BLOCK_JOB_CANCELLED", _) => JobEnd::Cancelled,
        _ => return None,
    };
    Some(MachineEvent::MirrorEnded(index, end))
}
