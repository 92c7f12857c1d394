//! One pass over a migration.

mod carried;
mod eviction;
mod over;
mod preparing;
mod waiting;

use neonvm_api::migration::{MigrationPhase, MigrationReason};
use neonvm_api::names::FINALIZER;
use neonvm_api::{VirtualMachine, VirtualMachineMigration, VirtualMachineMigrationStatus};
use neonvm_types::Timestamp;
use neonvm_types::runner_protocol::{MigrationRole, MigrationState, MigrationStatus};

use super::{MigrationAction, MigrationObserved, MigrationOutcome, is_over};
use neonvm_core_vm_lifecycle::Settings;
use neonvm_core_vm_lifecycle::condition::{self, AVAILABLE, DEGRADED, Finding};
use neonvm_core_vm_lifecycle::guest_location::Side;
use neonvm_core_vm_lifecycle::{Note, NoteReason};

/// Decides what to do for a migration. `migration` must be as the server has it (or had it: then `observed.fresh` is false).
#[must_use]
pub fn step(
    now: Timestamp,
    migration: &VirtualMachineMigration,
    observed: &MigrationObserved<'_>,
    settings: &Settings,
) -> MigrationOutcome {
    let before = migration.status.clone().unwrap_or_default();
    let status = before.clone();
    let (actions, events) = (Vec::new(), Vec::new());
    let mut pass =
        Pass { now, migration, observed, settings, before, status, actions, events, wake_at: None };
    pass.run();
    pass.finish()
}

struct Pass<'a> {
    now: Timestamp,
    migration: &'a VirtualMachineMigration,
    observed: &'a MigrationObserved<'a>,
    settings: &'a Settings,
    /// The status as the server has it.
    before: VirtualMachineMigrationStatus,
    /// The status as it should be.
    status: VirtualMachineMigrationStatus,
    actions: Vec<MigrationAction>,
    events: Vec<Note>,
    wake_at: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    fn run(&mut self) {
        let finalized = self.migration.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER);
        if self.is_deleting() && !finalized {
            return;
        }
        if is_over(self.migration) {
            over::tidy(self);
            return;
        }
        self.status.observed_generation = self.migration.metadata.generation;
        let Some(vm) = self.machine() else {
            if self.observed.fresh {
                over::fail(self, MigrationReason::MachineMissing, "there is no such machine");
            } else {
                self.refresh();
            }
            return;
        };
        if !finalized {
            self.actions.push(MigrationAction::Adopt);
            self.conditions();
            return;
        }
        let lock = vm.status.as_ref().and_then(|status| status.migration.as_ref());
        if lock.is_some_and(|lock| lock.uid == self.uid()) {
            self.locked(vm);
        } else if self.before.target_pod_name.is_empty() {
            waiting::step(self, vm);
        } else {
            over::let_go(self, vm);
        }
        self.conditions();
    }

    /// The VM names this migration.
    fn locked(&mut self, vm: &VirtualMachine) {
        let Some(status) = &vm.status else { return };
        let Some(lock) = &status.migration else { return };
        if self.before.target_pod_name.is_empty() {
            self.status.target_pod_name.clone_from(&lock.target_pod_name);
            self.status.source_pod_name.clone_from(&status.pod_name);
            self.status.source_pod_ip.clone_from(&status.pod_ip);
            self.status.source_node.clone_from(&status.node);
            self.status.start_time = Some(self.now);
            self.status.phase = Some(MigrationPhase::Pending);
            self.set_reason(MigrationReason::Preparing, "the target pod is being made");
            self.note(
                NoteReason::MigrationStarted,
                format!("from node {} to pod {}", status.node, lock.target_pod_name),
            );
            return;
        }
        if let Some(target) = &self.observed.target {
            if !target.ip.is_empty() {
                self.status.target_pod_ip.clone_from(&target.ip);
            }
            // One that is being deleted because it is made again goes nowhere.
            if !target.node.is_empty() && target.deleting.is_none() {
                self.status.target_node.clone_from(&target.node);
            }
        }
        if super::decided(&self.before.reason).is_some() {
            // The VM's own pass lets it go.
            over::sweep(self);
        } else if vm.metadata.deletion_timestamp.is_some() {
            self.decide(MigrationReason::MachineEnded, "the VM is being deleted");
        } else if self.before.phase == Some(MigrationPhase::Running) {
            carried::step(self, vm);
        } else {
            preparing::step(self);
        }
    }

    /// The VM that is meant: not another one that got its name later.
    fn machine(&self) -> Option<&'a VirtualMachine> {
        let owners = self.migration.metadata.owner_references.iter().flatten();
        let owner =
            owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "VirtualMachine");
        self.observed.vm.filter(|vm| owner.is_none_or(|owner| vm.metadata.uid.as_ref() == Some(&owner.uid)))
    }

    fn uid(&self) -> &'a str {
        self.migration.metadata.uid.as_deref().unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.migration.metadata.deletion_timestamp.is_some()
    }

    /// Whether a user has cancelled or deleted it.
    fn is_cancelled(&self) -> bool {
        self.migration.spec.cancel || self.is_deleting()
    }

    fn source(&self) -> Side<'a> {
        Side { pod: self.observed.source.as_ref(), runner: &self.observed.source_runner }
    }

    fn target(&self) -> Side<'a> {
        Side { pod: self.observed.target.as_ref(), runner: &self.observed.target_runner }
    }

    /// The source's last report about this migration.
    fn source_report(&self) -> Option<&'a MigrationStatus> {
        let reported = self.observed.source_runner.newest()?.migration.as_ref()?;
        (reported.id == self.uid() && reported.role == MigrationRole::Source).then_some(reported)
    }

    fn target_state(&self) -> Option<MigrationState> {
        self.target().reported(self.uid(), MigrationRole::Target)
    }

    fn set_reason(&mut self, reason: MigrationReason, message: impl Into<String>) {
        reason.as_str().clone_into(&mut self.status.reason);
        self.status.message = message.into();
    }

    /// The VM stays. It is unlocked before the status of this migration shows the end.
    fn decide(&mut self, reason: MigrationReason, message: impl Into<String>) {
        self.set_reason(reason, message);
        over::sweep(self);
    }

    fn note(&mut self, reason: NoteReason, message: impl Into<String>) {
        self.events.push(Note { reason, message: message.into() });
    }

    fn refresh(&mut self) {
        self.actions.push(MigrationAction::Refresh);
    }

    /// Whether so many seconds have passed; if not, looks again then.
    fn has_passed(&mut self, from: Timestamp, seconds: i64) -> bool {
        let at = from.unix().saturating_add(seconds);
        if self.now.unix() >= at {
            return true;
        }
        let at = Timestamp::from_unix(at);
        self.wake_at = self.wake_at.into_iter().chain(at).min();
        false
    }

    fn conditions(&mut self) {
        let generation = self.migration.metadata.generation;
        let (reason, message) = (self.status.reason.clone(), self.status.message.clone());
        let word = if reason.is_empty() { "Queued" } else { reason.as_str() };
        let moving = matches!(self.status.phase, Some(MigrationPhase::Running | MigrationPhase::Succeeded));
        // Its transition time is when the source was ordered to begin.
        let available =
            if moving { Finding::yes(word, message.clone()) } else { Finding::no(word, message.clone()) };
        condition::put(&mut self.status.conditions, AVAILABLE, &available, self.now, generation);
        let failed = super::decided(&reason).is_some_and(|reason| reason != MigrationReason::Cancelled);
        let over = matches!(self.status.phase, Some(MigrationPhase::Succeeded | MigrationPhase::Failed));
        let degraded = match &self.observed.failure {
            _ if failed => Finding::yes(word, message),
            Some(failure) if !over => Finding::yes(failure.reason.as_str(), failure.message.clone()),
            _ => Finding::no("Healthy", ""),
        };
        condition::put(&mut self.status.conditions, DEGRADED, &degraded, self.now, generation);
    }

    fn finish(mut self) -> MigrationOutcome {
        // A read from the API server comes first: the other decisions were based on outdated state.
        if self.actions.contains(&MigrationAction::Refresh) {
            self.actions = vec![MigrationAction::Refresh];
            self.status = self.before;
            self.events.clear();
        }
        MigrationOutcome {
            status: self.status,
            actions: self.actions,
            wake_at: self.wake_at,
            events: self.events,
        }
    }
}

/// `ADDRESS:PORT`, with brackets if the address needs them.
fn address(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
