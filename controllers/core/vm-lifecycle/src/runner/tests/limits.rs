//! Limits of disks: what is ordered of QEMU, and when they bind.

use neonvm_types::runner_protocol::{DiskBurst, DiskLimits};

use super::*;

const LOOK: Duration = Duration::from_secs(5);

fn iops(iops: u32) -> DiskLimits {
    DiskLimits { iops: Some(iops), ..DiskLimits::default() }
}

fn of(limits: DiskLimits) -> LimitsByDisk {
    [("data".to_owned(), limits)].into()
}

/// A VM that runs, and its disk at these limits.
fn limited(limits: DiskLimits) -> Core {
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::LimitDisks(of(limits))), [Action::LimitDisks(of(limits))]);
    core.step(SECOND, Event::DisksLimited(Ok(of(limits))));
    core
}

/// Reads the counters so often, with this many requests and bytes a second; how often the state has changed.
fn work(core: &mut Core, looks: u32, (requests, bytes): (u64, u64)) -> u32 {
    let mut changes = 0;
    for _ in 0..looks {
        let now = core.now + LOOK;
        assert!(core.wake_at().unwrap() <= now, "{:?}", core.wake_at());
        assert!(core.step(now, Event::Timer).contains(&Action::LookAtDisks));
        let seen = DiskCounters { requests: requests * now.as_secs(), bytes: bytes * now.as_secs() };
        let before = core.status().disk_limits.clone();
        core.step(now, Event::DisksSeen([("data".to_owned(), seen)].into()));
        changes += u32::from(before != core.status().disk_limits);
    }
    changes
}

fn binds(core: &Core) -> (bool, bool) {
    let status = core.status().disk_limits["data"];
    (status.iops_bind, status.bandwidth_binds)
}

#[test]
fn one_change_is_under_way_and_the_newest_comes_next() {
    let mut core = limited(iops(100));
    assert_eq!(core.status().disk_limits["data"].limits, iops(100));
    assert_eq!(core.step(SECOND, Event::LimitDisks(of(iops(100)))), [], "it is in force");
    assert_eq!(core.step(SECOND, Event::LimitDisks(of(iops(200)))).len(), 1);
    assert_eq!(core.step(SECOND, Event::LimitDisks(of(iops(300)))), []);
    assert_eq!(core.step(SECOND, Event::LimitDisks(of(iops(400)))), []);
    assert_eq!(core.status().disk_limits["data"].limits, iops(100), "what is reported is in force");
    let next = core.step(SECOND, Event::DisksLimited(Ok(of(iops(200)))));
    assert_eq!(next, [Action::LimitDisks(of(iops(400)))]);
    core.step(SECOND, Event::DisksLimited(Ok(of(iops(400)))));
    core.step(SECOND, Event::LimitDisks(LimitsByDisk::new()));
    core.step(SECOND, Event::DisksLimited(Ok(LimitsByDisk::new())));
    assert!(core.status().disk_limits.is_empty());
    assert_eq!(core.step(SECOND * 900, Event::Timer), [], "nothing is read of disks that are not limited");
}

#[test]
fn a_failure_is_a_problem_until_a_change_succeeds() {
    let mut core = limited(iops(100));
    core.step(SECOND, Event::LimitDisks(of(iops(200))));
    assert_eq!(core.step(SECOND, Event::DisksLimited(Err("no".into()))), [], "not in a loop");
    let problem = &core.status().problems[0];
    assert_eq!((problem.reason, problem.message.as_str()), (ProblemReason::DiskNotLimited, "no"));
    assert_eq!(core.status().disk_limits["data"].limits, iops(100));
    core.step(SECOND, Event::LimitDisks(of(iops(200))));
    core.step(SECOND, Event::DisksLimited(Ok(of(iops(200)))));
    assert_eq!(core.status().problems, []);
}

#[test]
fn a_limit_binds_after_ten_seconds_and_ends_after_a_minute() {
    let limits = DiskLimits { bandwidth: Some(Bytes::mib(1)), ..iops(100) };
    let mut core = limited(limits);
    assert_eq!(work(&mut core, 2, (95, 1000)), 0, "the first reading has nothing to compare with");
    assert_eq!((work(&mut core, 1, (95, 1000)), binds(&core)), (1, (true, false)));
    assert_eq!((work(&mut core, 11, (10, 1000)), binds(&core)), (0, (true, false)));
    assert_eq!((work(&mut core, 1, (95, 1000)), binds(&core)), (0, (true, false)));
    assert_eq!((work(&mut core, 13, (10, 1000)), binds(&core)), (1, (false, false)));
    work(&mut core, 3, (10, 1 << 20));
    assert_eq!(binds(&core), (false, true));
    // Other limits begin again.
    core.step(core.now, Event::LimitDisks(of(iops(9))));
    core.step(core.now, Event::DisksLimited(Ok(of(iops(9)))));
    assert_eq!(binds(&core), (false, false));
}

#[test]
fn a_burst_that_is_used_does_not_bind_before_its_own_limit() {
    let burst = DiskBurst { iops: Some(1000), bandwidth: None, seconds: 60 };
    let rates = [(50, false), (100, true), (500, false), (990, true)];
    for (rate, expected) in rates {
        let mut core = limited(DiskLimits { burst: Some(burst), ..iops(100) });
        work(&mut core, 4, (rate, 0));
        assert_eq!(binds(&core).0, expected, "{rate}");
    }
}

/// A QEMU that has loaded the guest's memory has no limits: they are ordered again, and nothing is read before.
#[test]
fn limits_are_set_again_after_a_suspension() {
    let mut core = limited(iops(100));
    let request = SuspendRequest { suspended: true, request: 1, ..SuspendRequest::default() };
    assert!(core.step(SECOND, Event::Suspend(request)).contains(&Action::Suspend));
    core.step(SECOND * 2, Event::Suspended(Bytes::mib(1), SECOND));
    assert_eq!(core.wake_at(), None, "no timer while it is suspended");
    core.step(SECOND * 900, Event::Knock(WokenBy::Network));
    let orders = core.step(SECOND * 901, Event::Woken);
    assert!(orders.contains(&Action::LimitDisks(of(iops(100)))), "{orders:?}");
    core.step(SECOND * 901, Event::DisksLimited(Ok(of(iops(100)))));
    work(&mut core, 4, (99, 0));
    assert_eq!(binds(&core), (true, false));
}

proptest! {
    /// Whatever the guest does, the state changes at most twice in 14 readings, and a rate far below the limit never binds.
    #[test]
    fn changes_are_few(rates in proptest::collection::vec(0_u64..200, 1..120)) {
        let mut core = limited(iops(100));
        let (mut total, mut changes) = (0, Vec::new());
        for rate in &rates {
            let now = core.now + LOOK;
            total += rate * LOOK.as_secs();
            core.step(now, Event::Timer);
            let before = binds(&core);
            core.step(now, Event::DisksSeen([("data".to_owned(), DiskCounters { requests: total, bytes: 0 })].into()));
            changes.push(before != binds(&core));
        }
        prop_assert!(changes.windows(14).all(|some| some.iter().filter(|changed| **changed).count() <= 2));
        prop_assert!(rates.iter().any(|rate| *rate >= 90) || !changes.contains(&true));
    }

    /// Whatever the order of requests and answers: one order is under way, and in the end the newest request is in force.
    #[test]
    fn the_newest_request_wins(events in proptest::collection::vec((0_u8..3, 1_u32..5), 0..40)) {
        let mut core = running();
        let (mut order, mut newest) = (None::<LimitsByDisk>, LimitsByDisk::new());
        let end = [(1, 1), (1, 1), (0, 5), (1, 1), (1, 1)];
        for (kind, rate) in events.into_iter().chain(end) {
            let event = match (kind, order.take()) {
                (0, under_way) => {
                    (order, newest) = (under_way, of(iops(rate)));
                    Event::LimitDisks(newest.clone())
                }
                (1, Some(limits)) => Event::DisksLimited(Ok(limits)),
                (_, Some(_)) => Event::DisksLimited(Err("no".into())),
                (_, None) => continue,
            };
            for action in core.step(SECOND, event) {
                let Action::LimitDisks(limits) = action else { continue };
                prop_assert!(order.replace(limits).is_none(), "two orders at the same time");
            }
        }
        let in_force: LimitsByDisk =
            core.status().disk_limits.iter().map(|(name, status)| (name.clone(), status.limits)).collect();
        prop_assert_eq!(in_force, newest);
    }
}
