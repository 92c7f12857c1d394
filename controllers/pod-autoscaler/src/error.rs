//! Why the service cannot run.

use neonvm_kit::supervise::TaskEnded;

/// Why it cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error(transparent)]
    Client(#[from] neonvm_kit::client::Error),
    /// Settings.
    #[error("{0}")]
    Config(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        address: std::net::SocketAddr,
        /// Error of the socket.
        #[source]
        source: std::io::Error,
    },
    /// Part of it ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}
