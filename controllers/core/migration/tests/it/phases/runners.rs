//! Runners of the abstract world: only which one runs a guest, and what they report.

use std::collections::BTreeMap;

use neonvm_core_vm_lifecycle::RunnerView;
use neonvm_types::runner_protocol::{
    Exit, MigrationProgress, MigrationRole, MigrationState as S, MigrationStatus, RunnerState, RunnerStatus,
};

use crate::machine::{at, runner};

/// The controller's connection to a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Contact {
    #[default]
    Well,
    NotAnyMore,
    NotYet,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Runner {
    pub(crate) alive: bool,
    /// A guest executes here.
    pub(crate) guest: bool,
    pub(crate) migration: Option<MigrationStatus>,
    /// The pod it sends to, or takes from.
    pub(crate) partner: String,
    /// Memory follows a guest that runs already.
    pub(crate) post_copy: bool,
    pub(crate) exit: Option<Exit>,
    pub(crate) contact: Contact,
    /// Memory requested and present, GiB.
    pub(crate) gib: u32,
    last: Option<Box<RunnerStatus>>,
}

pub(crate) type Runners = BTreeMap<String, Runner>;

impl Runner {
    pub(crate) fn booted(gib: u32) -> Self {
        Self { alive: true, guest: true, gib, ..Self::default() }
    }

    pub(crate) fn receiver(id: &str, source: &str, gib: u32) -> Self {
        let migration = status(id, MigrationRole::Target, S::Waiting);
        Self { alive: true, migration: Some(migration), partner: source.into(), gib, ..Self::default() }
    }

    pub(crate) fn state(&self) -> Option<S> {
        self.migration.as_ref().map(|migration| migration.state)
    }

    pub(crate) fn set(&mut self, state: S) {
        if let Some(migration) = &mut self.migration {
            migration.state = state;
            if state.is_over() {
                migration.progress = MigrationProgress {
                    qemu_status: "completed".into(),
                    downtime_ms: Some(7),
                    ..MigrationProgress::default()
                };
            }
        }
    }

    /// Whether its VM is being migrated away.
    pub(crate) fn is_leaving(&self) -> bool {
        self.migration
            .as_ref()
            .is_some_and(|reported| reported.role == MigrationRole::Source && !reported.state.is_over())
    }

    fn document(&self) -> Box<RunnerStatus> {
        let arrived = self.migration.as_ref().is_none_or(|migration| {
            migration.role == MigrationRole::Source || matches!(migration.state, S::Completed | S::PostCopy)
        });
        let state = match (self.alive, arrived) {
            (false, _) => RunnerState::Ended,
            (true, true) => RunnerState::Running,
            (true, false) => RunnerState::Preparing,
        };
        let (migration, exit) = (self.migration.clone(), self.exit.clone());
        Box::new(RunnerStatus { state, ready: self.guest, migration, exit, ..runner(500, self.gib) })
    }

    /// What the controller sees. A stream is whole as long as it lasts.
    pub(crate) fn view(&mut self) -> RunnerView {
        if self.contact == Contact::Well && self.alive {
            self.last = Some(self.document());
        }
        match (self.contact, &self.last) {
            (Contact::NotYet, _) | (_, None) => RunnerView::Unknown,
            (Contact::Well, Some(last)) => RunnerView::Seen(last.clone()),
            (Contact::NotAnyMore, last) => RunnerView::Unreachable { since: at(1), last: last.clone() },
        }
    }

    /// The controller was replaced: it has no state.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    pub(crate) fn die(&mut self, exit: Exit) {
        (self.alive, self.guest, self.exit) = (false, false, Some(exit));
    }
}

pub(crate) fn status(id: &str, role: MigrationRole, state: S) -> MigrationStatus {
    MigrationStatus { id: id.into(), role, state, ..MigrationStatus::default() }
}
