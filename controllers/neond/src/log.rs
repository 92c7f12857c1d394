//! The program's own log, and its last line.

use std::io::Write as _;
use std::process::ExitCode;

/// Sends it to a writer, from now on.
pub(crate) fn to<W>(writer: W)
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        // The client logs every attempt of a retry; its callers log a failure once.
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube_client=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(writer)
        // Otherwise a line that cannot be written, as when the log's reader has gone, panics in the task that logs it.
        .log_internal_errors(false)
        .init();
}

/// The exit code of a program. An error is the last line of standard error, with its causes and without a backtrace, whatever
/// `RUST_BACKTRACE` is: `neonctl` shows the end of what a program wrote.
pub(crate) fn outcome(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    let _ = writeln!(std::io::stderr().lock(), "Error: {error:#}");
    ExitCode::FAILURE
}
