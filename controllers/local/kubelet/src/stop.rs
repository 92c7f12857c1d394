//! Requests the VMs of a cluster to stop, after its services have ended: no other process is left to do it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::pod::PodDirectory;
use crate::pod::state_file::{self, Saved};
use crate::process::Identity;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    /// `namespace/name` of the pod.
    pub name: String,
    /// Its grace period: how long it may take to end.
    pub grace: Duration,
    processes: Vec<Identity>,
}

/// The pods of a cluster with running processes, on every node, by name. `data` is the cluster's directory.
#[must_use]
pub fn running(data: &Path) -> Vec<RunningPod> {
    running_in(state_file::pods(&data.join("nodes")))
}

/// The same of one node; `node` is its directory.
pub(crate) fn running_on(node: &Path) -> Vec<RunningPod> {
    running_in(state_file::pods_of(node))
}

fn running_in(pods: impl Iterator<Item = PodDirectory>) -> Vec<RunningPod> {
    let pods = pods.filter_map(|directory| {
        let saved = Saved::read(&directory).ok().filter(Saved::is_of_this_boot)?;
        let pod = pod_of(&directory, &saved);
        (!pod.processes.is_empty()).then_some(pod)
    });
    let mut all: Vec<RunningPod> = pods.collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn pod_of(directory: &PodDirectory, saved: &Saved) -> RunningPod {
    let runs = saved.machine.runs.iter();
    let files = runs.map(|(name, run)| directory.pid(name, run.restarts));
    let metadata = &saved.pod.metadata;
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    RunningPod {
        name: format!("{}/{}", word(&metadata.namespace), word(&metadata.name)),
        grace: Duration::from_millis(saved.machine.plan.grace),
        processes: files
            .filter_map(|file| Identity::read(&file))
            .filter(|&one| open(one).is_some())
            .collect(),
    }
}

/// A process as a descriptor. None: it has ended, reaped or not.
fn open(identity: Identity) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(identity.pid)?, PidfdFlags::empty()).ok()?;
    // Checked after the descriptor was opened: the process with this number is the one of the descriptor.
    (Identity::from_pid(identity.pid) == Some(identity) && !ended(&[&fd], Duration::ZERO)).then_some(fd)
}

/// Waits until the processes of these pods have ended, at most so long. Blocks.
pub(crate) fn await_end(pods: &[RunningPod], longest: Duration) {
    let begun = Instant::now();
    let processes = pods.iter().flat_map(|pod| &pod.processes).filter_map(|&process| open(process));
    await_all(begun, processes.map(|fd| (fd, longest)).collect());
}

/// Waits for each process until it has ended, or for so long since the beginning.
fn await_all(begun: Instant, mut processes: Vec<(OwnedFd, Duration)>) {
    loop {
        let now = begun.elapsed();
        processes.retain(|(fd, until)| *until > now && !ended(&[fd], Duration::ZERO));
        let Some(first) = processes.iter().map(|(_, until)| *until).min() else { return };
        let fds: Vec<&OwnedFd> = processes.iter().map(|(fd, _)| fd).collect();
        // Interrupted by a signal, it looks again.
        ended(&fds, first.saturating_sub(now));
    }
}

/// Waits until any of the processes has ended, at most so long. Whether one has.
fn ended(processes: &[&OwnedFd], longest: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> = processes.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0)
}

/// Requests every process of a cluster's pods to end (SIGTERM) and waits for it, each at most the grace period of its
/// pod and at most `longest`. For a cluster after its services have ended; `data` is its directory. Returns what runs
/// on. Blocks.
#[must_use]
pub fn stop_all(data: &Path, longest: Duration) -> Vec<RunningPod> {
    stop(running(data), longest)
}

pub(crate) fn stop(mut pods: Vec<RunningPod>, longest: Duration) -> Vec<RunningPod> {
    let begun = Instant::now();
    let mut waited: Vec<(OwnedFd, Duration)> = Vec::new();
    for pod in &pods {
        for fd in pod.processes.iter().filter_map(|&process| open(process)) {
            if pidfd_send_signal(&fd, Signal::TERM).is_ok() {
                waited.push((fd, pod.grace.min(longest)));
            }
        }
    }
    await_all(begun, waited);
    for pod in &mut pods {
        pod.processes.retain(|&process| open(process).is_some());
    }
    pods.retain(|pod| !pod.processes.is_empty());
    pods
}
