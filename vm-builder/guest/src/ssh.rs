//! The SSH server: one process a connection, key login only.

/// Why a session could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag that does not exist or whose value cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// Serves the connection that is file descriptor 0 until it ends. The arguments are those after `ssh`.
///
/// # Errors
/// When the connection could not be served at all; what goes wrong within a session is logged.
pub fn run(_arguments: &[String]) -> Result<(), Error> {
    Ok(())
}
