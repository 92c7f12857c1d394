//! What authors of VMs and pods can write counts for no more than can be true: no author fills a node with annotations.

use proptest::prelude::*;

use super::*;

fn settings() -> Settings {
    Settings { pods_are_resized: true, ..Settings::default() }
}

/// A state whose cluster resizes pods in place.
fn resized(total: Pair<u64>) -> State {
    let mut state = State::new(settings());
    state.step(at(0), node("n", total));
    state.step(at(0), Event::Listed);
    state
}

/// A VM's pod that requests `requests` units, and claims to use `claims`.
fn claiming(pod: &str, (requests, claims): (u64, u64), max: u64) -> PodSeen {
    PodSeen { requests: cu(requests), ..vm(pod, "n", claims, max) }.bounded(&settings())
}

/// An annotation with a permit of 1000 CPU, of a VM of 1 unit, before and after a restart of the scheduler.
#[test]
fn a_noted_permit_is_no_permit() {
    for starting in [true, false] {
        let mut state = resized(cu(4));
        let mut pod = PodSeen { starting, ..claiming("p", (1, 1), 1) };
        pod.vm.as_mut().unwrap().approved = Some(res(1000));
        state.step(at(0), seen(pod));
        assert_eq!(sums(&state, "n").reserved, cu(1).map(u128::from));
    }
}

/// A VM with a large upper bound whose image cannot be pulled takes what its pod requests, however long it waits.
#[test]
fn a_pod_that_does_not_run_has_no_room_beyond_its_requests() {
    let mut state = resized(cu(4));
    let waits = PodSeen { starting: true, ..claiming("p", (1, 1), 64) };
    state.step(at(0), seen(waits.clone()));
    assert_eq!(sums(&state, "n").reserved, cu(1).map(u128::from));
    // Nor when it runs at last: what is permitted from now on, this scheduler permits.
    state.step(at(9), seen(PodSeen { starting: false, ..waits }));
    assert_eq!(sums(&state, "n").reserved, cu(1).map(u128::from));
}

/// A VM that runs and whose agent never reports, as one with a broken configuration does.
#[test]
fn room_for_an_unknown_permit_ends() {
    let mut state = resized(cu(4));
    state.step(at(0), seen(claiming("p", (1, 1), 3)));
    state.step(at(0), seen(claiming("q", (1, 1), 3)));
    assert_eq!(sums(&state, "n").reserved, cu(6).map(u128::from));
    let end = at(0) + super::super::state::SILENT;
    assert_eq!(state.wake_at(), Some(end));
    ask(&mut state, "p", 1, Some(1)).unwrap();
    state.step(at(2), seen(claiming("q", (1, 1), 2)));
    state.step(end, Event::Tick);
    assert_eq!(sums(&state, "n").reserved, cu(2).map(u128::from));
    assert!(state.wake_at().is_none_or(|wake| wake < end + at(1)), "nothing more is waited for");
    // Another scheduler led meanwhile.
    state.step(end, Event::TakenOver);
    assert_eq!(sums(&state, "n").buffer, cu(3).map(u128::from));
    assert!(state.wake_at().is_some());
}

/// `use: 64` of a VM whose pod is not resized to it, because there is no room.
#[test]
fn a_claim_counts_when_the_pod_requests_it() {
    let mut state = resized(cu(4));
    state.step(at(0), seen(PodSeen { starting: true, ..claiming("p", (1, 64), 64) }));
    assert_eq!(sums(&state, "n").reserved, cu(1).map(u128::from));
    // Where pods are not resized, the annotation is all there is.
    let mut state = State::new(Settings::default());
    state.step(at(0), node("n", cu(4)));
    let claims = PodSeen { starting: true, ..vm("p", "n", 3, 64) };
    state.step(at(0), seen(claims.bounded(&Settings::default())));
    assert_eq!(sums(&state, "n").reserved, cu(3).map(u128::from));
}

/// A request for 20 units of a VM with at most one, and the report of such a permit.
#[test]
fn a_permit_is_within_the_bounds_of_the_vm() {
    let mut state = resized(cu(40));
    state.step(at(0), seen(claiming("p", (1, 1), 1)));
    for last in [None, Some(20)] {
        assert_eq!(ask(&mut state, "p", 20, last).unwrap().permit, res(1));
        assert_eq!(sums(&state, "n").reserved, cu(1).map(u128::from));
        assert_eq!(sums(&state, "n").pressure, Pair::default());
    }
    // The bound was lowered below what the VM has.
    let mut state = resized(cu(40));
    state.step(at(0), seen(claiming("p", (3, 3), 1)));
    assert_eq!(ask(&mut state, "p", 20, Some(3)).unwrap().permit, res(3));
    assert_eq!(ask(&mut state, "p", 2, Some(3)).unwrap().permit, res(2));
    // Its spec has the lower bound already, the guest has not returned its memory, and another scheduler leads.
    let mut state = resized(cu(40));
    state.step(at(0), seen(claiming("p", (5, 3), 3)));
    assert_eq!(ask(&mut state, "p", 5, Some(5)).unwrap().permit, res(5));
    assert_eq!(ask(&mut state, "p", 9, Some(9)).unwrap().permit, res(5));
    let mut state = State::new(Settings::default());
    state.step(at(0), node("n", cu(40)));
    state.step(at(0), seen(vm("p", "n", 3, 3)));
    state.step(at(0), Event::Listed);
    assert_eq!(ask(&mut state, "p", 5, Some(5)).unwrap().permit, res(5));
    assert_eq!(sums(&state, "n").reserved, cu(5).map(u128::from));
}

proptest! {
    /// Whatever a pod claims and any client requests for it: it counts what it requests, or what was permitted, and a neighbour that requests
    /// what is left is placed and grows.
    #[test]
    fn a_neighbour_gets_what_is_left(
        (requests, claims, max, noted, overhead) in (1_u64..3, 0_u64..2000, 1_u64..2000, 0_u64..2000, 0_u64..2000),
        (starting, overcommit, asked) in (any::<bool>(), 1_u64..5000, 0_u64..2000),
    ) {
        let mut state = resized(cu(8));
        let mut pod = PodSeen { starting, overhead: cu(overhead), ..claiming("p", (requests, claims), max) };
        let its = pod.vm.as_mut().unwrap();
        (its.approved, its.overcommit) = (Some(res(noted)), Pair::both(overcommit));
        state.step(at(0), seen(pod.bounded(&settings())));
        state.step(at(0) + super::super::state::SILENT, Event::Tick);
        let counted = sums(&state, "n").reserved;
        prop_assert_eq!(counted, cu(requests).map(u128::from), "{:?}", counted);
        let neighbour = PodSeen { node: None, waits: true, starting: true, ..claiming("b", (2, 2), 5) };
        prop_assert!(state.reserve(at(400), neighbour, "n").is_ok());
        state.step(at(401), seen(PodSeen { starting: true, ..claiming("b", (2, 2), 5) }));
        state.step(at(402), seen(claiming("b", (2, 2), 5)));
        prop_assert_eq!(ask(&mut state, "b", 5, Some(2)).unwrap().permit, res(5));
        // The agent asks for the first one, whose bound is large: it gets what is left, and no more.
        if asked > 0 {
            let permit = Pair::from(ask(&mut state, "p", asked, None).unwrap().permit);
            prop_assert!(!permit.any_greater(cu(asked.min(max))));
        }
    }
}
