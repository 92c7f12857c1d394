//! One pass over a VM.

mod address;
mod alive;
mod deleting;
mod disks;
mod ended;
mod freeze;
mod health;
mod limits;
mod moving;
mod pause;
mod pending;
mod pod_name;
mod power;
mod room;
mod size;
mod stop;
mod suspend;
mod volumes;
mod workload;

use neonvm_api::names::{FINALIZER, tls_secret_name};
use neonvm_api::virtual_machine::Phase;
use neonvm_api::{VirtualMachine, VirtualMachineStatus};
use neonvm_types::Timestamp;

use crate::condition::{self, Finding, ROOT_DISK_COPIED};
use crate::guest_location::Side;
use crate::observed::{Observed, PodView};
use crate::outcome::{Action, Note, NoteReason, Outcome};
use crate::settings::Settings;
use crate::tls::{self, TlsOutcome};

/// Decides what to do for a VM. `vm` must be as the server has it (or had it: then `observed.fresh` is false).
#[must_use]
pub fn step(now: Timestamp, vm: &VirtualMachine, observed: &Observed, settings: &Settings) -> Outcome {
    let mut pass = Pass::new(now, vm, observed, settings);
    let finalized = vm.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER);
    if vm.metadata.deletion_timestamp.is_some() {
        if finalized {
            deleting::step(&mut pass);
        }
    } else if !finalized || vm.spec.cpu_scaling_mode.is_none() {
        let missing = vm.spec.cpu_scaling_mode.is_none();
        let cpu_scaling_mode = missing.then_some(settings.cpu_scaling_mode);
        pass.actions.push(Action::Adopt { cpu_scaling_mode });
        health::failure_only(&mut pass);
    } else {
        living(&mut pass);
    }
    pass.finish()
}

/// Name of the pod that belongs to the VM by its status.
#[must_use]
pub fn owned_pod(vm: &VirtualMachine) -> Option<&str> {
    let name = vm.status.as_ref()?.pod_name.as_str();
    (!name.is_empty()).then_some(name)
}

/// Whether the runner in a pod should be listened to.
#[must_use]
pub fn deserves_link(pod: &PodView) -> bool {
    pod.is_live() && !pod.ip.is_empty() && pod.running
}

fn living(pass: &mut Pass<'_>) {
    let generation = pass.vm.metadata.generation;
    pass.status.observed_generation = generation;
    let name = pass.name().to_owned();
    let keys = pass.vm.spec.enable_ssh.then(|| crate::pod::ssh_secret(pass.vm).ok()).flatten();
    pass.status.ssh_secret_name = keys.unwrap_or_default();
    let tls = certificate(pass, &name);
    address::step(pass);
    if !stop::step(pass) {
        in_phase(pass, &tls);
    }
    if !pass.status.phase.is_some_and(Phase::is_alive) {
        // A VM that ended belongs to no migration.
        pass.status.migration = None;
        limits::forget(pass);
    }
    volumes::settle(pass);
    root_disk(pass);
    power::pending_change(pass);
    delete_orphans(pass);
    volumes::step(pass);
    let again = crate::crash_loop::forget_if_stable(&mut pass.status, pass.now, pass.settings);
    pass.wake(again);
    let again = crate::unstable::forget_if_still(&mut pass.status, pass.now);
    pass.wake(again);
    health::step(pass, &tls);
}

fn in_phase(pass: &mut Pass<'_>, tls: &TlsOutcome) {
    match pass.before.phase {
        None => {
            pass.status.phase = Some(Phase::Pending);
            pending::step(pass, tls);
        }
        Some(Phase::Pending) => pending::step(pass, tls),
        Some(Phase::Running | Phase::Scaling | Phase::PreMigrating | Phase::Migrating | Phase::Suspended) => {
            running(pass);
        }
        Some(Phase::Succeeded | Phase::Failed) => ended::step(pass),
    }
}

fn running(pass: &mut Pass<'_>) {
    if let Some(lock) = pass.before.migration.clone() {
        moving::step(pass, &lock);
        return;
    }
    if pass.before.phase != Some(Phase::Scaling) {
        pass.status.phase = Some(Phase::Running);
    }
    alive::step(pass);
}

/// Sets the condition for a root disk that is copied into the pod.
fn root_disk(pass: &mut Pass<'_>) {
    let copied = pass.observed.pod.as_ref().and_then(|pod| pod.copied);
    let message = "the installation runs without image volumes: each pod has a copy of the root disk in its own directory";
    match copied {
        Some(true) => pass.set(ROOT_DISK_COPIED, &Finding::yes("Copied", message)),
        Some(false) => pass.set(ROOT_DISK_COPIED, &Finding::no("Copying", message)),
        None => condition::remove(&mut pass.status, ROOT_DISK_COPIED),
    }
}

fn certificate(pass: &mut Pass<'_>, name: &str) -> TlsOutcome {
    let Some(wanted) = &pass.vm.spec.tls else {
        pass.status.tls_secret_name = String::new();
        return TlsOutcome { usable: true, ..TlsOutcome::default() };
    };
    pass.status.tls_secret_name = tls_secret_name(name);
    let outcome = tls::step(pass.now, wanted, &pass.observed.tls, pass.settings);
    pass.wake(outcome.wake_at);
    pass.actions.extend(outcome.action.clone().map(Action::Tls));
    outcome
}

/// Deletes pods of this machine that its status does not name, except the target of its migration. The status must be fresh
/// from the API server.
fn delete_orphans(pass: &mut Pass<'_>) {
    if pass.status.migration.is_some() != pass.before.migration.is_some() {
        // First the status must record which pod owns the VM.
        return;
    }
    for pod in pass.observed.orphans.iter().filter(|pod| pod.deleting.is_none()) {
        if pass.observed.fresh {
            pass.delete_pod(&pod.name, Some(&pod.uid));
        } else {
            pass.refresh();
        }
    }
}

pub(crate) struct Pass<'a> {
    pub(crate) now: Timestamp,
    pub(crate) vm: &'a VirtualMachine,
    pub(crate) observed: &'a Observed,
    pub(crate) settings: &'a Settings,
    /// The status as the server has it.
    pub(crate) before: VirtualMachineStatus,
    /// The status as it should be.
    pub(crate) status: VirtualMachineStatus,
    pub(crate) actions: Vec<Action>,
    pub(crate) events: Vec<Note>,
    pub(crate) wake_at: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    fn new(now: Timestamp, vm: &'a VirtualMachine, observed: &'a Observed, settings: &'a Settings) -> Self {
        let before = vm.status.clone().unwrap_or_default();
        let status = before.clone();
        let (actions, events) = (Vec::new(), Vec::new());
        Self { now, vm, observed, settings, before, status, actions, events, wake_at: None }
    }

    pub(crate) fn name(&self) -> &str {
        self.vm.metadata.name.as_deref().unwrap_or_default()
    }

    /// Both sides of the VM's migration.
    pub(crate) fn sides(&self) -> (Side<'a>, Side<'a>) {
        let seen = self.observed;
        let target = Side { pod: seen.moving.target.as_ref(), runner: &seen.moving.target_runner };
        (Side { pod: seen.pod.as_ref(), runner: &seen.runner }, target)
    }

    pub(crate) fn wake(&mut self, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Whether it takes part in a migration.
    pub(crate) fn is_moving(&self) -> bool {
        self.before.migration.is_some() || self.status.migration.is_some()
    }

    /// Whether a request is to be sent to the runner: it was not sent yet, or so long ago that it had no effect.
    pub(crate) fn is_due(&mut self, sent: Option<Timestamp>) -> bool {
        sent.is_none_or(|sent| self.has_passed(sent, self.settings.request_lifetime))
    }

    /// Wakes `seconds` after `from`, if that is yet to come; whether it has come.
    pub(crate) fn has_passed(&mut self, from: Timestamp, seconds: i64) -> bool {
        let at = from.unix().saturating_add(seconds);
        if self.now.unix() < at {
            self.wake(Timestamp::from_unix(at));
            return false;
        }
        true
    }

    pub(crate) fn set(&mut self, kind: &str, finding: &Finding<'_>) {
        condition::set(&mut self.status, kind, finding, self.now, self.vm.metadata.generation);
    }

    pub(crate) fn note(&mut self, reason: NoteReason, message: impl Into<String>) {
        self.events.push(Note { reason, message: message.into() });
    }

    /// Requests a read from the API server.
    pub(crate) fn refresh(&mut self) {
        if !self.actions.contains(&Action::Refresh) {
            self.actions.push(Action::Refresh);
        }
    }

    pub(crate) fn delete_pod(&mut self, name: &str, uid: Option<&str>) {
        let action = Action::DeletePod { name: name.to_owned(), uid: uid.map(str::to_owned) };
        if !self.actions.contains(&action) {
            self.actions.push(action);
        }
    }

    /// Whether a pod may get the VM: none of its pods can be running.
    pub(crate) fn another_lives(&self) -> Option<&'a str> {
        self.observed.orphans.iter().find(|pod| pod.is_live()).map(|pod| pod.name.as_str())
    }

    fn finish(mut self) -> Outcome {
        // A read from the API server comes first: the other decisions were based on outdated state, except the ones
        // that the read is for.
        if self.actions.contains(&Action::Refresh) {
            self.actions = vec![Action::Refresh];
            self.status = self.before;
            self.events.clear();
        }
        Outcome { status: self.status, actions: self.actions, wake_at: self.wake_at, events: self.events }
    }
}
