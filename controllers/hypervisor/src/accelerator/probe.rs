//! Does `/dev/kvm` run a guest? Determined by running one, in a separate process: it may hang in the kernel.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// A guest ran, correctly and quickly.
    pub usable: bool,
    /// Why not, or how well, for people.
    pub reason: String,
    /// How long it took in microseconds.
    pub micros: u64,
}

impl ProbeResult {
    /// One line of JSON, as [`super::choose`] reads it.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Runs a small guest in this process. Takes at most a third of a second, unless the kernel hangs; installs a handler of
/// `SIGALRM`. For a process that does nothing else, whose output is [`ProbeResult::to_line`].
#[must_use]
pub fn run_in_this_process() -> ProbeResult {
    let begun = std::time::Instant::now();
    let (usable, reason) = match super::kvm::run() {
        Ok(reason) => (true, reason),
        Err(reason) => (false, reason),
    };
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    ProbeResult { usable, reason, micros }
}
