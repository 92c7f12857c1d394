//! Counters of the VM, sampled on request.

use neonvm_types::runner_protocol::RunnerStatistics;

use crate::guest::daemon::Daemon;
use crate::guest::usage;

/// Measures on this host: time, CPU, memory of QEMU.
type Sample = Box<dyn Fn() -> RunnerStatistics + Send + Sync>;

/// Where counters come from.
pub(crate) struct Statistics {
    sample: Sample,
    daemon: Daemon,
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statistics").finish_non_exhaustive()
    }
}

impl Statistics {
    pub(crate) fn new(sample: Sample, daemon: Daemon) -> Self {
        Self { sample, daemon }
    }

    /// The counters of this host.
    pub(crate) fn without_guest(&self) -> RunnerStatistics {
        (self.sample)()
    }

    /// The counters now, without those that the guest does not report.
    pub(crate) async fn collect(&self) -> RunnerStatistics {
        let usage = match self.daemon.metrics().await {
            Ok(text) => usage::parse(&text),
            Err(_) => usage::Usage::default(),
        };
        RunnerStatistics {
            guest_used: usage.used,
            load1_milli: usage.load1_milli,
            steal_us: usage.steal_us,
            ..(self.sample)()
        }
    }
}
