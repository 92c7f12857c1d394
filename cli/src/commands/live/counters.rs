//! The load of VMs, from the counters of their runners.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::RunnerStatistics;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch::Receiver;
use tokio::time::MissedTickBehavior;

use crate::commands::counters::{self, rates};
use crate::commands::resource::NamespaceClient;
use crate::connect::Connection;
use crate::live::input::{Input, Key, Load};
use crate::live::model::Fleet;

/// Runners that are read in one interval; with more VMs, each is read every few intervals.
const IN_TURN: usize = 12;
/// Runners that are read at the same time.
const AT_ONCE: usize = 4;
/// Time for the response of a runner.
const DEADLINE: Duration = Duration::from_secs(5);

/// A VM whose counters are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    key: Key,
    pod: String,
    cpus: u32,
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
        let loads = read(&connection, chosen, &mut before).await;
        if sender.send(Input::Loads(loads)).await.is_err() {
            return;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    namespace: String,
    pod: String,
}

impl Run {
    fn is(&self, target: &Target) -> bool {
        self.namespace == target.key.namespace && self.pod == target.pod
    }
}

async fn read(
    connection: &Connection,
    chosen: Vec<Target>,
    before: &mut BTreeMap<Run, RunnerStatistics>,
) -> Vec<(Key, Result<Load, String>)> {
    let asked = chosen.into_iter().map(|target| {
        let client =
            NamespaceClient { connection: connection.clone(), namespace: target.key.namespace.clone() };
        async move {
            let answer = tokio::time::timeout(DEADLINE, counters::read(&client, &target.pod)).await;
            (target, answer.unwrap_or_else(|_| Err(format!("no response within {DEADLINE:?}"))))
        }
    });
    let answers: Vec<_> = futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
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

/// The load between two readings.
fn load(before: Option<RunnerStatistics>, now: RunnerStatistics, cpus: u32) -> Load {
    let rates = before.map(|before| rates(&before, &now, cpus)).unwrap_or_default();
    let memory = Some(now.guest_used.unwrap_or(now.resident)).filter(|used| *used > Bytes::ZERO);
    Load { cpu: rates.cpu, memory: memory.map(Bytes::get), steal: rates.steal, throttled: rates.throttled }
}
