//! Where the guest of a VM under migration is, derived from the observed state of its two runners.
//!
//! A runner reports its own side. States that are final count even if the last report is old. A pod that ended, or that the
//! API server no longer has, runs nothing.

use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationRole, MigrationState};

use crate::observed::{PodView, RunnerView};

/// Where the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestLocation {
    /// At the source, or it ended there.
    Source,
    /// At one of the two, or on its way; later reports decide.
    Doubt,
    /// At the target, or it ended there.
    Target,
    /// At neither.
    Lost,
}

/// The observed state of one of the two sides.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its pod, if there is one.
    pub pod: Option<&'a PodView>,
    pub runner: &'a RunnerView,
}

impl<'a> Side<'a> {
    /// Whether nothing of it can run.
    pub fn is_gone(&self) -> bool {
        self.pod.is_none_or(|pod| !pod.is_live())
    }

    /// Whether the connection to its runner is up.
    pub fn is_reachable(&self) -> bool {
        matches!(self.runner, RunnerView::Seen(_))
    }

    /// How it ended.
    pub fn exit(&self) -> Option<&'a Exit> {
        self.pod.and_then(|pod| pod.ended.as_ref()).or_else(|| self.runner.exit())
    }

    /// The state of this migration, in this role, in the runner's last report.
    pub fn reported(&self, id: &str, role: MigrationRole) -> Option<MigrationState> {
        let reported = self.runner.newest()?.migration.as_ref()?;
        (reported.id == id && reported.role == role).then_some(reported.state)
    }

    fn ended_by(&self, reason: ExitReason) -> bool {
        self.exit().is_some_and(|exit| exit.reason == reason)
    }

    /// Whether it ended in a way in which only a guest ends.
    fn ended_as_guest(&self) -> bool {
        use ExitReason as E;
        self.exit().is_some_and(|exit| match exit.reason {
            E::WorkloadEnded | E::PoweredOff | E::Rebooted | E::GuestPanic => true,
            // A runner that was requested to stop, or whose QEMU fails, may never have had a guest.
            E::Stopped
            | E::StoppedByForce
            | E::QemuEnded
            | E::AcceleratorFailure
            | E::StartFailure
            | E::Migrated
            | E::MigrationFailed
            | E::RunnerKilled
            | E::Preempted
            | E::Evicted
            | E::NodeLost
            | E::Unknown => false,
        })
    }
}

/// Where the guest is. `ordered`: the source may have received the order to begin.
pub fn locate(id: &str, ordered: bool, source: Side<'_>, target: Side<'_>) -> GuestLocation {
    use MigrationState as S;
    let at_target = target.reported(id, MigrationRole::Target);
    let at_source = source.reported(id, MigrationRole::Source);
    // A target's guest runs only after a command of the source or a verdict; after either the source's guest never runs.
    if at_target == Some(S::Completed)
        || at_source == Some(S::Completed)
        || source.ended_by(ExitReason::Migrated)
        || (ordered && target.ended_as_guest())
    {
        return GuestLocation::Target;
    }
    if source.is_gone() {
        return without_source(ordered, (at_source, at_target), source, target);
    }
    if !source.is_reachable() {
        return if ordered { GuestLocation::Doubt } else { GuestLocation::Source };
    }
    match at_source {
        Some(S::PostCopy | S::PostCopyPaused) if target.is_gone() => GuestLocation::Lost,
        // It ran at the target, and its source has only an older state.
        Some(S::HandingOver) if target.is_gone() && at_target == Some(S::PostCopy) => GuestLocation::Lost,
        Some(S::PostCopy | S::PostCopyPaused | S::HandingOver | S::Completed | S::Unknown) => {
            GuestLocation::Doubt
        }
        Some(
            S::Waiting
            | S::Negotiating
            | S::Mirroring
            | S::Copying
            | S::Switching
            | S::Cancelling
            | S::Receiving
            | S::Arrived
            | S::Cancelled
            | S::Failed,
        )
        | None => GuestLocation::Source,
    }
}

/// The source runs nothing any more: all depends on whether the target has everything.
fn without_source(
    ordered: bool,
    (at_source, at_target): (Option<MigrationState>, Option<MigrationState>),
    source: Side<'_>,
    target: Side<'_>,
) -> GuestLocation {
    use MigrationState as S;
    // The guest continued at the source after the attempt and has written since: the target's state is old.
    if matches!(at_source, Some(S::Cancelling | S::Cancelled | S::Failed)) {
        return GuestLocation::Lost;
    }
    // A guest that ended by itself ran here to its end.
    if !ordered || target.is_gone() || source.ended_as_guest() {
        return GuestLocation::Lost;
    }
    if !target.is_reachable() {
        return GuestLocation::Doubt;
    }
    match at_target {
        // It waits for the verdict.
        Some(S::Arrived | S::Unknown) => GuestLocation::Doubt,
        // The guest may be on its way, or complete at the target and not reported yet. If not, the target fails by itself.
        Some(S::Receiving) => GuestLocation::Doubt,
        // If the source sends, the target receives: its last report is old.
        Some(S::Waiting)
            if matches!(at_source, Some(S::Mirroring | S::Copying | S::Switching | S::HandingOver)) =>
        {
            GuestLocation::Doubt
        }
        _ => GuestLocation::Lost,
    }
}

/// Whether the disks that a migration copies have their newest content at the target, when the migration ends without a side that has
/// the guest. A source hands over when all that its guest has written is there, and until then continues by itself when its target fails.
pub fn has_content_at_target(id: &str, ordered: bool, source: Side<'_>, target: Side<'_>) -> bool {
    use MigrationState as S;
    match locate(id, ordered, source, target) {
        GuestLocation::Target => return true,
        GuestLocation::Source => return false,
        GuestLocation::Doubt | GuestLocation::Lost => {}
    }
    let at_source = source.reported(id, MigrationRole::Source);
    let at_target = target.reported(id, MigrationRole::Target);
    // The guest continued at the source, or ended there.
    if !ordered
        || source.ended_as_guest()
        || matches!(at_source, Some(S::Cancelling | S::Cancelled | S::Failed))
    {
        return false;
    }
    matches!(at_source, Some(S::PostCopy | S::PostCopyPaused | S::HandingOver | S::Completed))
        || matches!(at_target, Some(S::PostCopy | S::Completed))
}

/// Which side must get the verdict that it owns the guest: `true` the source, `false` the target.
pub fn verdict(id: &str, source: Side<'_>, target: Side<'_>) -> Option<bool> {
    use MigrationState as S;
    let at_source = source.reported(id, MigrationRole::Source);
    let at_target = target.reported(id, MigrationRole::Target);
    if source.is_gone() {
        if matches!(at_source, Some(S::Cancelling | S::Cancelled | S::Failed)) {
            return None;
        }
        return (target.is_reachable() && !target.is_gone() && at_target == Some(S::Arrived))
            .then_some(false);
    }
    let ran = matches!(at_target, Some(S::PostCopy | S::Completed));
    (source.is_reachable() && at_source == Some(S::HandingOver) && target.is_gone() && !ran).then_some(true)
}

#[cfg(test)]
mod tests {
    use neonvm_types::Timestamp;
    use neonvm_types::runner_protocol::{MigrationStatus, RunnerStatus};

    use super::*;

    const STATES: [MigrationState; 15] = {
        use MigrationState as S;
        [
            S::Waiting,
            S::Negotiating,
            S::Mirroring,
            S::Copying,
            S::Switching,
            S::PostCopy,
            S::PostCopyPaused,
            S::HandingOver,
            S::Cancelling,
            S::Receiving,
            S::Arrived,
            S::Completed,
            S::Cancelled,
            S::Failed,
            S::Unknown,
        ]
    };

    fn view(role: MigrationRole, state: MigrationState, connected: bool) -> RunnerView {
        let migration = MigrationStatus { id: "m".into(), role, state, ..MigrationStatus::default() };
        let status = Box::new(RunnerStatus { migration: Some(migration), ..RunnerStatus::default() });
        if connected {
            return RunnerView::Seen(status);
        }
        RunnerView::Unreachable { since: Timestamp::from_unix(1).unwrap(), last: Some(status) }
    }

    /// Where a source has not let go the VM is never given to the target, whatever the target looks like; and the
    /// other way round.
    #[test]
    fn no_side_gets_what_the_other_still_has() {
        let live = PodView { running: true, ..PodView::default() };
        let dead = PodView { ended: Some(Exit::new(ExitReason::RunnerKilled, "")), ..PodView::default() };
        let pods = [Some(&live), Some(&dead), None];
        for (s, t) in STATES.iter().flat_map(|s| STATES.iter().map(move |t| (*s, *t))) {
            for (connected_s, connected_t) in [(true, true), (true, false), (false, true), (false, false)] {
                let (at_source, at_target) = (
                    view(MigrationRole::Source, s, connected_s),
                    view(MigrationRole::Target, t, connected_t),
                );
                for (source_pod, target_pod) in pods.iter().flat_map(|s| pods.iter().map(move |t| (*s, *t))) {
                    let source = Side { pod: source_pod, runner: &at_source };
                    let target = Side { pod: target_pod, runner: &at_target };
                    let location = locate("m", true, source, target);
                    let done = s == MigrationState::Completed || t == MigrationState::Completed;
                    assert_eq!(location == GuestLocation::Target, done, "{s:?} {t:?}");
                    if !source.is_gone() && !target.is_gone() {
                        assert_ne!(location, GuestLocation::Lost, "{s:?} {t:?}: both live");
                    }
                    if s.has_left() && !source.is_gone() {
                        assert_ne!(location, GuestLocation::Source, "{s:?} {t:?}");
                    }
                    match verdict("m", source, target) {
                        Some(true) => assert!(target.is_gone() && !source.is_gone() && !done),
                        Some(false) => assert!(source.is_gone() && !target.is_gone()),
                        None => {}
                    }
                }
            }
        }
    }

    /// A guest that ran at the target, as reported, before all its memory was there, and is gone with the target: the source,
    /// which has sent everything and got no response, must not continue with the older state.
    #[test]
    fn a_guest_that_ran_at_a_target_is_not_brought_back_by_its_source() {
        let live = PodView { running: true, ..PodView::default() };
        let dead = PodView { ended: Some(Exit::new(ExitReason::RunnerKilled, "")), ..PodView::default() };
        let at_source = view(MigrationRole::Source, MigrationState::HandingOver, true);
        for (state, lost) in [(MigrationState::PostCopy, true), (MigrationState::Arrived, false)] {
            for pod in [Some(&dead), None] {
                let at_target = view(MigrationRole::Target, state, false);
                let source = Side { pod: Some(&live), runner: &at_source };
                let target = Side { pod, runner: &at_target };
                let expected =
                    if lost { (GuestLocation::Lost, None) } else { (GuestLocation::Doubt, Some(true)) };
                assert_eq!((locate("m", true, source, target), verdict("m", source, target)), expected);
            }
        }
    }

    /// A source that dies when all was sent, before the target has reported: the VM lives if all has arrived, and the target
    /// fails by itself if not.
    #[test]
    fn what_is_on_its_way_is_waited_for() {
        use MigrationState as S;
        let live = PodView { running: true, ..PodView::default() };
        for (at_source, at_target, expected) in [
            (S::Switching, S::Receiving, GuestLocation::Doubt),
            (S::Switching, S::Waiting, GuestLocation::Doubt),
            (S::HandingOver, S::Receiving, GuestLocation::Doubt),
            (S::Copying, S::Receiving, GuestLocation::Doubt),
            (S::Negotiating, S::Waiting, GuestLocation::Lost),
            (S::Switching, S::Failed, GuestLocation::Lost),
            (S::Cancelling, S::Receiving, GuestLocation::Lost),
        ] {
            let (source, target) =
                (view(MigrationRole::Source, at_source, false), view(MigrationRole::Target, at_target, true));
            let source = Side { pod: None, runner: &source };
            let target = Side { pod: Some(&live), runner: &target };
            assert_eq!(locate("m", true, source, target), expected, "{at_source:?} {at_target:?}");
            assert_eq!(verdict("m", source, target), None, "{at_source:?} {at_target:?}");
        }
    }

    /// A source that continued after a failed switchover, as reported, and has died since: its target has an older state.
    #[test]
    fn a_guest_that_went_on_at_its_source_is_not_brought_back_by_its_target() {
        let live = PodView { running: true, ..PodView::default() };
        let dead = PodView { ended: Some(Exit::new(ExitReason::RunnerKilled, "")), ..PodView::default() };
        let at_target = view(MigrationRole::Target, MigrationState::Arrived, true);
        for (state, lost) in [
            (MigrationState::Cancelling, true),
            (MigrationState::Cancelled, true),
            (MigrationState::Failed, true),
            (MigrationState::Switching, false),
            (MigrationState::HandingOver, false),
        ] {
            let at_source = view(MigrationRole::Source, state, false);
            for pod in [Some(&dead), None] {
                let source = Side { pod, runner: &at_source };
                let target = Side { pod: Some(&live), runner: &at_target };
                let expected =
                    if lost { (GuestLocation::Lost, None) } else { (GuestLocation::Doubt, Some(false)) };
                assert_eq!((locate("m", true, source, target), verdict("m", source, target)), expected);
            }
        }
    }
}
