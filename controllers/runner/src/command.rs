//! Commands of clients, and the runner's answers.

use neonvm_types::runner_protocol::{
    DiskRequest, LimitRequest, MigrationCall, MigrationRequest, MigrationVerdict, SizeRequest, SuspendRequest,
};
use tokio::sync::oneshot;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is invalid.
    Wrong(String),
    /// It is invalid in the present state.
    Conflict(String),
    /// It is about something that is not here.
    Unknown(String),
}

/// Gets whether the command is accepted.
pub(crate) type Answer = oneshot::Sender<Result<(), Refusal>>;

#[derive(Debug)]
pub(crate) enum Command {
    Resize(SizeRequest, Answer),
    /// The volume of a disk is larger.
    GrowDisk(DiskRequest, Answer),
    LimitDisks(LimitRequest, Answer),
    /// The guest's CPUs are to stand still, or to run.
    Pause(bool, Answer),
    /// The VM is to be suspended, or to run.
    Suspend(SuspendRequest, Answer),
    /// A command needs the guest.
    Knock,
    PowerOff,
    /// Begin a migration to another runner.
    Move(MigrationRequest, Answer),
    CancelMove(MigrationCall, Answer),
    /// Continue a paused post-copy.
    RecoverMove(MigrationCall, Answer),
    /// Take the controller's verdict about the other runner.
    SettleMove(MigrationVerdict, Answer),
}
