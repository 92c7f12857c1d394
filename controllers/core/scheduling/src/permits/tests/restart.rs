//! S1 and S2: nothing is permitted twice, for any number of schedulers, any annotations, and any lost responses.

use proptest::prelude::*;

use super::*;

/// A VM and its agent, as they really are, in compute units.
#[derive(Clone, Debug)]
struct Real {
    pod: String,
    max: u64,
    /// What the VM has.
    using: u64,
    /// What the pod shows it to have; lags behind.
    shown: u64,
    /// What its agent holds; `None` after a start.
    permit: Option<u64>,
}

impl Real {
    /// The most it may use without another request.
    fn may_use(&self) -> u64 {
        self.permit.unwrap_or(0).max(self.using)
    }

    fn pod(&self, noted: u64) -> PodSeen {
        let mut pod = vm(&self.pod, "n", self.shown, self.max);
        pod.vm.as_mut().unwrap().approved = Some(res(noted));
        pod
    }
}

#[derive(Clone, Debug)]
enum Step {
    New { size: u64, more: u64 },
    Ordinary(u64),
    Ask { which: usize, goal: u64, lost: bool },
    Use { which: usize, share: u64, show: bool },
    AgentStarts(usize),
    SchedulerStarts(u64),
    TakenOver,
    Ends(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u64..4, 0_u64..8).prop_map(|(size, more)| Step::New { size, more }),
        1 => (1_u64..4).prop_map(Step::Ordinary),
        8 => (0_usize..8, 1_u64..12, proptest::bool::weighted(0.2))
            .prop_map(|(which, goal, lost)| Step::Ask { which, goal, lost }),
        5 => (0_usize..8, 1_u64..12, any::<bool>()).prop_map(|(which, share, show)| Step::Use { which, share, show }),
        1 => (0_usize..8).prop_map(Step::AgentStarts),
        1 => (0_u64..12).prop_map(Step::SchedulerStarts),
        1 => Just(Step::TakenOver),
        1 => (0_usize..8).prop_map(Step::Ends),
    ]
}

#[derive(Debug)]
struct World {
    total: u64,
    state: State,
    vms: Vec<Real>,
    ordinary: Vec<(String, u64)>,
    made: usize,
}

impl World {
    fn apply(&mut self, step: &Step) {
        let count = self.vms.len().max(1);
        match step {
            Step::New { size, more } => {
                self.made += 1;
                let (pod, using) = (format!("p{}", self.made), *size);
                let new = Real { pod, max: size + more, using, shown: using, permit: None };
                let waiting = PodSeen { node: None, waits: true, ..new.pod(0) };
                if self.state.reserve(at(1), waiting, "n").is_ok() {
                    self.state.step(at(1), seen(new.pod(0)));
                    self.vms.push(new);
                }
            }
            Step::Ordinary(size) => {
                self.made += 1;
                let pod = format!("o{}", self.made);
                let waiting = PodSeen { node: None, waits: true, ..plain(&pod, "n", cu(*size)) };
                if self.state.reserve(at(1), waiting, "n").is_ok() {
                    self.state.step(at(1), seen(plain(&pod, "n", cu(*size))));
                    self.ordinary.push((pod, *size));
                }
            }
            Step::Ask { which, goal, lost } => {
                let Some(vm) = self.vms.get_mut(which % count) else { return };
                let asked = (*goal).min(vm.max).max(vm.using);
                let last = vm.permit;
                // An agent that requests less does not use more before the reply.
                vm.permit = vm.permit.map(|permit| permit.min(asked));
                let reply = ask(&mut self.state, &vm.pod, asked, last).unwrap();
                let units = u64::from(reply.permit.exact_quotient(res(1)).unwrap_or(0));
                if !lost && units >= vm.using {
                    vm.permit = Some(units);
                }
            }
            Step::Use { which, share, show } => {
                let Some(vm) = self.vms.get_mut(which % count) else { return };
                if let Some(permit) = vm.permit {
                    vm.using = (*share).min(permit).max(1);
                }
                if *show {
                    vm.shown = vm.using;
                    let pod = vm.pod(0);
                    self.state.step(at(1), seen(pod));
                }
            }
            Step::AgentStarts(which) => {
                if let Some(vm) = self.vms.get_mut(which % count) {
                    vm.permit = None;
                }
            }
            Step::SchedulerStarts(noted) => {
                self.state = state(cu(self.total));
                for vm in &self.vms {
                    self.state.step(at(1), seen(vm.pod(*noted)));
                }
                for (pod, size) in &self.ordinary {
                    self.state.step(at(1), seen(plain(pod, "n", cu(*size))));
                }
            }
            Step::TakenOver => {
                self.state.step(at(1), Event::TakenOver);
                self.state.step(at(1), Event::Listed);
            }
            Step::Ends(which) => {
                if which % count < self.vms.len() {
                    let gone = self.vms.remove(which % count);
                    let (pod, uid) = (name(&gone.pod), format!("uid-{}", gone.pod));
                    self.state.step(at(1), Event::PodGone { pod, uid });
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// S1, S2: at all times everything that VMs may use without a request, and what ordinary pods take, fits the node.
    #[test]
    fn nothing_is_permitted_twice(total in 4_u64..24, steps in proptest::collection::vec(step(), 1..80)) {
        let mut world =
            World { total, state: state(cu(total)), vms: Vec::new(), ordinary: Vec::new(), made: 0 };
        for step in &steps {
            world.apply(step);
            audit(&world.state);
            let may: u64 = world.vms.iter().map(Real::may_use).sum();
            let ordinary: u64 = world.ordinary.iter().map(|(_, size)| size).sum();
            prop_assert!(may + ordinary <= total, "{may} + {ordinary} of {total} after {step:?}: {:?}", world.vms);
            let reserved = sums(&world.state, "n").reserved.cpu;
            prop_assert!(reserved >= u128::from(may + ordinary) * 1000, "all of it is counted");
        }
    }
}

/// #555: what was permitted before a restart is not permitted to others after it. #840: a buffer ends with the first request.
#[test]
fn d555_d840_a_restart_forgets_nothing_and_keeps_no_buffer_for_long() {
    let mut state = state(cu(10));
    // `a` really holds 8, noted is an old 2; `b` really holds 2, noted is an old 8.
    for (pod, noted) in [("a", 2), ("b", 8)] {
        let mut pod = vm(pod, "n", 2, 8);
        pod.vm.as_mut().unwrap().approved = Some(res(noted));
        state.step(at(0), seen(pod));
    }
    assert_eq!(sums(&state, "n").reserved.cpu, 16_000);
    assert_eq!(ask(&mut state, "b", 8, Some(2)).unwrap().permit, res(2), "a may hold the rest");
    assert_eq!(ask(&mut state, "a", 8, Some(8)).unwrap().permit, res(8));
    assert_eq!(sums(&state, "n").reserved.cpu, 10_000);
    assert_eq!(sums(&state, "n").buffer.cpu, 0);
    assert_eq!(ask(&mut state, "a", 4, Some(8)).unwrap().permit, res(4));
    assert_eq!(ask(&mut state, "b", 8, Some(2)).unwrap().permit, res(6));
}

/// S9: an older object does not lower what was permitted since.
#[test]
fn an_old_observation_takes_nothing_back() {
    let mut state = state(cu(10));
    state.step(at(0), seen(vm("p", "n", 2, 8)));
    assert_eq!(ask(&mut state, "p", 6, Some(2)).unwrap().permit, res(6));
    let mut old = vm("p", "n", 2, 8);
    old.vm.as_mut().unwrap().approved = Some(res(2));
    state.step(at(2), seen(old));
    assert_eq!(sums(&state, "n").reserved.cpu, 6000);
}
