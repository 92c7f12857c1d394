//! What clients wish for and the runner decides.

use neonvm_types::runner_protocol::{MigrationCall, MigrationRequest, MigrationVerdict, SizeRequest};
use tokio::sync::oneshot;

/// Why a wish is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It makes no sense.
    Wrong(String),
    /// It does now.
    Conflict(String),
    /// It is about something that is not here.
    Unknown(String),
}

/// Whether a wish is followed.
pub(crate) type Answer = oneshot::Sender<Result<(), Refusal>>;

/// A wish of a client.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Another size.
    Resize(SizeRequest, Answer),
    /// Power off.
    PowerOff,
    /// Another place.
    Move(MigrationRequest, Answer),
    /// To stay.
    CancelMove(MigrationCall, Answer),
    /// To go on with a paused post-copy.
    RecoverMove(MigrationCall, Answer),
    /// Certainty about the other runner.
    SettleMove(MigrationVerdict, Answer),
}
