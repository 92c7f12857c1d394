//! Which series are wanted, and what they must look like.

use std::fmt;

use crate::agent::metrics::{LfcMetrics, SystemMetrics};

/// Longest body that is read, in bytes. A shell reads no more than one byte beyond it.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// Everything that is wrong with a scrape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MetricsError {
    /// One sentence per fault.
    pub problems: Vec<String>,
}

impl fmt::Display for MetricsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

/// Reads load and memory, and the user's own metric if it has one.
///
/// # Errors
/// Names every series that is missing, of the wrong type, or has not exactly one sensible sample.
pub fn parse_system(body: &[u8], user: Option<&str>) -> Result<SystemMetrics, MetricsError> {
    let _ = (body, user);
    Err(MetricsError { problems: Vec::new() })
}

/// Reads the file cache's metrics.
///
/// # Errors
/// As [`parse_system`].
pub fn parse_lfc(body: &[u8]) -> Result<LfcMetrics, MetricsError> {
    let _ = body;
    Err(MetricsError { problems: Vec::new() })
}
