//! The scheduler's notice that the VM is to be migrated: what it holds back, and when that ends.
//!
//! From the notice on nothing is requested for the VM and nothing is changed at it: no larger or smaller size from the
//! scheduler, no patch, no consent from the monitor. Only the size that it has is reported to the scheduler at the usual
//! interval, because its answers show whether the notice still holds. The notice ends with the first of these:
//!
//! - The scheduler answers a report without the notice.
//! - The VM's status showed a migration after the notice, and shows none any more.
//! - The VM runs on another node, or not at all: the agent then drops its state.
//!
//! A notice that is not followed by a migration for [`crate::agent::Settings::migration_deadline`] is shown as stuck.

use std::time::Duration;

use crate::agent::{
    note::{Cause, Note},
    state::{Announced, State},
};

impl State {
    /// Takes in whether an answer of the scheduler has the notice.
    pub(super) fn migration_announced(&mut self, now: Duration, notice: bool, note: &mut Note) {
        match (notice, self.announced) {
            (true, None) => {
                self.announced = Some(Announced { since: now, begun: self.vm.migrating });
                note.causes.push(Cause::MigrationAnnounced);
            }
            (false, Some(_)) => self.migration_over(note),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Takes in whether the VM's status shows a migration.
    pub(super) fn migration_seen(&mut self, note: &mut Note) {
        let Some(announced) = &mut self.announced else { return };
        if self.vm.migrating {
            announced.begun = true;
        } else if announced.begun {
            self.migration_over(note);
        }
    }

    fn migration_over(&mut self, note: &mut Note) {
        self.announced = None;
        note.causes.push(Cause::MigrationOver);
    }

    /// Since when the VM keeps its size because of a notice of the scheduler.
    #[must_use]
    pub fn announced_since(&self) -> Option<Duration> {
        self.announced.map(|announced| announced.since)
    }

    /// For how long a migration has been announced that does not begin, if that is too long.
    pub(super) fn announced_in_vain(&self, now: Duration) -> Option<Duration> {
        let announced = self.announced.filter(|announced| !announced.begun)?;
        let elapsed = now.saturating_sub(announced.since);
        (elapsed >= self.settings.migration_deadline).then_some(elapsed)
    }
}
