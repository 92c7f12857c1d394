//! Makes a run that breaks an invariant smaller, as long as it breaks the same one.

use std::time::Duration;

use crate::{FaultSet, Invariant, Options, Outcome, Scenario, run};

/// Most runs that are tried.
const MOST_RUNS: u32 = 200;

struct Search {
    invariant: Invariant,
    best: (Scenario, Options, Outcome),
    left: u32,
}

impl Search {
    /// Takes a smaller world if it breaks the same invariant.
    fn attempt(&mut self, scenario: &Scenario, options: &Options) -> bool {
        if self.left == 0 || scenario.check().is_err() {
            return false;
        }
        self.left -= 1;
        let outcome = run(scenario, options);
        let same = outcome.broken.as_ref().is_some_and(|broken| broken.invariant == self.invariant);
        if same {
            self.best = (scenario.clone(), options.clone(), outcome);
        }
        same
    }

    /// Leaves faults out, many at once first.
    fn faults(&mut self) {
        let all: Vec<_> = self.best.2.faults.iter().collect();
        let mut size = all.len();
        while size > 0 {
            for chunk in all.chunks(size) {
                let faults = self.best.2.faults;
                let fewer = chunk.iter().fold(faults, |set, fault| set.without(*fault));
                if fewer != faults {
                    let (scenario, mut options, _) = self.best.clone();
                    options.faults = Some(fewer);
                    self.attempt(&scenario, &options);
                }
            }
            size /= 2;
        }
    }

    /// Makes each group as small as it can be, by halves, and leaves out what is not needed.
    fn shrink(&mut self, groups: impl Fn(&mut Scenario) -> Vec<&mut u32>) {
        let count = groups(&mut self.best.0.clone()).len();
        for index in 0..count {
            let mut low = 0;
            loop {
                let (mut scenario, options, _) = self.best.clone();
                let mut values = groups(&mut scenario);
                let Some(value) = values.get_mut(index) else { break };
                let smaller = low + (**value - low.min(**value)) / 2;
                if smaller >= **value {
                    break;
                }
                **value = smaller;
                // A group of none is left out by `check`, so it stays at one.
                if smaller == 0 || !self.attempt(&scenario, &options) {
                    low = smaller + 1;
                }
            }
        }
    }

    fn people(&mut self) {
        let clear: [fn(&mut Scenario); 8] = [
            |scenario| scenario.people.creates = 0.0,
            |scenario| scenario.people.deletes = 0.0,
            |scenario| scenario.people.bounds = 0.0,
            |scenario| scenario.people.holds = 0.0,
            |scenario| scenario.people.cordons = 0.0,
            |scenario| scenario.people.drains = 0.0,
            |scenario| scenario.people.moves = 0.0,
            |scenario| scenario.people.cancels = 0.0,
        ];
        for clear in clear {
            let (mut scenario, options, _) = self.best.clone();
            clear(&mut scenario);
            if scenario != self.best.0 {
                self.attempt(&scenario, &options);
            }
        }
    }

    fn groups(&mut self) {
        for index in (0..self.best.0.vms.len()).rev() {
            let (mut scenario, options, _) = self.best.clone();
            scenario.vms.remove(index);
            self.attempt(&scenario, &options);
        }
        for index in (0..self.best.0.nodes.len()).rev() {
            let (mut scenario, options, _) = self.best.clone();
            scenario.nodes.remove(index);
            self.attempt(&scenario, &options);
        }
    }

    fn duration(&mut self) {
        let second = Duration::from_secs(1);
        let at = self.best.2.broken.as_ref().map_or(Duration::ZERO, |broken| broken.at);
        let (mut high, mut low) = (self.best.0.duration.min(at + second), Duration::ZERO);
        while high > low + second {
            let middle = low + (high - low) / 2;
            let (mut scenario, mut options, _) = self.best.clone();
            scenario.duration = Duration::from_secs(middle.as_secs().max(1));
            options.until = None;
            if self.attempt(&scenario, &options) {
                high = middle;
            } else {
                low = middle;
            }
        }
    }
}

/// Looks for a smaller world that breaks the same invariant: fewer faults, people, VMs, nodes, less time. `None` if nothing
/// is broken. Always ends: at most 200 runs.
pub fn minimise(scenario: &Scenario, options: &Options) -> Option<(Scenario, Options, Outcome)> {
    let outcome = run(scenario, options);
    let invariant = outcome.broken.as_ref()?.invariant;
    let faults: FaultSet = outcome.faults;
    let mut options = options.clone();
    let mut scenario = scenario.clone();
    if let Some(until) = options.until.take() {
        scenario.duration = scenario.duration.min(until.max(Duration::from_secs(1)));
    }
    options.faults = Some(faults);
    let mut search =
        Search { invariant, best: (scenario.clone(), options.clone(), outcome), left: MOST_RUNS };
    search.attempt(&scenario, &options);
    search.duration();
    search.faults();
    search.people();
    search.groups();
    search.shrink(|scenario| scenario.vms.iter_mut().map(|group| &mut group.count).collect());
    search.shrink(|scenario| scenario.nodes.iter_mut().map(|group| &mut group.count).collect());
    search.faults();
    search.duration();
    Some(search.best)
}
