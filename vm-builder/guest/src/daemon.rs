//! The daemon: HTTP for CPUs, files and status, metrics, the clock and the door of the SSH server.

mod options;

pub use options::Options;

/// Why the daemon could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag that does not exist or whose value cannot be read.
    #[error("{0}")]
    Usage(String),
    /// A socket could not be opened.
    #[error("listen on {address}: {source}")]
    Listen {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The event loop could not be started.
    #[error("start the event loop: {0}")]
    Runtime(std::io::Error),
}

/// Serves until the process is killed.
///
/// # Errors
/// When a socket cannot be opened.
pub fn run(_options: &Options) -> Result<(), Error> {
    Ok(())
}
