//! Carries out live migrations as [`neonvm_core_migration`] decides.
//!
//! QEMU connects only to unix sockets of its own runner; the two runners carry the bytes over mutual TLS and accept no
//! peer but the other runner of the same VM. One connection stays open for orders ([`control`]); each connection of
//! QEMU has a separate one ([`relay`]).

pub(crate) mod carrier;
pub(crate) mod connect;
mod control;
mod open_connections;
mod relay;
pub(crate) mod source;
pub(crate) mod target;
pub(crate) mod volumes;

use std::time::Duration;

use neonvm_core_migration::{Phase, source as source_core, target as target_core};
use neonvm_hypervisor::machine::MigrationPhase;
use neonvm_types::runner_protocol::{MigrationRequest, MigrationStatus};
use tokio::sync::oneshot;

use crate::command::Refusal;

/// Messages that wait for the loop.
pub(crate) const QUEUE: usize = 64;
/// Socket to which the source's QEMU sends memory.
const MEMORY: &str = "memory";
/// Socket by which the source's QEMU writes disks.
const DISK: &str = "disk";
/// Socket on which the target's QEMU takes memory.
const INCOMING: &str = "incoming";
/// Socket on which the target's QEMU serves disks.
const NBD: &str = "nbd";
/// Most bytes of a line of the protocol.
const LINE: usize = 64 << 10;
/// Pause between questions for numbers.
const NUMBERS: Duration = Duration::from_secs(1);

/// QEMU's phase as the phase of the migration cores.
fn phase(phase: &MigrationPhase) -> Phase {
    match phase {
        MigrationPhase::None => Phase::None,
        MigrationPhase::Active => Phase::Active,
        MigrationPhase::PreSwitchover => Phase::PreSwitchover,
        MigrationPhase::Device => Phase::Device,
        MigrationPhase::PostCopyActive => Phase::PostCopyActive,
        MigrationPhase::PostCopyPaused => Phase::PostCopyPaused,
        MigrationPhase::PostCopyRecover => Phase::PostCopyRecover,
        MigrationPhase::Completed => Phase::Completed,
        MigrationPhase::Failed => Phase::Failed,
        MigrationPhase::Cancelled => Phase::Cancelled,
        MigrationPhase::Setup
        | MigrationPhase::Cancelling
        | MigrationPhase::WaitUnplug
        | MigrationPhase::Other(_) => Phase::Other,
    }
}

/// What a migration sends to the loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// For the migration with this number, on this side.
    Source(u64, source_core::Event),
    /// Likewise; an error in the answer is the reason of a refusal.
    Target(target_core::Event, Option<oneshot::Sender<Result<(), String>>>),
}

/// The active migration, or the last one.
#[derive(Debug)]
pub(crate) enum Moving {
    /// To another runner.
    Source(source::Shell),
    /// From another runner.
    Target(target::Shell),
}

impl Moving {
    /// How far it is.
    pub(crate) fn status(&self) -> &MigrationStatus {
        match self {
            Self::Source(shell) => shell.core.status(),
            Self::Target(shell) => shell.core.status(),
        }
    }

    /// When it wants to be woken, counted from the start of the runner.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        match self {
            Self::Source(shell) => shell.core.wake_at(),
            Self::Target(shell) => shell.core.wake_at(),
        }
    }
}

/// Validates a request, before any other check.
pub(crate) fn check(request: &MigrationRequest) -> Result<std::net::SocketAddr, Refusal> {
    let wrong = |text: String| Err(Refusal::Wrong(text));
    let parameters = &request.parameters;
    if request.id.is_empty() {
        return wrong("id: it must not be empty".to_owned());
    }
    if parameters.bandwidth.get() == 0 {
        return wrong("parameters.bandwidth: it must be above 0".to_owned());
    }
    if !(1..=2_000_000).contains(&parameters.downtime_limit_ms) {
        return wrong("parameters.downtimeLimitMs: use 1 to 2000000".to_owned());
    }
    if parameters.channels == 0 {
        return wrong("parameters.channels: use 1 to 255".to_owned());
    }
    request.target.parse().or_else(|_| wrong(format!("target: {:?} is not ADDRESS:PORT", request.target)))
}
