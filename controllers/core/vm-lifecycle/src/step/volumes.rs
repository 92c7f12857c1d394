//! Claims that migrations have copied: which of two has the content, and what is left to do about the other one.

use neonvm_api::virtual_machine::{ActiveMigration, MigrationSide};
use neonvm_types::runner_protocol::{MigrationRole, MigrationState};

use super::Pass;
use crate::claims::copy::{self, Rest};
use crate::guest_location;

/// A migration that ends without the switchover being on record: the VM's next pod gets the claims that were written last.
pub(super) fn settle(pass: &mut Pass<'_>) {
    let Some(lock) = pass.before.migration.clone() else { return };
    // The switchover has done it.
    if pass.status.migration.is_some() || pass.status.pod_name == lock.target_pod_name {
        return;
    }
    let (source, target) = pass.sides();
    let ordered = pass.observed.moving.mover.is_none_or(|mover| mover.ordered);
    let moved = match lock.content {
        Some(side) => side == MigrationSide::Target,
        None => guest_location::has_content_at_target(&lock.uid, ordered, source, target),
    };
    if moved {
        copy::take(&mut pass.status, &lock);
    }
}

/// The lock, with what is known for good of where copied volumes have their newest content: reports of runners may be lost later.
pub(super) fn with_content(pass: &Pass<'_>, lock: &ActiveMigration) -> ActiveMigration {
    let (source, target) = pass.sides();
    let left = source.reported(&lock.uid, MigrationRole::Source).is_some_and(MigrationState::has_left)
        || target.reported(&lock.uid, MigrationRole::Target).is_some_and(MigrationState::has_left);
    let has_copies = pass.before.copies("").next().is_some();
    let content = lock.content.or((left && has_copies).then_some(MigrationSide::Target));
    ActiveMigration { content, ..lock.clone() }
}

/// The same for a VM that is being deleted while it is migrated: as soon as the content is known to be at the target.
pub(super) fn settle_when_moved(pass: &mut Pass<'_>) {
    let lock = pass.status.migration.take();
    let before = pass.status.volumes.clone();
    settle(pass);
    if pass.status.volumes == before {
        pass.status.migration = lock;
    }
}

/// Tidies up after migrations. While one is under way nothing is due: it does not begin before.
pub(super) fn step(pass: &mut Pass<'_>) {
    if pass.before.migration.is_some() {
        return;
    }
    let quiet = !pass.observed.orphans.iter().any(crate::PodView::is_live);
    let left = rest(pass, quiet);
    if left.needs_fresh && !pass.observed.fresh {
        pass.refresh();
    } else {
        pass.actions.extend(left.actions);
    }
}

/// What is left to do; the status is brought up to it.
pub(super) fn rest(pass: &mut Pass<'_>, quiet: bool) -> Rest {
    let meta = &pass.vm.metadata;
    let vm = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
    copy::rest(vm, &mut pass.status, &pass.observed.claims, quiet)
}
