//! All that the agent knows of one VM, and the step from one state to the next.

use std::time::Duration;

use serde::Serialize;

use crate::agent::{action::Outcome, event::Event, settings::Settings, view::View, vm::Vm};

/// One VM's state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    settings: Settings,
    vm: Vm,
    clock: Duration,
}

impl State {
    /// What is known of a VM that was just found. The first step asks the scheduler for what the VM has.
    #[must_use]
    pub fn new(vm: Vm, settings: Settings, now: Duration) -> Self {
        Self { settings, vm, clock: now }
    }

    /// Takes in what happened and says what to do. A time before the latest one seen counts as the latest.
    #[must_use = "the actions must be done"]
    pub fn step(&mut self, now: Duration, event: Event) -> Outcome {
        self.clock = self.clock.max(now);
        if let Event::Vm(vm) = event {
            self.vm = vm;
        }
        Outcome::default()
    }

    /// What a person is shown.
    #[must_use]
    pub fn view(&self, now: Duration) -> View {
        let _ = now;
        let info = &self.vm.info;
        View {
            name: info.name.clone(),
            namespace: info.namespace.clone(),
            now: self.vm.observed.unwrap_or_else(|| info.using()),
            asked: info.using(),
            goal: None,
            permit: None,
            approved: None,
            compute_unit: self.settings.compute_unit,
            min: info.min(),
            max: info.max(),
            load1: None,
            memory_used: None,
            cache_working_set: None,
            metrics_age: None,
            state: String::new(),
            stuck: None,
            limit: None,
            hold: None,
            decisions: Vec::new(),
        }
    }
}
