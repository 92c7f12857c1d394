//! Runners: the real cores of both ends of a migration, and their reports.

use std::rc::Rc;

use neonvm_core_migration::{Phase, Source, Target};
use neonvm_core_vm_lifecycle::RunnerView;
use neonvm_types::runner_protocol::{
    CpuStatus, Exit, MachineInfo, MemoryStatus, MigrationRole, MigrationState as State, MigrationStatus,
    RunnerState, RunnerStatus,
};
use neonvm_types::{Resources, Timestamp};

use super::super::model::Id;
use crate::queue::Time;

#[derive(Debug)]
pub(super) enum Side {
    Source(Box<Source>),
    Target(Box<Target>),
}

/// The controller's connection to a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Contact {
    #[default]
    NotYet,
    Well,
    NotAnyMore(Timestamp),
}

/// QEMU, as far as a migration is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Qemu {
    pub(super) phase: Phase,
    /// Counts the migrations that it got the order for.
    pub(super) epoch: u32,
    pub(super) pass: u64,
    pub(super) took: Time,
    pub(super) post_copy: bool,
    /// Target: some memory is with the source only.
    pub(super) missing: bool,
}

/// A runner, its QEMU and, if it has one, the guest.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(super) alive: bool,
    pub(super) guest: bool,
    pub(super) side: Option<Side>,
    /// Counts its migrations and their cancellations: responses to earlier orders are dropped.
    pub(super) tag: u64,
    pub(super) partner: Option<Id>,
    pub(super) connected: bool,
    pub(super) open: bool,
    pub(super) qemu: Qemu,
    /// What memory and disks hold here: how often the guest had written.
    pub(super) memory: u64,
    pub(super) disk: u64,
    /// When the last event of QEMU, and the last order, arrive: nothing overtakes within a connection.
    pub(super) words_at: Time,
    pub(super) orders_at: Time,
    /// Source: until when the link to the target is cut.
    pub(super) cut_until: Time,
    pub(super) wake: Option<Time>,
    pub(super) size: Resources,
    pub(super) exit: Option<Exit>,
    sequence: u64,
    reported: (Option<(State, String)>, Resources),
    pub(super) reporting: bool,
    /// The last report that reached the controller.
    pub(super) received: Option<Rc<RunnerStatus>>,
    pub(super) contact: Contact,
    pub(super) silent_until: Time,
    pub(super) stopping: bool,
}

impl Runner {
    fn new(size: Resources) -> Self {
        Self {
            alive: true,
            guest: false,
            side: None,
            tag: 0,
            partner: None,
            connected: false,
            open: false,
            qemu: Qemu::default(),
            memory: 0,
            disk: 0,
            words_at: 0,
            orders_at: 0,
            cut_until: 0,
            wake: None,
            size,
            exit: None,
            sequence: 1,
            reported: (None, size),
            reporting: false,
            received: None,
            contact: Contact::NotYet,
            silent_until: 0,
            stopping: false,
        }
    }

    /// A QEMU with a booted guest.
    pub(super) fn booted(size: Resources, written: u64) -> Self {
        let mut runner = Self { guest: true, memory: written, disk: written, ..Self::new(size) };
        runner.receive();
        runner
    }

    pub(super) fn waiting(size: Resources, target: Target) -> Self {
        Self { side: Some(Side::Target(Box::new(target))), open: true, ..Self::new(size) }
    }

    pub(super) fn status(&self) -> Option<&MigrationStatus> {
        match self.side.as_ref()? {
            Side::Source(core) => Some(core.status()),
            Side::Target(core) => Some(core.status()),
        }
    }

    pub(super) fn state(&self) -> Option<State> {
        self.status().map(|status| status.state)
    }

    pub(super) fn is_source(&self) -> bool {
        matches!(self.side, Some(Side::Source(_)))
    }

    /// Whether its VM is being migrated away.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_source() && self.state().is_some_and(|state| !state.is_over())
    }

    /// Target: whether the guest does not run here yet.
    pub(super) fn prepares(&self) -> bool {
        match &self.side {
            Some(Side::Target(core)) => !matches!(core.status().state, State::Completed | State::PostCopy),
            _ => false,
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.state().is_none_or(State::is_over) && !self.open && !self.stopping
    }

    /// Whether anything has changed since the last report.
    pub(super) fn has_news(&mut self) -> bool {
        let now = (self.status().map(|status| (status.state, status.reason.clone())), self.size);
        let news = now != self.reported;
        if news {
            self.reported = now;
            self.sequence += 1;
        }
        news
    }

    fn document(&self) -> RunnerStatus {
        let state = match (&self.exit, self.prepares()) {
            (Some(_), _) => RunnerState::Ended,
            (None, true) => RunnerState::Preparing,
            (None, false) if self.stopping => RunnerState::Stopping,
            (None, false) => RunnerState::Running,
        };
        let online = self.size.vcpus.cpus_rounded_up();
        RunnerStatus {
            sequence: self.sequence,
            state,
            ready: state == RunnerState::Running,
            machine: Some(MachineInfo {
                accelerator: "kvm".to_owned(),
                machine_type: "pc-q35-7.2".to_owned(),
                ..MachineInfo::default()
            }),
            cpu: CpuStatus { asked: self.size.vcpus, applied: self.size.vcpus, online },
            memory: MemoryStatus { asked: self.size.mem, actual: self.size.mem },
            migration: self.status().cloned(),
            exit: self.exit.clone(),
            ..RunnerStatus::default()
        }
    }

    /// The controller receives a report.
    pub(super) fn receive(&mut self) {
        self.contact = Contact::Well;
        self.received = Some(Rc::new(self.document()));
    }

    /// The controller receives the size, but no news of a migration.
    pub(super) fn receive_size(&mut self) {
        let (before, now) = (self.received.take(), self.document());
        self.received = before
            .map(|before| Rc::new(RunnerStatus { cpu: now.cpu, memory: now.memory, ..(*before).clone() }));
    }

    /// What the controller observes. The last report of a runner that is gone stays.
    pub(super) fn view(&self) -> RunnerView {
        let last = || self.received.as_ref().map(|report| Box::new((**report).clone()));
        match (self.contact, &self.received) {
            (Contact::NotYet, _) | (Contact::Well, None) => RunnerView::Unknown,
            (Contact::Well, Some(report)) => RunnerView::Seen(Box::new((**report).clone())),
            (Contact::NotAnyMore(since), _) => RunnerView::Unreachable { since, last: last() },
        }
    }

    /// Whether the controller has the report that the guest runs here: at a target, or again at a source.
    pub(super) fn is_reported_running(&self) -> bool {
        let migration = self.received.as_ref().and_then(|report| report.migration.as_ref());
        migration.is_some_and(|migration| match migration.role {
            MigrationRole::Target => matches!(migration.state, State::Completed | State::PostCopy),
            MigrationRole::Source => {
                matches!(migration.state, State::Cancelling | State::Cancelled | State::Failed)
            }
        })
    }

    /// Its state in the migration of this name.
    pub(super) fn is_in(&self, id: &str, role: MigrationRole) -> bool {
        self.status().is_some_and(|status| status.id == id && status.role == role)
    }
}

pub(super) fn words(role: MigrationRole, state: State) -> &'static str {
    match (role, state) {
        (_, State::Waiting) => "its target waits for it",
        (_, State::Negotiating) => "its runners agree on how to move it",
        (_, State::Mirroring) => "its disks are copied",
        (_, State::Copying) => "its memory is copied",
        (_, State::Switching) => "it stands still, the rest is sent",
        (MigrationRole::Source, State::PostCopy) => "it has left its node, its memory follows",
        (_, State::PostCopy) => "it runs on the other node, its memory follows",
        (_, State::PostCopyPaused) => "the connection is lost while its memory follows",
        (_, State::HandingOver) => "its source gives it up, and orders the target to run it",
        (_, State::Cancelling) => "its move is being cancelled",
        (_, State::Receiving) => "its target receives it",
        (_, State::Arrived) => {
            "all of it has arrived, its target waits for the order of the source to run it"
        }
        (MigrationRole::Target, State::Completed) => "it runs on the other node",
        (_, State::Completed) => "its source knows that it runs on the other node",
        (_, State::Cancelled) => "its move was cancelled",
        (MigrationRole::Source, State::Failed) => "its move has failed, it stays",
        (_, State::Failed) => "its target is of no use any more",
        (_, State::Unknown) => "its move is in an unknown state",
    }
}
