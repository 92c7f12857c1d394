//! What the workload and the services print, on its way to the host.
//!
//! Init makes the pipes and keeps both ends, so that neither side notices a restart of the other. A child of init, the
//! forwarder, copies lines to the log port, or to the console when there is no port.

use std::io::Write as _;

pub mod forwarder;
pub mod lines;
pub mod pipes;

pub use pipes::Pipes;

/// A line on standard error, which init forwards.
pub(crate) fn of_daemon(line: &str) {
    let _ = writeln!(std::io::stderr(), "neonvm-guest daemon: {line}");
}
