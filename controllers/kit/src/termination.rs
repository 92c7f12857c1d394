//! How a service is stopped.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Ends with SIGTERM or SIGINT. From this call on neither ends the process by itself.
///
/// # Errors
/// If the signals cannot be watched, as outside of a runtime.
pub fn requested() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
