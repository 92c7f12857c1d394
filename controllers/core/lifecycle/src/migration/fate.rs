//! Where the guest of a machine under migration is, by what is seen of its two runners.
//!
//! A runner tells its own side; what it told last holds for the things that are never taken back. A pod that ended, or that
//! the server no longer has, runs nothing.

use neonvm_types::runner_protocol::{Exit, ExitReason, MigrationRole, MigrationState};

use crate::observed::{PodView, RunnerView};

/// Where the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// At the source, or it ended there.
    Source,
    /// At one of the two, or on its way; it will be known.
    Doubt,
    /// At the target, or it ended there.
    Target,
    /// Nowhere any more.
    Lost,
}

/// One of the two sides, as it is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub(crate) pod: Option<&'a PodView>,
    pub(crate) runner: &'a RunnerView,
}

impl<'a> Side<'a> {
    /// Whether nothing of it can run.
    pub(crate) fn is_gone(&self) -> bool {
        self.pod.is_none_or(|pod| !pod.is_live())
    }

    /// Whether its runner answers.
    pub(crate) fn is_heard(&self) -> bool {
        matches!(self.runner, RunnerView::Seen(_))
    }

    /// How it ended.
    pub(crate) fn exit(&self) -> Option<&'a Exit> {
        self.pod.and_then(|pod| pod.ended.as_ref()).or_else(|| self.runner.exit())
    }

    /// What its runner told last of this migration, in this role.
    pub(crate) fn told(&self, id: &str, role: MigrationRole) -> Option<MigrationState> {
        let told = self.runner.newest()?.migration.as_ref()?;
        (told.id == id && told.role == role).then_some(told.state)
    }

    fn ended_by(&self, reason: ExitReason) -> bool {
        self.exit().is_some_and(|exit| exit.reason == reason)
    }

    /// Whether it ended in a way in which only a guest ends.
    fn ended_as_guest(&self) -> bool {
        use ExitReason as E;
        self.exit().is_some_and(|exit| match exit.reason {
            E::WorkloadEnded | E::PoweredOff | E::Rebooted | E::GuestPanic => true,
            // A runner that is asked to stop, or whose QEMU fails, may never have had a guest.
            E::Stopped
            | E::StoppedByForce
            | E::QemuEnded
            | E::AcceleratorFailure
            | E::StartFailure
            | E::Migrated
            | E::MigrationFailed
            | E::RunnerKilled
            | E::Unknown => false,
        })
    }
}

/// Where the guest is. `ordered`: the source may have been told to begin.
pub(crate) fn fate(id: &str, ordered: bool, source: Side<'_>, target: Side<'_>) -> Fate {
    use MigrationState as S;
    let at_target = target.told(id, MigrationRole::Target);
    let at_source = source.told(id, MigrationRole::Source);
    // Only the word of the source, or a verdict, lets a target's guest run; after either the source's never does.
    if at_target == Some(S::Completed)
        || at_source == Some(S::Completed)
        || source.ended_by(ExitReason::Migrated)
        || (ordered && target.ended_as_guest())
    {
        return Fate::Target;
    }
    if source.is_gone() {
        return without_source(ordered, (at_source, at_target), source, target);
    }
    if !source.is_heard() {
        return if ordered { Fate::Doubt } else { Fate::Source };
    }
    match at_source {
        Some(S::PostCopy | S::PostCopyPaused) if target.is_gone() => Fate::Lost,
        // It ran there, and its source has only what it was before.
        Some(S::HandingOver) if target.is_gone() && at_target == Some(S::PostCopy) => Fate::Lost,
        Some(S::PostCopy | S::PostCopyPaused | S::HandingOver | S::Completed | S::Unknown) => Fate::Doubt,
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
        | None => Fate::Source,
    }
}

/// The source runs nothing any more: all depends on whether the target has everything.
fn without_source(
    ordered: bool,
    (at_source, at_target): (Option<MigrationState>, Option<MigrationState>),
    source: Side<'_>,
    target: Side<'_>,
) -> Fate {
    use MigrationState as S;
    // It went on there after the attempt, and has written since: what the target has is old.
    if matches!(at_source, Some(S::Cancelling | S::Cancelled | S::Failed)) {
        return Fate::Lost;
    }
    // A guest that ended by itself ran here to its end.
    if !ordered || target.is_gone() || source.ended_as_guest() {
        return Fate::Lost;
    }
    if !target.is_heard() {
        return Fate::Doubt;
    }
    match at_target {
        // It waits for the verdict.
        Some(S::Arrived | S::Unknown) => Fate::Doubt,
        // All may be on its way, or have come and not been told yet. It fails by itself if not.
        Some(S::Receiving) => Fate::Doubt,
        // A source that sends has a target that receives: what that told last is old.
        Some(S::Waiting)
            if matches!(at_source, Some(S::Mirroring | S::Copying | S::Switching | S::HandingOver)) =>
        {
            Fate::Doubt
        }
        _ => Fate::Lost,
    }
}

/// Which side must be told that the machine is its own: `true` the source, `false` the target.
pub(crate) fn verdict(id: &str, source: Side<'_>, target: Side<'_>) -> Option<bool> {
    use MigrationState as S;
    let at_source = source.told(id, MigrationRole::Source);
    let at_target = target.told(id, MigrationRole::Target);
    if source.is_gone() {
        if matches!(at_source, Some(S::Cancelling | S::Cancelled | S::Failed)) {
            return None;
        }
        return (target.is_heard() && !target.is_gone() && at_target == Some(S::Arrived)).then_some(false);
    }
    let ran = matches!(at_target, Some(S::PostCopy | S::Completed));
    (source.is_heard() && at_source == Some(S::HandingOver) && target.is_gone() && !ran).then_some(true)
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

    fn view(role: MigrationRole, state: MigrationState, heard: bool) -> RunnerView {
        let migration = MigrationStatus { id: "m".into(), role, state, ..MigrationStatus::default() };
        let status = Box::new(RunnerStatus { migration: Some(migration), ..RunnerStatus::default() });
        if heard {
            return RunnerView::Seen(status);
        }
        RunnerView::Unreachable { since: Timestamp::from_unix(1).unwrap(), last: Some(status) }
    }

    /// Where a source has not let go the machine is never given to the target, whatever the target looks like; and the
    /// other way round.
    #[test]
    fn no_side_gets_what_the_other_still_has() {
        let live = PodView { running: true, ..PodView::default() };
        let dead = PodView { ended: Some(Exit::new(ExitReason::RunnerKilled, "")), ..PodView::default() };
        let pods = [Some(&live), Some(&dead), None];
        for (s, t) in STATES.iter().flat_map(|s| STATES.iter().map(move |t| (*s, *t))) {
            for (heard_s, heard_t) in [(true, true), (true, false), (false, true), (false, false)] {
                let (at_source, at_target) =
                    (view(MigrationRole::Source, s, heard_s), view(MigrationRole::Target, t, heard_t));
                for (source_pod, target_pod) in pods.iter().flat_map(|s| pods.iter().map(move |t| (*s, *t))) {
                    let source = Side { pod: source_pod, runner: &at_source };
                    let target = Side { pod: target_pod, runner: &at_target };
                    let fate = fate("m", true, source, target);
                    let done = s == MigrationState::Completed || t == MigrationState::Completed;
                    assert_eq!(fate == Fate::Target, done, "{s:?} {t:?}");
                    if !source.is_gone() && !target.is_gone() {
                        assert_ne!(fate, Fate::Lost, "{s:?} {t:?}: both live");
                    }
                    if s.has_left() && !source.is_gone() {
                        assert_ne!(fate, Fate::Source, "{s:?} {t:?}");
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

    /// A guest that was heard to run at the target before all its memory was there, and is gone with that: the source, which
    /// has sent everything and was not answered, must not go on with what the guest was before.
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
                let expected = if lost { (Fate::Lost, None) } else { (Fate::Doubt, Some(true)) };
                assert_eq!((fate("m", true, source, target), verdict("m", source, target)), expected);
            }
        }
    }

    /// A source that dies when all was sent, and a target that has not told of it yet: the machine lives if it has come, and the
    /// target fails by itself if not.
    #[test]
    fn what_is_on_its_way_is_waited_for() {
        use MigrationState as S;
        let live = PodView { running: true, ..PodView::default() };
        for (at_source, at_target, expected) in [
            (S::Switching, S::Receiving, Fate::Doubt),
            (S::Switching, S::Waiting, Fate::Doubt),
            (S::HandingOver, S::Receiving, Fate::Doubt),
            (S::Copying, S::Receiving, Fate::Doubt),
            (S::Negotiating, S::Waiting, Fate::Lost),
            (S::Switching, S::Failed, Fate::Lost),
            (S::Cancelling, S::Receiving, Fate::Lost),
        ] {
            let (source, target) =
                (view(MigrationRole::Source, at_source, false), view(MigrationRole::Target, at_target, true));
            let source = Side { pod: None, runner: &source };
            let target = Side { pod: Some(&live), runner: &target };
            assert_eq!(fate("m", true, source, target), expected, "{at_source:?} {at_target:?}");
            assert_eq!(verdict("m", source, target), None, "{at_source:?} {at_target:?}");
        }
    }

    /// A source that was heard to go on after a failed switch, and has died since: its target has all of an older guest.
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
                let expected = if lost { (Fate::Lost, None) } else { (Fate::Doubt, Some(false)) };
                assert_eq!((fate("m", true, source, target), verdict("m", source, target)), expected);
            }
        }
    }
}
