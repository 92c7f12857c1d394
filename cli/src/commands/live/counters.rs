//! The load of VMs, from two readings of the counters of their runners.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::RunnerStatistics;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch::Receiver;
use tokio::time::MissedTickBehavior;

use crate::commands::resource::NamespaceClient;
use crate::commands::vm::exec;
use crate::connect::Connection;
use crate::live::input::{Input, Key, Load};
use crate::live::model::Fleet;
use crate::live::size::float;

/// Runners that are read in one interval; with more VMs, each is read every few intervals.
const IN_TURN: usize = 12;
/// Runners that are read at the same time.
const AT_ONCE: usize = 4;
/// Time for the response of a runner.
const DEADLINE: Duration = Duration::from_secs(5);

/// A VM whose counters are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) key: Key,
    pub(crate) pod: String,
    pub(crate) cpus: u32,
}

/// The running VMs.
pub(super) fn targets(fleet: &Fleet) -> Vec<Target> {
    let running = fleet.vms.iter().filter(|(_, vm)| vm.facts.running);
    let target = |(key, vm): (&Key, &crate::live::model::Vm)| Target {
        key: key.clone(),
        pod: vm.facts.pod.clone(),
        cpus: vm.facts.size.vcpus.cpus_rounded_up(),
    };
    running.map(target).collect()
}

/// Sends loads until the receiver is closed.
pub(super) async fn poll(
    connection: Connection,
    interval: Duration,
    mut targets: Receiver<Vec<Target>>,
    sender: Sender<Input>,
) {
    let mut before: BTreeMap<Run, RunnerStatistics> = BTreeMap::new();
    let mut next = 0;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let all = targets.borrow_and_update().clone();
        if all.is_empty() {
            // Nothing runs yet.
            if targets.changed().await.is_err() {
                return;
            }
            continue;
        }
        before.retain(|at, _| all.iter().any(|target| at.is(target)));
        let chosen: Vec<Target> =
            all.iter().cycle().skip(next % all.len()).take(IN_TURN.min(all.len())).cloned().collect();
        next = (next + chosen.len()) % all.len();
        let loads = read(&connection, chosen, AT_ONCE, &mut before).await;
        if sender.send(Input::Loads(loads)).await.is_err() {
            return;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    namespace: String,
    pod: String,
}

impl Run {
    fn is(&self, target: &Target) -> bool {
        self.namespace == target.key.namespace && self.pod == target.pod
    }
}

/// The load of these VMs since their counters were read into `before`, or why there is none.
pub(crate) async fn read(
    connection: &Connection,
    chosen: Vec<Target>,
    at_once: usize,
    before: &mut BTreeMap<Run, RunnerStatistics>,
) -> Vec<(Key, Result<Load, String>)> {
    let asked = chosen.into_iter().map(|target| {
        let client =
            NamespaceClient { connection: connection.clone(), namespace: target.key.namespace.clone() };
        async move {
            let answer = tokio::time::timeout(DEADLINE, of_pod(&client, &target.pod)).await;
            (target, answer.unwrap_or_else(|_| Err(format!("no response within {DEADLINE:?}"))))
        }
    });
    let answers: Vec<_> = futures_util::stream::iter(asked).buffer_unordered(at_once).collect().await;
    let mut loads = Vec::new();
    for (target, answer) in answers {
        let run = Run { namespace: target.key.namespace.clone(), pod: target.pod };
        let load = match answer {
            Ok(now) => Ok(load(before.insert(run, now), now, target.cpus)),
            Err(trouble) => Err(crate::render::one_line(&trouble)),
        };
        loads.push((target.key, load));
    }
    loads
}

async fn of_pod(client: &NamespaceClient, pod: &str) -> Result<RunnerStatistics, String> {
    let output = exec::output(client, pod, &["statistics"]).await.map_err(|error| {
        let causes = error.causes.last().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{}{causes}", error.message)
    })?;
    serde_json::from_str(&output).map_err(|_| "invalid statistics from its runner".to_owned())
}

/// The load between two readings of the same QEMU: counters over its own clock. No rates if the later reading is of an earlier
/// time, as after a restart.
fn load(before: Option<RunnerStatistics>, now: RunnerStatistics, cpus: u32) -> Load {
    let memory = Some(now.guest_used.unwrap_or(now.resident)).filter(|used| *used > Bytes::ZERO);
    let load = Load { memory: memory.map(Bytes::get), ..Load::default() };
    let Some((before, elapsed)) = before
        .and_then(|before| Some((before, now.uptime_ms.checked_sub(before.uptime_ms)?)))
        .filter(|(_, elapsed)| *elapsed > 0)
    else {
        return load;
    };
    let elapsed = float(elapsed) * 1000.0;
    let all = elapsed * f64::from(cpus.max(1));
    let grown = |before: u64, now: u64| now.checked_sub(before).map(float);
    let share = |taken: f64| (taken / all).min(1.0);
    Load {
        cpu: grown(before.cpu_us, now.cpu_us).map(|used| used / elapsed),
        steal: before.steal_us.zip(now.steal_us).and_then(|(before, now)| grown(before, now)).map(share),
        throttled: grown(before.throttled_us, now.throttled_us).map(share),
        ..load
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
        let load = load(Some(before), now, 3);
        assert!((load.cpu.unwrap() - 2.61).abs() < 1e-9);
        assert!((load.steal.unwrap() - 0.01).abs() < 1e-9, "60 ms of 3 CPUs in 2 s");
        assert!((load.throttled.unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn there_are_no_rates_over_a_restart_or_without_time() {
        let load = |before, now| load(Some(before), now, 1);
        assert_eq!(load(counters(9000, 7), counters(10, 9)), Load::default());
        assert_eq!(load(counters(9000, 7), counters(9000, 9)), Load::default());
        assert_eq!(load(counters(1, 9), counters(2, 7)).cpu, None, "a counter that went back");
        let some = RunnerStatistics { steal_us: Some(1), ..counters(2, 8) };
        assert_eq!(load(counters(1, 7), some).steal, None);
        let last = RunnerStatistics { uptime_ms: u64::MAX, cpu_us: u64::MAX, ..some };
        assert_eq!(load(some, last).steal, Some(0.0));
        let host = RunnerStatistics { resident: Bytes::gib(1), ..counters(10, 10) };
        assert_eq!(load(some, host).memory, Some(1 << 30), "the host reports what the guest does not");
    }
}
