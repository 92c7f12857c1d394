//! Why a command has no result.

use std::time::Duration;

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QmpError {
    /// There was no answer in time; whether the command has run is unknown.
    #[error("QEMU did not answer `{command}` within {} ms", deadline.as_millis())]
    Timeout {
        command: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// The connection is closed.
    #[error("the connection to QEMU's monitor is closed: {0}")]
    Closed(String),
    /// QEMU refuses.
    #[error("QEMU refuses `{command}`: {description} ({class})")]
    Command {
        command: String,
        /// Class of the error, such as `GenericError`.
        class: String,
        /// For people.
        description: String,
    },
    /// The data received is not the protocol; the connection is closed.
    #[error("QEMU's monitor does not speak the protocol: {0}")]
    Garbage(String),
}
