//! Why a command has no result.

use std::time::Duration;

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QmpError {
    /// There was no answer in time; whether the command has run is not known.
    #[error("QEMU did not answer `{command}` within {} ms", deadline.as_millis())]
    Timeout {
        /// Which command.
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
        /// Which command.
        command: String,
        /// Class of the error, such as `GenericError`.
        class: String,
        /// For people.
        description: String,
    },
    /// What came is not the protocol; the connection is given up.
    #[error("QEMU's monitor does not speak the protocol: {0}")]
    Garbage(String),
}
