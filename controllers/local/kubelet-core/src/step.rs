//! The step function.

use super::size::{InProgress, Judgement, PodRequests, Reason, Resources, Room};
use super::{Action, Ended, Event, Machine, Millis, Phase, ProbeKind, RestartPolicy, Run, State, Stop};

/// Time for the containers of a pod without an object: no client waits for them any more.
const ORPHAN_GRACE: Millis = 2000;
/// A container that ran this long is taken for healthy: the next pause is the first one again.
const HEALTHY: Millis = 600_000;
/// Longest pause, in first pauses.
const LONGEST_PAUSE: u64 = 30;

impl Machine {
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Prepared => {
                self.hold_up = None;
                if self.phase == Phase::Preparing {
                    self.phase = Phase::Running;
                }
                if self.phase == Phase::Running {
                    actions.push(Action::Resize);
                }
            }
            Event::HeldUp { reason, message } => self.hold_up = Some((reason, message)),
            Event::Refused { reason, message } => self.refuse(reason, message, &mut actions),
            Event::Started { container } => self.started(now, &container, &mut actions),
            Event::NotStarted { container, reason, message } => {
                let ended = Ended { code: 128, signal: None, reason, message, started: now, finished: now };
                self.exited(now, &container, ended, &mut actions);
            }
            Event::Exited { container, ended } => self.exited(now, &container, ended, &mut actions),
            Event::Probed { container, probe, good, message } => {
                self.probed(now, &container, probe, good, &message, &mut actions);
            }
            Event::Delete { grace } => self.end(now, grace, false, &mut actions),
            Event::Vanished => self.end(now, ORPHAN_GRACE, true, &mut actions),
            Event::Cleaned => {
                if self.phase == Phase::Cleaning {
                    self.phase = Phase::Ended;
                }
                if let Some(stop) = self.stop {
                    actions.push(if stop.gone { Action::Forget } else { Action::Remove });
                }
            }
            Event::Specified { wanted, generation, room } => {
                self.specified(now, wanted, generation, room, &mut actions);
            }
            Event::Sized { resources, fault } => self.sized(now, resources, fault, &mut actions),
            Event::Time => {}
        }
        self.advance(now, &mut actions);
        actions
    }

    /// The first actions of a pod that was just taken on, or that a restarted node takes up.
    pub fn resume(&mut self, now: Millis) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.phase {
            Phase::Preparing => match self.plan.unsupported.clone() {
                Some(message) => self.refuse("UnsupportedContainer".into(), message, &mut actions),
                None => actions.push(Action::Prepare),
            },
            // Volumes are kept up to date, and what the network lacks is mended.
            Phase::Running => actions.push(Action::Prepare),
            Phase::Stopping => {
                let running = self.running().map(str::to_owned);
                actions.extend(running.map(|container| Action::Terminate { container }));
            }
            Phase::Ended => {}
            Phase::Cleaning => actions.push(Action::CleanUp),
        }
        if self.phase == Phase::Ended
            && let Some(stop) = self.stop
        {
            actions.push(if stop.gone { Action::Forget } else { Action::Remove });
        }
        self.advance(now, &mut actions);
        actions
    }

    /// The containers that may run now: the first init container that has not succeeded, or the main ones.
    pub(crate) fn due_containers(&self) -> impl Iterator<Item = &str> {
        let succeeded = |name: &str| matches!(self.runs.get(name).map(|run| &run.state), Some(State::Ended(ended)) if ended.code == 0);
        let init = self.plan.init.iter().find(|container| !succeeded(&container.name));
        let main = if init.is_some() { &[][..] } else { &self.plan.main[..] };
        init.into_iter().chain(main).map(|container| container.name.as_str())
    }

    fn refuse(&mut self, reason: String, message: String, actions: &mut Vec<Action>) {
        if self.phase != Phase::Preparing {
            return;
        }
        actions.push(Action::Note { warning: true, reason: "Failed", message: message.clone() });
        self.failure = Some((reason, message));
        self.clean_up(actions);
    }

    fn clean_up(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Cleaning;
        actions.push(Action::CleanUp);
    }

    fn started(&mut self, now: Millis, name: &str, actions: &mut Vec<Action>) {
        let (startup, readiness) =
            self.plan.container(name).map_or((false, false), |plan| (plan.startup, plan.readiness));
        let is_stopping = self.phase == Phase::Stopping;
        self.hold_up = None;
        let Some(run) = self.runs.get_mut(name) else { return };
        if run.state != State::Starting {
            return;
        }
        run.state = State::Running { since: now };
        run.started = !startup;
        run.ready = !startup && !readiness;
        run.ending = None;
        actions.push(Action::Note {
            warning: false,
            reason: "Started",
            message: format!("Started container {name}"),
        });
        if is_stopping {
            actions.push(Action::Terminate { container: name.to_owned() });
        }
    }

    fn exited(&mut self, now: Millis, name: &str, ended: Ended, actions: &mut Vec<Action>) {
        let is_init = self.plan.init.iter().any(|container| container.name == name);
        let is_over = self.stop.is_some() || self.phase != Phase::Running;
        let (restart, first) = (self.plan.restart, self.plan.pause);
        let Some(run) = self.runs.get_mut(name) else { return };
        if !matches!(run.state, State::Running { .. } | State::Starting) {
            return;
        }
        (run.ready, run.started, run.ending) = (false, false, None);
        let again = match restart {
            RestartPolicy::Always => !(is_init && ended.code == 0),
            RestartPolicy::OnFailure => ended.code != 0,
            RestartPolicy::Never => false,
        };
        if !again || is_over {
            run.state = State::Ended(ended);
            return;
        }
        let ran = ended.finished.saturating_sub(ended.started);
        run.pause =
            if ran >= HEALTHY || run.pause == 0 { first } else { (run.pause * 2).min(first * LONGEST_PAUSE) };
        let message = format!("back-off {} ms restarting failed container={name}", run.pause);
        actions.push(Action::Note { warning: true, reason: "BackOff", message: message.clone() });
        run.restarts = run.restarts.saturating_add(1);
        run.last = Some(ended);
        run.state = State::Waiting { until: now + run.pause, reason: "CrashLoopBackOff".into(), message };
    }

    fn probed(
        &mut self,
        now: Millis,
        name: &str,
        probe: ProbeKind,
        good: bool,
        message: &str,
        actions: &mut Vec<Action>,
    ) {
        let grace = self.plan.grace;
        let readiness = self.plan.container(name).is_some_and(|plan| plan.readiness);
        let is_stopping = self.phase != Phase::Running;
        let Some(run) = self.runs.get_mut(name) else { return };
        if !matches!(run.state, State::Running { .. }) {
            return;
        }
        if !good {
            let message = format!("{probe:?} probe failed: {message}");
            actions.push(Action::Note { warning: true, reason: "Unhealthy", message });
        }
        match (probe, good) {
            (ProbeKind::Readiness, good) => run.ready = good && run.started,
            (ProbeKind::Startup, true) => {
                run.started = true;
                run.ready = !readiness;
            }
            (ProbeKind::Liveness, true) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                if run.ending.is_none() && !is_stopping {
                    run.ending = Some((now + grace, false));
                    let message = format!("Container {name} failed {probe:?} probe, will be restarted");
                    actions.push(Action::Note { warning: false, reason: "Killing", message });
                    actions.push(Action::Terminate { container: name.to_owned() });
                }
            }
        }
    }

    /// The pod is to end within a time.
    fn end(&mut self, now: Millis, grace: Millis, gone: bool, actions: &mut Vec<Action>) {
        let deadline = now.saturating_add(grace);
        let first = self.stop.is_none();
        let stop = self.stop.get_or_insert(Stop { deadline, killed: false, deleted: true, gone });
        // A second request can only hurry.
        stop.deadline = stop.deadline.min(deadline);
        stop.gone |= gone;
        match self.phase {
            Phase::Preparing => self.clean_up(actions),
            Phase::Running => {
                self.phase = Phase::Stopping;
                let running: Vec<String> = self.running().map(str::to_owned).collect();
                for container in running {
                    let message = format!("Stopping container {container}");
                    actions.push(Action::Note { warning: false, reason: "Killing", message });
                    if matches!(self.runs.get(&container).map(|run| &run.state), Some(State::Running { .. }))
                    {
                        actions.push(Action::Terminate { container });
                    }
                }
            }
            Phase::Ended if gone => actions.push(Action::Forget),
            Phase::Ended if first => actions.push(Action::Remove),
            Phase::Stopping | Phase::Cleaning | Phase::Ended => {}
        }
    }

    fn specified(
        &mut self,
        now: Millis,
        wanted: PodRequests,
        generation: i64,
        room: Room,
        actions: &mut Vec<Action>,
    ) {
        if self.stop.is_some() || self.has_ended() {
            self.size.generation = Some(generation);
            return;
        }
        let note = |warning, reason, message| Action::Note { warning, reason, message };
        match self.size.judge(now, wanted, generation, room) {
            Judgement::Same => {}
            Judgement::Accepted => {
                let message = format!("Pod resize started: generation {generation}");
                actions.push(note(false, "ResizeStarted", message));
                if self.phase == Phase::Running {
                    actions.push(Action::Resize);
                }
            }
            Judgement::Waits { is_new } => {
                if let (true, Some(pending)) = (is_new, &self.size.pending) {
                    let reason = match pending.reason {
                        Reason::Deferred => "ResizeDeferred",
                        Reason::Infeasible => "ResizeInfeasible",
                    };
                    actions.push(note(true, reason, pending.message.clone()));
                }
            }
        }
    }

    fn sized(&mut self, now: Millis, resources: Resources, fault: Option<String>, actions: &mut Vec<Action>) {
        let before = self.size.in_progress.clone();
        let again = self.size.set(now, resources, fault);
        match (before, &self.size.in_progress) {
            (Some(_), None) => {
                let message = "Pod resize completed".to_owned();
                actions.push(Action::Note { warning: false, reason: "ResizeCompleted", message });
            }
            (Some(before), Some(InProgress { fault: Some(fault), .. }))
                if before.fault.as_ref() != Some(fault) =>
            {
                actions.push(Action::Note { warning: true, reason: "ResizeError", message: fault.clone() });
            }
            _ => {}
        }
        if again && self.phase == Phase::Running {
            actions.push(Action::Resize);
        }
    }

    /// Does what is due.
    fn advance(&mut self, now: Millis, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Running => {
                if self.size.retry.is_some_and(|due| due <= now) {
                    self.size.retry = None;
                    actions.push(Action::Resize);
                }
                self.kill_overdue(now, actions);
                self.start_due(now, actions);
                self.finish(actions);
            }
            Phase::Stopping => {
                let running: Vec<String> = self.running().map(str::to_owned).collect();
                if running.is_empty() {
                    self.clean_up(actions);
                } else if let Some(stop) = &mut self.stop
                    && !stop.killed
                    && now >= stop.deadline
                {
                    stop.killed = true;
                    actions.extend(running.into_iter().map(|container| Action::Kill { container }));
                }
            }
            Phase::Preparing | Phase::Cleaning | Phase::Ended => {}
        }
    }

    fn kill_overdue(&mut self, now: Millis, actions: &mut Vec<Action>) {
        for (name, run) in &mut self.runs {
            if let Some((deadline, killed)) = &mut run.ending
                && !*killed
                && now >= *deadline
            {
                *killed = true;
                actions.push(Action::Kill { container: name.clone() });
            }
        }
    }

    fn start_due(&mut self, now: Millis, actions: &mut Vec<Action>) {
        let due: Vec<String> = self.due_containers().map(str::to_owned).collect();
        for name in due {
            let Some(run) = self.runs.get_mut(&name) else { continue };
            if matches!(run.state, State::Waiting { until, .. } if until <= now) {
                run.state = State::Starting;
                actions.push(Action::Start { container: name });
            }
        }
    }

    /// Ends the pod if nothing is left to run.
    fn finish(&mut self, actions: &mut Vec<Action>) {
        let failed = |run: &Run| matches!(&run.state, State::Ended(ended) if ended.code != 0);
        let init_failed = self.plan.init.iter().any(|plan| self.runs.get(&plan.name).is_some_and(failed));
        let is_over = |run: &Run| matches!(run.state, State::Ended(_));
        if init_failed || self.plan.main.iter().all(|plan| self.runs.get(&plan.name).is_some_and(is_over)) {
            self.clean_up(actions);
        }
    }
}
