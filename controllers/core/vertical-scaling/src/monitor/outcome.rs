//! What follows from an event of the monitor.

use std::time::Duration;

use neonvm_types::monitor_protocol::MonitorMessage;

use super::LimitValues;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to the agent that is connected.
    Send {
        /// Number of the message, for the reply.
        id: u64,
        message: MonitorMessage,
    },
    /// Give the file cache this size and report the end by [`super::Event::FileCacheSet`]. Only the newest token counts.
    SetFileCache {
        /// To be given back.
        token: u64,
        /// Bytes, whole MiB.
        size: u64,
    },
    /// Give the workload's control group these limits; `None`: none at all.
    SetLimits(Option<LimitValues>),
    /// Freeze the workload's control group; [`Outcome::thaw_at`] has the end.
    Freeze,
    Thaw,
}

/// What follows from an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In this order.
    pub actions: Vec<Action>,
    /// When the next sample is due.
    pub wake_at: Duration,
    /// When [`super::Event::Elapsed`] is due, because the control group is frozen.
    pub thaw_at: Option<Duration>,
    /// Why more was requested, if it was; for the log.
    pub note: Option<String>,
}
