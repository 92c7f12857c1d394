//! The size of the VM's pod: what it lets the guest have, and what it should be. Growing, the pod goes first and the guest
//! follows when the kubelet reports that the new limits are in force; shrinking, the guest goes first.

use neonvm_types::runner_protocol::{ASLEEP, RunnerStatus, SizeRequest};

use super::Pass;
use crate::condition::{self, Finding, POD_SIZED, SCALED};
use crate::observed::{Obstacle, PodView, Resize, ResizeRefused};
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

/// Longest pause before a resize that was denied because devices are away is requested again, in seconds.
const DEVICES_PAUSE_MAX: i64 = 60;

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
}

/// The size by the spec, if it can be used.
pub(super) fn wanted(pass: &Pass<'_>) -> Option<SizeRequest> {
    let guest = &pass.vm.spec.guest;
    Some(SizeRequest { cpu: guest.cpus.r#use, memory: guest.memory_use().ok()? })
}

/// The request that may be sent to the guest now. `settled`: no change is under way, so the pod may become smaller.
pub(super) fn step(pass: &mut Pass<'_>, sizes: Sizes, settled: bool) -> Room {
    let free = Room { ask: sizes.wanted, short: None };
    let Some(pod) = pass.observed.pod.as_ref() else { return free };
    let Some(written) = pod.size else {
        unsized_pod(pass);
        return free;
    };
    let needed = needed(pass, &pod.name, sizes);
    let most = if sizes.moving { needed } else { larger(needed, sizes.wanted) };
    let target = size(pass.vm, most, sizes.moving, pass.settings);
    let target = if settled && !sizes.moving { target } else { target.max(written) };
    if pass.settings.pod_size {
        condition::remove(&mut pass.status, POD_SIZED);
        if target == written && !sizes.moving {
            let least = size(pass.vm, needed, false, pass.settings);
            take_back(pass, pod, written, least);
        } else {
            follow(pass, pod, written, target);
        }
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
    let short = (ask != wanted && !sizes.moving).then(|| why(pass, pod, written, target));
    Room { ask, short }
}

/// Of a suspended VM only the runner takes something: the pod requests no more, so that its node has room for others. Its limits stay, so that it
/// wakes at once; the requests follow when it is awake.
pub(super) fn asleep(pass: &mut Pass<'_>) {
    let Some(pod) = pass.observed.pod.as_ref() else { return };
    let Some(written) = pod.size.filter(|_| pass.settings.pod_size) else { return };
    follow(pass, pod, written, PodSize { requests: ASLEEP, limits: written.limits });
}

/// Whether the requests of its pod keep room for the VM.
pub(super) fn is_kept(pass: &Pass<'_>) -> bool {
    pass.settings.pod_size && pass.observed.pod.as_ref().is_some_and(|pod| pod.size.is_some())
}

/// Why a suspended VM cannot wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub(super) obstacle: Obstacle,
    pub(super) message: String,
}

/// Whether the node has room for a suspended VM that is needed: its pod requests again what it has. `None`: the node has not answered yet. What
/// forbids a resize for another reason than room does not keep the VM from waking.
pub(super) fn for_wake(pass: &mut Pass<'_>, sizes: Sizes) -> Option<Result<(), NoRoom>> {
    let pod = pass.observed.pod.as_ref()?;
    let written = pod.size?;
    let target = size(pass.vm, needed(pass, &pod.name, sizes), false, pass.settings).max(written);
    if target != written {
        let message = refused(pass, pod, target).map(|refused| refused.message.clone());
        follow(pass, pod, written, target);
        return message.map(|message| no_room(Obstacle::from_message(&message), &pod.node, &message));
    }
    match &pod.resize {
        _ if !pod.current => None,
        Resize::Denied(denial) => Some(no_room(denial.obstacle, &pod.node, &denial.message)),
        Resize::None | Resize::InProgress { .. } => Some(Ok(())),
    }
}

fn no_room(obstacle: Obstacle, node: &str, why: &str) -> Result<(), NoRoom> {
    match obstacle {
        Obstacle::NoRoom | Obstacle::TooLarge => {
            Err(NoRoom { obstacle, message: format!("node {node} has no room for it: {why}") })
        }
        _ => Ok(()),
    }
}

/// The most that the guest has, or may take any moment because of a request on its way to the runner.
fn needed(pass: &mut Pass<'_>, pod: &str, sizes: Sizes) -> SizeRequest {
    let has = larger(sizes.asked, sizes.reached);
    match pass.observed.size_unanswered.as_ref().filter(|one| one.pod == pod) {
        Some(one) if !pass.has_passed(one.at, pass.settings.request_lifetime) => larger(has, one.size),
        _ => has,
    }
}

/// Requests another size of the pod if it does not have the desired one, unless this was refused a moment ago.
fn follow(pass: &mut Pass<'_>, pod: &PodView, written: PodSize, target: PodSize) {
    if target == written || pod.deleting.is_some() || !pod.running {
        return;
    }
    // A request that was taken back is made again when the kubelet has seen that.
    if devices_were_away(pass).is_some() && !pod.current {
        return;
    }
    if let Some(refused) = refused(pass, pod, target)
        && !pass.has_passed(refused.at, pass.settings.resize_pause)
    {
        return;
    }
    pass.actions.push(Action::ResizePod { name: pod.name.clone(), uid: pod.uid.clone(), size: target });
}

/// Takes back a request that the kubelet denied while devices were away, so that the next step makes it again: a kubelet looks at it
/// again when the pod's resources change, and not when devices come back.
fn take_back(pass: &mut Pass<'_>, pod: &PodView, written: PodSize, least: PodSize) {
    let Resize::Denied(denial) = &pod.resize else { return };
    // Only while the smaller size is the one in force: the guest may have been asked to take what the kubelet has granted meanwhile.
    let in_force = pod.current && pod.applied == Some(least);
    let is_due = denial.obstacle == Obstacle::DevicesAway && in_force && least != written;
    if !is_due || pod.deleting.is_some() || !pod.running {
        return;
    }
    let first = condition::since(&pass.before, SCALED).unwrap_or(pass.now);
    let away = pass.now.unix().saturating_sub(first.unix());
    let pause = (away / 4).min(DEVICES_PAUSE_MAX).max(pass.settings.devices_pause);
    if pass.has_passed(denial.since.unwrap_or(first), pause) {
        pass.actions.push(Action::ResizePod { name: pod.name.clone(), uid: pod.uid.clone(), size: least });
    }
}

/// Why the growth was last denied, if that was because devices are away.
fn devices_were_away<'a>(pass: &'a Pass<'_>) -> Option<&'a str> {
    let before = condition::find(&pass.before, SCALED)?;
    let denied = before.status == "False" && before.reason == Obstacle::DevicesAway.reason();
    denied.then(|| before.message.split_once(": ").map_or("", |(_, why)| why))
}

/// The refusal of this very size for this very pod.
fn refused<'a>(pass: &Pass<'a>, pod: &PodView, target: PodSize) -> Option<&'a ResizeRefused> {
    pass.observed.resize_refused.as_ref().filter(|last| last.pod == pod.uid && last.size == target)
}

/// Why the pod has not the size that the guest needs.
fn why(pass: &mut Pass<'_>, pod: &PodView, written: PodSize, target: PodSize) -> Short {
    let node = pod.node.clone();
    if !pass.settings.pod_size {
        let text = format!("pod {} was made with a size that this Kubernetes cannot change", pod.name);
        return Short::Denied("ResizeUnsupported", text);
    }
    if let Some(refused) = refused(pass, pod, target) {
        let why = format!("denied for node {node}: {}", refused.message);
        return match Obstacle::from_message(&refused.message) {
            obstacle @ Obstacle::TooLarge => denied(obstacle, &why),
            _ => Short::Denied("ResizeRefused", why),
        };
    }
    let (fails, begun) = match &pod.resize {
        Resize::Denied(denial) => {
            return denied(denial.obstacle, &format!("denied by node {node}: {}", denial.message));
        }
        Resize::InProgress { fails, since } => (fails.as_str(), *since),
        Resize::None => ("", None),
    };
    if let Some(why) = devices_were_away(pass).filter(|_| written != target || !pod.current) {
        return Short::Denied(Obstacle::DevicesAway.reason(), why.to_owned());
    }
    let waits = condition::find(&pass.before, SCALED)
        .filter(|before| {
            matches!(before.reason.as_str(), "InProgress" | "ResizeUnanswered" | "ResizeFailing")
        })
        .and_then(|_| condition::since(&pass.before, SCALED));
    // The condition may be false for longer, if the growth was denied before.
    let since = waits.unwrap_or(pass.now);
    let since = begun.map_or(since, |begun| since.max(begun));
    let name = &pod.name;
    match (pass.has_passed(since, pass.settings.resize_timeout), fails) {
        (true, "") => {
            Short::Denied("ResizeUnanswered", format!("node {node} has not resized pod {name} since {since}"))
        }
        (true, fails) => {
            let text =
                format!("node {node} fails to resize pod {name} since {since}, and repeats it: {fails}");
            Short::Denied("ResizeFailing", text)
        }
        (false, "") => Short::Waits(format!("waits for node {node} to resize pod {name}")),
        (false, fails) => {
            Short::Waits(format!("waits for node {node} to resize pod {name}; so far: {fails}"))
        }
    }
}

/// A denial, with its remedy.
fn denied(obstacle: Obstacle, why: &str) -> Short {
    let remedy = obstacle.remedy();
    let separator = if remedy.is_empty() { "" } else { "; " };
    Short::Denied(obstacle.reason(), format!("{why}{separator}{remedy}"))
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
