//! The size of the VM's pod: what it lets the guest have, and what it should be. Growing, the pod goes first and the guest
//! follows when the kubelet reports that the new limits are in force; shrinking, the guest goes first.

use neonvm_types::runner_protocol::{RunnerStatus, SizeRequest};

use super::Pass;
use crate::condition::{self, Finding, POD_SIZED, SCALED};
use crate::observed::{PodView, Resize, ResizeRefused};
use crate::outcome::Action;
use crate::pod::PodSize;
use crate::pod::size::{larger, size};

/// What the pod lets the guest have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// What may be requested from the runner: for each resource, the wanted size or the previous request.
    pub(super) ask: SizeRequest,
    /// Why that is less than what is wanted.
    pub(super) short: Option<Short>,
}

type Amount = fn(&SizeRequest) -> u64;

/// Why a guest cannot have what is wanted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// The node has not answered.
    Waits(String),
    /// It is not given: a word and a text.
    Denied(&'static str, String),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// By the spec.
    pub(super) wanted: SizeRequest,
    /// The previous request to the runner.
    pub(super) asked: SizeRequest,
    pub(super) reached: SizeRequest,
    /// Whether a migration has the VM: its size stays.
    pub(super) moving: bool,
}

impl Sizes {
    pub(super) fn from_runner(runner: &RunnerStatus, wanted: SizeRequest, moving: bool) -> Self {
        let asked = SizeRequest { cpu: runner.cpu.asked, memory: runner.memory.asked };
        let reached = SizeRequest { cpu: runner.cpu.applied, memory: runner.memory.actual };
        Self { wanted, asked, reached, moving }
    }

    /// The most that the guest has, may take any moment, or is to get.
    fn most(&self) -> SizeRequest {
        let has = larger(self.asked, self.reached);
        if self.moving { has } else { larger(has, self.wanted) }
    }
}

/// The request that may be sent to the guest now. `settled`: no change is under way, so the pod may become smaller.
pub(super) fn step(pass: &mut Pass<'_>, sizes: Sizes, settled: bool) -> Room {
    let free = Room { ask: sizes.wanted, short: None };
    let Some(pod) = pass.observed.pod.as_ref() else { return free };
    let Some(written) = pod.size else {
        unsized_pod(pass);
        return free;
    };
    let target = target(pass, &pod.name, written, sizes, settled);
    if pass.settings.pod_size {
        condition::remove(&mut pass.status, POD_SIZED);
        follow(pass, pod, written, target);
    } else {
        // Made by a controller that could resize it: it does not follow any more, but its limits hold.
        unsized_pod(pass);
    }
    let covers = |guest: SizeRequest, of: Amount| {
        let needed = size(pass.vm, guest, false, pass.settings);
        let holds = |size: PodSize| of(&size.limits) >= of(&needed.limits);
        pod.current && holds(written) && pod.applied.is_some_and(holds)
    };
    let cpu: Amount = |size| u64::from(size.cpu.milli());
    let memory: Amount = |size| size.memory.get();
    let (wanted, asked) = (sizes.wanted, sizes.asked);
    let cpu_fits = wanted.cpu <= asked.cpu || covers(wanted, cpu);
    let memory_fits = wanted.memory <= asked.memory || covers(wanted, memory);
    let ask = SizeRequest {
        cpu: if cpu_fits { wanted.cpu } else { asked.cpu },
        memory: if memory_fits { wanted.memory } else { asked.memory },
    };
    let short = (ask != wanted && !sizes.moving).then(|| why(pass, pod, target));
    Room { ask, short }
}

/// The size that the pod should have now.
fn target(pass: &mut Pass<'_>, pod: &str, written: PodSize, sizes: Sizes, settled: bool) -> PodSize {
    let mut most = sizes.most();
    if let Some(unanswered) = pass.observed.size_unanswered.as_ref().filter(|one| one.pod == pod)
        && !pass.has_passed(unanswered.at, pass.settings.request_lifetime)
    {
        most = larger(most, unanswered.size);
    }
    let target = size(pass.vm, most, sizes.moving, pass.settings);
    if settled && !sizes.moving { target } else { target.max(written) }
}

/// Requests another size of the pod if it does not have the desired one, unless this was refused a moment ago.
fn follow(pass: &mut Pass<'_>, pod: &PodView, written: PodSize, target: PodSize) {
    if target == written || pod.deleting.is_some() || !pod.running {
        return;
    }
    if let Some(refused) = refused(pass, pod, target)
        && !pass.has_passed(refused.at, pass.settings.resize_pause)
    {
        return;
    }
    pass.actions.push(Action::ResizePod { name: pod.name.clone(), uid: pod.uid.clone(), size: target });
}

/// The refusal of this very size for this very pod.
fn refused<'a>(pass: &Pass<'a>, pod: &PodView, target: PodSize) -> Option<&'a ResizeRefused> {
    pass.observed.resize_refused.as_ref().filter(|last| last.pod == pod.uid && last.size == target)
}

/// Why the pod has not the size that the guest needs.
fn why(pass: &mut Pass<'_>, pod: &PodView, target: PodSize) -> Short {
    let node = pod.node.clone();
    if !pass.settings.pod_size {
        let text = format!("pod {} was made with a size that this Kubernetes cannot change", pod.name);
        return Short::Denied("ResizeUnsupported", text);
    }
    if let Some(refused) = refused(pass, pod, target) {
        return Short::Denied("ResizeRefused", format!("denied for node {node}: {}", refused.message));
    }
    let text = match &pod.resize {
        Resize::Deferred(message) => {
            return Short::Denied("ResizeDeferred", format!("denied by node {node}: {message}"));
        }
        Resize::Infeasible(message) => {
            return Short::Denied("ResizeInfeasible", format!("denied by node {node}: {message}"));
        }
        Resize::InProgress(message) if !message.is_empty() => format!("; so far: {message}"),
        Resize::InProgress(_) | Resize::None => String::new(),
    };
    let waits = condition::find(&pass.before, SCALED)
        .filter(|before| matches!(before.reason.as_str(), "InProgress" | "ResizeUnanswered"))
        .and_then(|_| condition::since(&pass.before, SCALED));
    let since = waits.unwrap_or(pass.now);
    if pass.has_passed(since, pass.settings.resize_timeout) {
        let text = format!("node {node} has not resized pod {} since {since}{text}", pod.name);
        return Short::Denied("ResizeUnanswered", text);
    }
    Short::Waits(format!("waits for node {node} to resize pod {}{text}", pod.name))
}

/// Sets the condition for a pod whose requests do not match the size of the VM.
fn unsized_pod(pass: &mut Pass<'_>) {
    let finding = if pass.settings.pod_size {
        let text = "the pod was made without the size of its VM; a restart or a migration gives it one";
        Finding::no("MadeWithoutSize", text)
    } else {
        let text = "pods request nothing here: Kubernetes is older than 1.35, or the vm-controller runs with --pod-size off";
        Finding::no("Unsupported", text)
    };
    pass.set(POD_SIZED, &finding);
}
