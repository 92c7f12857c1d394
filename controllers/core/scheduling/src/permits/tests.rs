//! Vectors of both generations of schedulers, and the helpers of all tests.

mod claims;
mod extract;
mod laws;
mod moving;
mod placing;
mod restart;
mod upstream;
mod wire;

use neonvm_types::{Bytes, MilliCpu};

use super::account::Share;
use super::*;
use neonvm_types::{NamespacedName, Resources};
use std::time::Duration;

pub(super) const GI: u64 = 1 << 30;

/// Compute units of one CPU and four gibibytes: both resources behave alike.
pub(super) fn cu(count: u64) -> Pair<u64> {
    Pair::new(count * 1000, count * 4 * GI)
}

pub(super) fn res(count: u64) -> Resources {
    cu(count).resources()
}

pub(super) fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn name(name: &str) -> NamespacedName {
    NamespacedName::new("d", name)
}

pub(super) fn node(name: &str, total: Pair<u64>) -> Event {
    Event::Node(Box::new(NodeSeen { name: name.into(), total, ..NodeSeen::default() }))
}

pub(super) fn plain(pod: &str, on: &str, usage: Pair<u64>) -> PodSeen {
    PodSeen { pod: name(pod), uid: format!("uid-{pod}"), node: Some(on.into()), usage, ..PodSeen::default() }
}

pub(super) fn vm(pod: &str, on: &str, usage: u64, max: u64) -> PodSeen {
    let vm = VmSeen {
        name: format!("vm-{pod}"),
        scaled: true,
        max: Some(res(max)),
        slot_size: Some(Bytes::gib(1)),
        overcommit: Pair::both(1000),
        ..VmSeen::default()
    };
    PodSeen { vm: Some(vm), ..plain(pod, on, cu(usage)) }
}

pub(super) fn seen(pod: PodSeen) -> Event {
    Event::Pod(Box::new(pod))
}

/// A state with one node `n` and everything listed.
pub(super) fn state(total: Pair<u64>) -> State {
    let mut state = State::new(Settings::default());
    state.step(at(0), node("n", total));
    state.step(at(0), Event::Listed);
    state
}

pub(super) fn ask(state: &mut State, pod: &str, units: u64, last: Option<u64>) -> Result<Reply, Refusal> {
    state.request(at(1), &name(pod), &Request::new(res(1), res(units), last.map(res)))
}

/// The sums of a node, and that they are those of its pods.
pub(super) fn sums(state: &State, name: &str) -> Share {
    audit(state);
    let at = state.node_index[name];
    state.nodes.get(at).unwrap().sums
}

pub(super) fn audit(state: &State) {
    for (at, node) in state.nodes.iter() {
        let mut sum = Share::default();
        for (index, pod) in state.pods.iter().filter(|(_, pod)| pod.node == Some(at)) {
            assert!(node.pods.contains(&index));
            sum.add(&pod.share());
        }
        assert_eq!(sum, node.sums, "{}", node.name);
        assert!(!node.sums.migrating.any_greater(node.sums.reserved));
    }
}

/// A pod in the middle of its life: this much held (with buffer), on a node filled to `node_reserved` in all.
fn arranged(total: Pair<u64>, node_reserved: u64, pod: (u64, u64), overcommit: u64) -> State {
    let mut state = state(total);
    let (reserved, buffer) = pod;
    let mut own = vm("p", "n", 0, 100);
    own.vm.as_mut().unwrap().overcommit = Pair::both(overcommit);
    let counted = cu(reserved).map(|amount| amount * 1000 / overcommit);
    let filler = cu(node_reserved).with(counted, |all, own| all - own);
    state.step(at(0), seen(plain("filler", "n", filler)));
    state.step(at(0), seen(own));
    let index = state.pod_index[&name("p")];
    state.change(index, |pod| {
        pod.held = cu(reserved - buffer);
        pod.buffer = cu(buffer);
        pod.known = buffer == 0;
    });
    assert_eq!(sums(&state, "n").reserved, cu(node_reserved).map(u128::from));
    state
}

/// Vectors of spec §7.5 (a stateless scheduler): what a request changes.
#[test]
fn grants_of_the_stateless_scheduler() {
    let odd = Pair::new(10_500, 41 * GI);
    for (case, total, before, (had, asked), done, after, pod, overcommit) in [
        ("nothing to do", cu(10), 3, (3, 3), true, 3, 3, 1000),
        ("full upscale", cu(10), 3, (3, 5), true, 5, 5, 1000),
        ("exact fit", cu(10), 8, (3, 5), true, 10, 5, 1000),
        ("partial", cu(10), 9, (3, 5), false, 10, 4, 1000),
        ("blocked", cu(10), 10, (3, 5), false, 10, 3, 1000),
        ("partial, odd total", odd, 9, (3, 5), false, 10, 4, 1000),
        ("over-full, idle", cu(10), 11, (3, 3), true, 11, 3, 1000),
        ("over-full, downscale", cu(10), 12, (4, 3), true, 11, 3, 1000),
        ("overcommit twice", cu(10), 8, (3, 7), true, 10, 7, 2000),
    ] {
        let mut state = arranged(total, before, (had, 0), overcommit);
        let reply = ask(&mut state, "p", asked, Some(had)).unwrap();
        assert_eq!(reply.permit, res(pod), "{case}");
        assert_eq!(reply.permit == res(asked), done, "{case}");
        assert_eq!(sums(&state, "n").reserved, cu(after).map(u128::from), "{case}");
    }
}

/// Vectors of spec §7.6 (permits in memory), with the repaired floor: requests.
#[test]
fn grants_with_buffer_pressure_and_last_permit() {
    for (pod, total, before, asked, last, unit, (after, pressure, node)) in [
        ((2, 0), 10, 5, 3, Some(2), 1, (3, 0, 6)),
        ((3, 0), 10, 6, 2, Some(3), 1, (2, 0, 5)),
        ((2, 0), 10, 5, 2, Some(2), 1, (2, 0, 5)),
        ((4, 2), 10, 7, 2, None, 1, (2, 0, 5)),
        ((1, 0), 10, 8, 5, Some(1), 1, (3, 2, 10)),
        ((4, 0), 10, 7, 8, Some(4), 2, (6, 2, 9)),
        ((2, 0), 10, 12, 3, Some(2), 1, (2, 1, 12)),
        ((4, 0), 10, 15, 2, Some(4), 1, (2, 0, 13)),
        ((2, 0), 10, 12, 3, Some(3), 1, (3, 0, 13)),
    ] {
        let mut state = arranged(cu(total), before, pod, 1000);
        let request = Request::new(res(unit), res(asked), last.map(res));
        let case = format!("{pod:?} of {total} asks {asked}, has {last:?}");
        assert_eq!(state.request(at(1), &name("p"), &request).unwrap().permit, res(after), "{case}");
        let sums = sums(&state, "n");
        assert_eq!(sums.reserved, cu(node).map(u128::from), "{case}");
        assert_eq!(sums.pressure, cu(pressure).map(u128::from), "{case}");
        assert_eq!(sums.buffer, Pair::default(), "{case}");
        assert_eq!(state.inspect().nodes[0].pods[1].reserved, res(after), "{case}");
    }
}

/// Vectors of spec §7.6: pods found at the start count with their upper bound.
#[test]
fn pods_found_at_the_start_have_a_buffer() {
    for (min, max, total, before, before_buffer, over, after, buffer) in [
        (4, 4, 12, 6, 0, false, 10, 0),
        (4, 7, 12, 4, 2, false, 11, 5),
        (8, 8, 12, 4, 0, false, 12, 0),
        (8, 8, 12, 7, 0, true, 15, 0),
        (4, 8, 12, 7, 5, true, 15, 9),
        (8, 8, 12, 16, 0, true, 24, 0),
        (4, 8, 12, 16, 8, true, 24, 12),
    ] {
        let mut state = state(cu(total));
        state.step(at(0), seen(vm("other", "n", before - before_buffer, before)));
        state.step(at(0), seen(vm("p", "n", min, max)));
        let sums = sums(&state, "n");
        assert_eq!(sums.reserved, cu(after).map(u128::from));
        assert_eq!(sums.buffer, cu(buffer).map(u128::from));
        assert_eq!(sums.reserved.any_greater(cu(total).map(u128::from)), over);
    }
}

/// Vectors of spec §7.5: counting, and the score.
#[test]
fn sums_watermark_and_score() {
    let settings = Settings { watermark: Pair::both(0.8), ..Settings::default() };
    let mut state = State::new(settings);
    state.step(at(0), node("n", Pair::new(10_000, 40 * GI)));
    for (pod, cpu, mem) in [("a", 2, 8), ("b", 1, 4)] {
        state.step(at(0), seen(plain(pod, "n", Pair::new(cpu * 1000, mem * GI))));
    }
    let view = state.inspect_node("n").unwrap();
    assert_eq!((view.cpu.reserved, view.mem.reserved), (3000, 12 * GI));
    assert_eq!((view.cpu.committed, view.mem.committed), (3000, 12 * GI));
    assert_eq!((view.cpu.watermark, view.mem.watermark), (8000, 32 * GI));
    assert_eq!((view.cpu.migrating, view.cpu.ordinary), (0, 3000));
    state.step(at(0), Event::PodGone { pod: name("b"), uid: "uid-b".into() });
    assert_eq!(sums(&state, "n").reserved, Pair::new(2000, 8 * u128::from(GI)));

    let scoring = Scoring::default();
    let of = |reserved: u64, total: u64, largest: u64| {
        scoring.score(cu(reserved).map(u128::from), cu(total), cu(largest))
    };
    for (reserved, score) in [(0, 50), (1, 56), (4, 75), (7, 93), (8, 100), (9, 50), (10, 0), (11, 0)] {
        assert_eq!(of(reserved, 10, 10), score, "{reserved} of 10");
    }
    for (reserved, score) in [(0, 25), (1, 28), (4, 37), (7, 46), (8, 50), (9, 25), (10, 0)] {
        assert_eq!(of(reserved, 10, 20), score, "{reserved} of 10, half the largest");
    }
}

/// #1387: scores are randomised, and it has an effect. Within bounds, and nothing stays nothing.
#[test]
fn d1387_random_scores_vary_within_bounds() {
    for score in [100, 50, 25, 10] {
        let drawn: std::collections::BTreeSet<u32> = (0..200).map(|seed| randomised(score, seed)).collect();
        assert!(drawn.iter().all(|one| (1..=score).contains(one)));
        assert!(drawn.len() > 5, "{score}");
    }
    assert!((0..100).all(|seed| randomised(0, seed) == 0));
}

/// #1025: the last permit is a floor for the whole, not for the increase.
#[test]
fn d1025_the_last_permit_is_not_an_increase() {
    let mut state = arranged(cu(10), 9, (4, 0), 1000);
    assert_eq!(ask(&mut state, "p", 8, Some(4)).unwrap().permit, res(5));
}

/// Defect 18: what is granted is the same number of units for both.
#[test]
fn d18_cpu_and_memory_are_granted_together() {
    // Ten units of CPU, four of memory.
    let mut state = state(Pair::new(10_000, 16 * GI));
    state.step(at(0), seen(vm("p", "n", 1, 12)));
    let reply = ask(&mut state, "p", 9, Some(1)).unwrap();
    assert_eq!(reply.permit, res(4));
    let sums = sums(&state, "n");
    assert_eq!(sums.reserved, cu(4).map(u128::from));
    assert_eq!(sums.pressure, cu(5).map(u128::from));
}

/// Defect 27: scores do not stay scaled down by a node that is gone.
#[test]
fn d27_the_largest_node_is_one_that_is_there() {
    let mut state = state(cu(10));
    state.step(at(0), node("giant", cu(1000)));
    let pod = vm("p", "", 1, 4);
    assert!(state.score(&pod, "n") < 2);
    state.step(at(0), Event::NodeGone("giant".into()));
    assert_eq!(state.score(&pod, "n"), 56);
    // #987: asking for the score reserves nothing.
    assert_eq!(sums(&state, "n"), Share::default());
    assert_eq!(state.score(&vm("q", "", 11, 12), "n"), 0);
    assert_eq!(sums(&state, "n"), Share::default());
}

/// Defect 25: a pod that has ended takes nothing.
#[test]
fn d25_pods_that_ended_are_freed() {
    let mut state = state(cu(10));
    state.step(at(0), seen(vm("p", "n", 4, 8)));
    state.step(at(0), seen(PodSeen { ended: true, ..vm("p", "n", 4, 8) }));
    assert_eq!(sums(&state, "n"), Share::default());
    assert_eq!(ask(&mut state, "p", 4, None), Err(Refusal::NotRunning(name("p"))));
}

/// The label reaches the pod after the VM: until then the first requests of its agent get what the VM has.
#[test]
fn a_vm_whose_pod_lacks_the_label_keeps_what_it_has() {
    let mut state = state(cu(10));
    let mut late = vm("late", "n", 2, 4);
    late.vm.as_mut().unwrap().scaled = false;
    state.step(at(0), seen(late));
    let reserved = state.inspect().nodes[0].cpu.reserved;
    for (request, permit) in [(2, 2), (4, 2), (1, 1)] {
        assert_eq!(
            ask(&mut state, "late", request, None).unwrap().permit,
            cu(permit).resources(),
            "{request}"
        );
    }
    assert_eq!(state.inspect().nodes[0].cpu.reserved, reserved);
    state.step(at(1), seen(vm("late", "n", 2, 4)));
    assert_eq!(ask(&mut state, "late", 4, Some(2)).unwrap().permit, cu(4).resources());
}

#[test]
fn what_cannot_be_permitted_is_refused_with_its_status() {
    let mut fresh = State::new(Settings::default());
    assert_eq!(ask(&mut fresh, "p", 1, None).unwrap_err().status(), 503);
    let mut state = state(cu(10));
    state.step(at(0), seen(plain("ordinary", "n", cu(1))));
    state.step(at(0), seen(vm("far", "elsewhere", 1, 2)));
    state.step(at(0), seen(PodSeen { node: None, ..vm("pending", "", 1, 2) }));
    let mut bare = vm("bare", "n", 0, 2);
    bare.vm.as_mut().unwrap().scaled = false;
    state.step(at(0), seen(bare));
    state.step(at(0), seen(PodSeen { node: None, ..plain("nowhere", "", cu(1)) }));
    let mut broken = vm("broken", "n", 1, 2);
    broken.vm.as_mut().unwrap().slot_size = None;
    broken.problems.push("annotation vm.neon.tech/resources: nonsense".into());
    state.step(at(0), seen(broken));
    for (pod, status, text) in [
        ("absent", 404, "d/absent is not known"),
        ("ordinary", 400, "not a VM's"),
        ("far", 404, "node elsewhere"),
        ("pending", 404, "runs on no node"),
        // Where it is comes before what it is.
        ("nowhere", 404, "runs on no node"),
        ("bare", 400, "lacks the label"),
        ("broken", 500, "nonsense"),
    ] {
        let refusal = ask(&mut state, pod, 1, None).unwrap_err();
        assert_eq!(refusal.status(), status, "{pod}");
        assert!(refusal.to_string().contains(text), "{refusal}");
    }
    state.step(at(0), seen(vm("p", "n", 1, 4)));
    let mut with = |unit: Resources, resources: Resources| {
        let refusal = state.request(at(1), &name("p"), &Request::new(unit, resources, None)).unwrap_err();
        assert_eq!(refusal.status(), 400);
        refusal.to_string()
    };
    assert!(with(Resources::default(), res(1)).contains("computeUnit"), "defect 24: a unit of zero");
    assert!(with(res(1), Resources::default()).contains("resources"));
    assert_eq!(state.counters().refusals, 9);
}

#[test]
fn what_is_noted_is_written_once_and_not_for_ever() {
    let mut state = state(cu(10));
    state.step(at(0), seen(vm("p", "n", 1, 8)));
    assert!(state.take_actions(at(1), 9).is_empty());
    ask(&mut state, "p", 2, None).unwrap();
    let actions = state.take_actions(at(1), 9);
    let [Action::Annotate(note)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(note.values, Noted { unit: res(1), requested: res(2), approved: res(2) });
    // On its way, and another request comes: it is written after.
    ask(&mut state, "p", 3, Some(2)).unwrap();
    assert!(state.take_actions(at(1), 9).is_empty());
    state.done(at(1), &actions[0], true);
    assert_eq!(state.wake_at(), Some(at(2)), "not more than one a second");
    let actions = state.take_actions(at(2), 9);
    assert_eq!(actions.len(), 1);
    state.done(at(2), &actions[0], true);
    // S11: the same request again is no reason to write.
    ask(&mut state, "p", 3, Some(3)).unwrap();
    assert_eq!((state.wake_at(), state.take_actions(at(9), 9).len()), (None, 0));
    // S13: a failed write is retried with growing pauses, a limited number of times.
    ask(&mut state, "p", 4, Some(3)).unwrap();
    let mut tries = 0;
    while let Some(due) = state.wake_at() {
        for action in state.take_actions(due, 9) {
            state.done(due, &action, false);
            tries += 1;
        }
    }
    assert_eq!(tries, 8);
    assert_eq!(state.counters().writes_lost, 1);
}
