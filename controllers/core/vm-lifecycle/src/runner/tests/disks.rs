//! Disks that grow with their volumes.

use super::*;

fn to(disk: &str, gib: u32) -> DiskRequest {
    DiskRequest { disk: disk.into(), size: Bytes::gib(gib) }
}

fn with_disks() -> Core {
    let mut core = running();
    core.step(SECOND, Event::Disks([("data".into(), Bytes::gib(1)), ("log".into(), Bytes::gib(2))].into()));
    core
}

fn step(core: &mut Core, event: Event) -> Vec<Action> {
    core.step(SECOND, event)
}

#[test]
fn a_disk_grows_once_for_each_request() {
    let mut core = with_disks();
    assert_eq!(core.status().disks["data"], Bytes::gib(1));
    assert_eq!(step(&mut core, Event::GrowDisk(to("data", 2))), [Action::GrowDisk(to("data", 2))]);
    assert!(core.grows_disk());
    assert_eq!(step(&mut core, Event::GrowDisk(to("data", 2))), [], "it is under way");
    assert_eq!(core.status().disks["data"], Bytes::gib(1), "what is reported is not what is requested");
    step(&mut core, Event::DiskGrown(to("data", 2), None));
    assert_eq!((core.status().disks["data"], core.grows_disk()), (Bytes::gib(2), false));
    assert_eq!(step(&mut core, Event::GrowDisk(to("data", 2))), [], "it has this size");
    assert_eq!(core.status().problems, []);
}

#[test]
fn a_failure_is_a_problem_until_the_disk_has_grown() {
    let mut core = with_disks();
    step(&mut core, Event::GrowDisk(to("data", 2)));
    assert_eq!(step(&mut core, Event::DiskNotGrown(to("data", 2), "no room".into())), [], "not in a loop");
    let problem = &core.status().problems[0];
    assert_eq!(
        (problem.reason, problem.message.as_str()),
        (ProblemReason::DiskNotGrown, "disk data: no room")
    );
    assert_eq!((core.status().disks["data"], core.grows_disk()), (Bytes::gib(1), false));
    assert_eq!(step(&mut core, Event::GrowDisk(to("data", 2))).len(), 1, "the next request");
    step(&mut core, Event::DiskGrown(to("data", 2), None));
    assert_eq!(core.status().problems, []);
    // A guest that cannot grow its file system now.
    step(&mut core, Event::GrowDisk(to("log", 3)));
    step(&mut core, Event::DiskGrown(to("log", 3), Some("later".into())));
    assert_eq!((core.status().disks["log"], core.status().problems.len()), (Bytes::gib(3), 1));
}

#[test]
fn only_disks_on_claims_grow_and_none_shrinks() {
    let core = with_disks();
    assert_eq!(core.check_disk(&to("data", 1)), Ok(()));
    let why = |request| core.check_disk(&request).unwrap_err();
    assert!(why(to("root", 9)).contains("no disk \"root\" on a claim"));
    assert!(why(to("log", 1)).contains("does not shrink"), "{}", why(to("log", 1)));
}

#[test]
fn a_larger_size_that_is_requested_meanwhile_comes_next() {
    let mut core = with_disks();
    step(&mut core, Event::GrowDisk(to("data", 2)));
    step(&mut core, Event::GrowDisk(to("data", 4)));
    assert_eq!(step(&mut core, Event::DiskGrown(to("data", 2), None)), [Action::GrowDisk(to("data", 4))]);
    assert_eq!(step(&mut core, Event::DiskGrown(to("data", 4), None)), []);
    assert_eq!((core.status().disks["data"], core.grows_disk()), (Bytes::gib(4), false));
}

proptest! {
    /// Whatever comes, sizes never fall, and only one order for a disk is under way.
    #[test]
    fn sizes_only_grow(events in proptest::collection::vec((0_u8..3, 0_u32..6), 0..40)) {
        let mut core = with_disks();
        let (mut under_way, mut last) = (None::<DiskRequest>, Bytes::gib(1));
        for (kind, gib) in events {
            let event = match (kind, under_way.clone()) {
                (0, _) | (_, None) => Event::GrowDisk(to("data", gib)),
                (1, Some(request)) => Event::DiskGrown(request, None),
                (_, Some(request)) => Event::DiskNotGrown(request, "no".into()),
            };
            if !matches!(event, Event::GrowDisk(_)) {
                under_way = None;
            }
            let orders = step(&mut core, event);
            let now = core.status().disks["data"];
            if let Some(Action::GrowDisk(order)) = orders.first() {
                prop_assert!(under_way.is_none() && order.size > now);
                under_way = Some(order.clone());
            }
            prop_assert!(now >= last && orders.len() <= 1);
            prop_assert_eq!(core.grows_disk(), under_way.is_some());
            last = now;
        }
    }
}
