//! Bugs planted into what is between the cores and the world: a world that finds none of them proves nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::collection::vec;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use super::{turn, world::World};

/// Histories within which each bug must be found.
const HISTORIES: u32 = 2_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A list from the cache is taken for one that the API server has just sent.
    StaleListIsFresh,
    /// Where the newest content is does not reach the status.
    ContentNotWritten,
    /// The write that makes the target pod the VM's pod leaves the claim as it was.
    ClaimNotSwitched,
    /// A copy is deleted although it has become whole in the meantime.
    CopyDeletedUnchecked,
    /// The claim that a VM runs on is not marked as whole.
    MarkLost,
    /// The guest leaves its source before all that it wrote is at the target.
    MirrorNotFinished,
}

/// The first thing that breaks, and after how many histories.
fn find(bug: Option<Bug>, most: u32) -> Option<(u32, String)> {
    let mut runner = TestRunner::deterministic();
    let histories = vec(turn(), 0..120);
    (0..most).find_map(|count| {
        let turns = histories.new_tree(&mut runner).unwrap().current();
        let run = AssertUnwindSafe(|| {
            let mut world = World::new();
            world.bug = bug;
            // In every second one a migration is at its handover when the rest begins.
            if count % 2 == 1 {
                world.create("move-0");
                world.hands_over();
            }
            world.lives_through(&turns);
        });
        let broken = catch_unwind(run).err()?;
        let text = broken.downcast_ref::<String>().cloned();
        let text = text.or_else(|| broken.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Some((count, text.unwrap_or_default()))
    })
}

#[test]
fn each_planted_bug_is_found() {
    use Bug as B;
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = [
        B::StaleListIsFresh,
        B::ContentNotWritten,
        B::ClaimNotSwitched,
        B::CopyDeletedUnchecked,
        B::MarkLost,
        B::MirrorNotFinished,
    ];
    let found = bugs.map(|bug| (bug, find(Some(bug), HISTORIES)));
    let without = find(None, 300);
    drop(std::panic::take_hook());
    assert_eq!(without, None);
    let missed: Vec<Bug> = found.iter().filter(|(_, found)| found.is_none()).map(|(bug, _)| *bug).collect();
    assert_eq!(missed, [], "not found in {HISTORIES} histories: {found:?}");
}
