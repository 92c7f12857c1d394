//! The counters of VMs' runners, and what they show between two readings.

use neonvm_types::runner_protocol::RunnerStatistics;

use super::resource::NamespaceClient;
use super::vm::exec;
use crate::live::size::float;

/// The counters of a VM's runner, or why there are none.
pub(super) async fn read(
    client: &NamespaceClient,
    pod: &str,
) -> std::result::Result<RunnerStatistics, String> {
    let output = exec::output(client, pod, &["statistics"]).await.map_err(|error| {
        let causes = error.causes.last().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{}{causes}", error.message)
    })?;
    serde_json::from_str(&output).map_err(|_| "invalid statistics from its runner".to_owned())
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) cpu: Option<f64>,
    /// Share of the time of its CPUs that others on the host took, 0 to 1.
    pub(super) steal: Option<f64>,
    /// Share of the time of its CPUs in which its limit held it back, 0 to 1.
    pub(super) throttled: Option<f64>,
}

/// Rates between two looks at the same QEMU: counters over its own clock. `cpus` are those of the VM. None of them
/// if the later look is of an earlier time, as after a restart.
pub(super) fn rates(before: &RunnerStatistics, now: &RunnerStatistics, cpus: u32) -> Rates {
    let Some(elapsed) = now.uptime_ms.checked_sub(before.uptime_ms).filter(|elapsed| *elapsed > 0) else {
        return Rates::default();
    };
    let elapsed = float(elapsed) * 1000.0;
    let all = elapsed * f64::from(cpus.max(1));
    let grown = |before: u64, now: u64| now.checked_sub(before).map(float);
    Rates {
        cpu: grown(before.cpu_us, now.cpu_us).map(|used| used / elapsed),
        steal: before
            .steal_us
            .zip(now.steal_us)
            .and_then(|(before, now)| grown(before, now))
            .map(|taken| (taken / all).min(1.0)),
        throttled: grown(before.throttled_us, now.throttled_us).map(|held| (held / all).min(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(uptime_ms: u64, cpu_us: u64) -> RunnerStatistics {
        RunnerStatistics { uptime_ms, cpu_us, ..RunnerStatistics::default() }
    }

    #[test]
    fn rates_are_counters_over_the_time_of_the_machine() {
        let before = RunnerStatistics { steal_us: Some(100), throttled_us: 0, ..counters(1000, 5_000_000) };
        let now =
            RunnerStatistics { steal_us: Some(60_100), throttled_us: 300_000, ..counters(3000, 10_220_000) };
        let rates = rates(&before, &now, 3);
        assert!((rates.cpu.unwrap() - 2.61).abs() < 1e-9);
        assert!((rates.steal.unwrap() - 0.01).abs() < 1e-9, "60 ms of 3 CPUs in 2 s");
        assert!((rates.throttled.unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn there_are_no_rates_over_a_restart_or_without_time() {
        assert_eq!(rates(&counters(9000, 7), &counters(10, 9), 1), Rates::default());
        assert_eq!(rates(&counters(9000, 7), &counters(9000, 9), 1), Rates::default());
        assert_eq!(rates(&counters(1, 9), &counters(2, 7), 1).cpu, None, "a counter that went back");
        let some = RunnerStatistics { steal_us: Some(1), ..counters(2, 8) };
        assert_eq!(rates(&counters(1, 7), &some, 1).steal, None);
        assert_eq!(
            rates(&some, &RunnerStatistics { uptime_ms: u64::MAX, cpu_us: u64::MAX, ..some }, 0).steal,
            Some(0.0)
        );
    }
}
