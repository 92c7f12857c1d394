//! Both ends, two imitated QEMUs and a network between them, in every order of events.

use std::collections::VecDeque;
use std::time::Duration;

use neonvm_core_migration::source::{Action, Event};
use neonvm_core_migration::{Phase, Source, Target, target};
use neonvm_types::runner_protocol::{
    MigrationGuest, MigrationParameters, MigrationProgress, MigrationRequest, MigrationState as State,
    OnTimeout, PostCopy,
};
use proptest::prelude::*;

fn request(parameters: MigrationParameters) -> MigrationRequest {
    MigrationRequest { id: "m".into(), target: "127.0.0.1:1".into(), parameters }
}

#[derive(Debug)]
struct World {
    now: Duration,
    source: Source,
    target: Target,
    /// What the source's shell has to do.
    todo: VecDeque<Action>,
    /// Phases of the two QEMUs that their runners have not received yet.
    unread_here: VecDeque<(Phase, String)>,
    unread_there: VecDeque<Phase>,
    /// The source's QEMU, and whether its guest runs.
    phase: Phase,
    runs_here: bool,
    /// Whether the target's QEMU has all it needs.
    whole_there: bool,
    runs_there: bool,
    ever_ran_there: bool,
    /// The guest continued at the source after it was stopped: the target's state is old.
    went_on_here: bool,
    /// When the source died, it had resumed the guest or was about to.
    had_given_up: bool,
    post_copy: bool,
    link: bool,
    source_alive: bool,
    target_alive: bool,
    disks: bool,
}

impl World {
    fn new(parameters: MigrationParameters, disks: bool) -> Self {
        let (source, actions) = Source::new(Duration::ZERO, request(parameters));
        Self {
            now: Duration::ZERO,
            source,
            target: Target::new(Duration::ZERO, "m".into()),
            todo: actions.into(),
            unread_here: VecDeque::new(),
            unread_there: VecDeque::new(),
            phase: Phase::None,
            runs_here: true,
            whole_there: false,
            runs_there: false,
            ever_ran_there: false,
            went_on_here: false,
            had_given_up: false,
            post_copy: false,
            link: true,
            source_alive: true,
            target_alive: true,
            disks,
        }
    }

    fn source(&mut self, event: Event) -> bool {
        if !self.source_alive {
            return false;
        }
        match self.source.step(self.now, event) {
            Ok(actions) => {
                for action in actions {
                    if action == Action::Leave {
                        (self.source_alive, self.runs_here) = (false, false);
                    }
                    self.todo.push_back(action);
                }
                true
            }
            Err(_) => false,
        }
    }

    fn target(&mut self, event: target::Event) -> bool {
        if !self.target_alive {
            return false;
        }
        match self.target.step(self.now, event) {
            Ok(actions) => {
                for action in actions {
                    match action {
                        target::Action::Continue => {
                            assert!(self.whole_there, "a guest that is not whole is let run");
                            (self.runs_there, self.ever_ran_there) = (true, true);
                            assert!(self.target(target::Event::Runs));
                        }
                        target::Action::End => {
                            assert!(!self.runs_there);
                            self.target_alive = false;
                        }
                        target::Action::Close => {}
                    }
                }
                true
            }
            Err(_) => false,
        }
    }

    fn reachable(&self) -> bool {
        self.link && self.target_alive && self.source_alive
    }

    fn emit(&mut self, phase: Phase, words: &str) {
        self.phase = phase;
        self.unread_here.push_back((phase, words.to_owned()));
    }

    /// Does the oldest thing to do; `ill`: it fails, or its answer is lost.
    fn act(&mut self, ill: bool) {
        let Some(action) = self.todo.pop_front() else { return };
        if !self.source_alive {
            return;
        }
        let lost = || Event::Trouble("lost".into());
        let event = match action {
            Action::Negotiate => {
                let done = self.reachable() && self.target(target::Event::Listening);
                if done && !ill {
                    let (mode, dropped) = (String::new(), Vec::new());
                    Event::Agreed { mode, dropped, post_copy: true, disks: self.disks }
                } else {
                    lost()
                }
            }
            Action::Mirror => {
                if ill {
                    lost()
                } else {
                    Event::Mirrored
                }
            }
            Action::Copy => {
                if ill || !self.phase.is_over() {
                    return self.emit(Phase::Failed, "refused");
                }
                return self.emit(Phase::Active, "");
            }
            Action::StartPostCopy => {
                self.post_copy |= !ill;
                return;
            }
            Action::Settle => {
                let done = self.reachable() && self.target(target::Event::Settled);
                if done && !ill { Event::Settled } else { lost() }
            }
            Action::SwitchOver => {
                if self.phase == Phase::PreSwitchover {
                    self.phase = Phase::Device;
                }
                return;
            }
            Action::CancelCopy => {
                if !self.phase.is_over()
                    && !matches!(self.phase, Phase::PostCopyActive | Phase::PostCopyPaused)
                {
                    self.give_up(Phase::Cancelled);
                }
                return;
            }
            Action::HandOver => self.hand_over(ill),
            Action::Recover => {
                if self.reachable() && !ill && self.phase == Phase::PostCopyPaused {
                    return self.emit(Phase::PostCopyActive, "");
                }
                Event::NotRecovered("lost".into())
            }
            Action::StayHere => {
                if self.reachable() && !ill {
                    self.target(target::Event::Stop);
                }
                self.go_on_here();
                Event::Cleaned(String::new())
            }
            Action::Leave => return,
        };
        self.source(event);
    }

    fn hand_over(&mut self, ill: bool) -> Event {
        let content = Box::new((MigrationProgress::default(), MigrationGuest::default()));
        let done = self.reachable() && self.target(target::Event::Run(content));
        if done && !ill { Event::HandedOver } else { Event::NotHandedOver("lost".into()) }
    }

    fn go_on_here(&mut self) {
        self.went_on_here |= !std::mem::replace(&mut self.runs_here, true);
    }

    fn give_up(&mut self, phase: Phase) {
        self.go_on_here();
        self.emit(phase, "");
    }

    /// The QEMUs change state without an order; `ill`: with an error.
    fn qemu(&mut self, ill: bool) {
        if !self.source_alive {
            return;
        }
        let there = self.link && self.target_alive;
        match (&self.phase, ill || !there) {
            (Phase::Active | Phase::PreSwitchover, true) => self.give_up(Phase::Failed),
            (Phase::Active, false) => {
                self.source(Event::Pass(2));
                self.runs_here = false;
                self.emit(Phase::PreSwitchover, "");
            }
            // Devices are sent: the target may have all, and its report be lost.
            (Phase::Device, true) => {
                if there && self.target.status().state == State::Receiving {
                    self.whole_there = true;
                    self.unread_there.push_back(Phase::Completed);
                }
                self.give_up(Phase::Failed);
            }
            (Phase::Device, false) if self.target.status().state == State::Receiving => {
                self.whole_there = true;
                if self.post_copy {
                    self.unread_there.push_back(Phase::PostCopyActive);
                    self.emit(Phase::PostCopyActive, "");
                } else {
                    self.unread_there.push_back(Phase::Completed);
                    self.emit(Phase::Completed, "");
                }
            }
            (Phase::PostCopyActive, true) => self.emit(Phase::PostCopyPaused, ""),
            (Phase::PostCopyActive, false) => {
                self.unread_there.push_back(Phase::Completed);
                self.emit(Phase::Completed, "");
            }
            _ => {}
        }
    }

    fn deliver(&mut self) {
        if let Some((phase, words)) = self.unread_here.pop_front() {
            self.source(Event::Phase(phase, words));
        }
        if let Some(phase) = self.unread_there.pop_front() {
            self.target(target::Event::Phase(phase));
        }
    }

    fn cut(&mut self) {
        self.link = false;
        if !self.source.status().state.is_over() {
            self.source(Event::Trouble("the target is lost".into()));
        }
        self.target(target::Event::Lost);
    }

    fn has_given_up(&self) -> bool {
        matches!(self.source.status().state, State::Cancelling | State::Cancelled | State::Failed)
    }

    fn kill_source(&mut self) {
        self.had_given_up |= self.source_alive && self.has_given_up();
        self.end_source();
    }

    fn end_source(&mut self) {
        (self.source_alive, self.runs_here) = (false, false);
        self.cut();
    }

    /// Its QEMU ends, and its runner reports that before it ends too.
    fn qemu_ends_here(&mut self) {
        self.had_given_up |= self.source_alive && self.has_given_up();
        self.source(Event::Gone("QEMU has ended".into()));
        self.end_source();
    }

    fn kill_target(&mut self) {
        (self.target_alive, self.runs_there) = (false, false);
        self.cut();
    }

    /// The verdict of a controller that has observed that one of the two runners is gone.
    fn verdict(&mut self) {
        if !self.target_alive && self.source_alive {
            self.source(Event::Verdict(true));
        }
        // If it reported last that the guest continues there, that holds.
        if !self.source_alive && self.target_alive && !self.has_given_up() {
            self.target(target::Event::Verdict(true));
        }
    }

    fn tick(&mut self) {
        let wake = [self.source.wake_at(), self.target.wake_at()].into_iter().flatten().min();
        if let Some(at) = wake {
            self.now = self.now.max(at);
            self.source(Event::Timer);
            self.target(target::Event::Timer);
        }
    }

    fn step(&mut self, choice: u8) {
        match choice {
            0..=29 => self.act(false),
            30..=33 => self.act(true),
            34..=49 => self.qemu(false),
            50..=52 => self.qemu(true),
            53..=79 => self.deliver(),
            80..=84 => self.tick(),
            85 => self.cut(),
            86..=88 => self.link = true,
            89 => self.kill_source(),
            90 => self.kill_target(),
            91 => drop(self.source(Event::Cancel("a person".into()))),
            92 => drop(self.source(Event::Recover)),
            93 => self.qemu_ends_here(),
            _ => self.verdict(),
        }
        self.check();
    }

    fn check(&self) {
        assert!(!(self.runs_here && self.runs_there), "the guest runs on both sides: {self:#?}");
        assert!(!self.runs_there || self.target_alive);
    }

    /// Faults have ended; all components do their pending actions.
    fn calm(&mut self) {
        self.link = true;
        for _ in 0..400 {
            self.act(false);
            self.deliver();
            self.check();
            if self.todo.is_empty() && self.unread_here.is_empty() && self.unread_there.is_empty() {
                self.qemu(false);
                if self.unread_here.is_empty() && self.unread_there.is_empty() {
                    self.verdict();
                    if self.source_alive && !self.source.status().state.is_over() {
                        self.tick();
                    }
                }
            }
        }
    }
}

fn parameters() -> impl Strategy<Value = MigrationParameters> {
    let post_copy =
        prop_oneof![Just(PostCopy::Never), Just(PostCopy::OnTimeout), Just(PostCopy::AfterFirstPass)];
    let on_timeout =
        prop_oneof![Just(OnTimeout::Abort), Just(OnTimeout::PostCopy), Just(OnTimeout::Continue)];
    (post_copy, on_timeout, 1_u32..100).prop_map(|(post_copy, on_timeout, completion_timeout_s)| {
        MigrationParameters { post_copy, on_timeout, completion_timeout_s, ..MigrationParameters::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_guest_runs_on_one_side(
        parameters in parameters(), disks: bool, choices in proptest::collection::vec(0_u8..97, 0..60),
    ) {
        let mut world = World::new(parameters, disks);
        for choice in choices {
            world.step(choice);
        }
        world.calm();
        let (source, target) = (world.source.status().state, world.target.status().state);
        if world.source_alive {
            prop_assert!(source.is_over() || matches!(source, State::PostCopy | State::PostCopyPaused),
                "the source does not end: {world:#?}");
        }
        // What is torn in two by the death of one side cannot live; all else does, on one side.
        let torn = world.post_copy && !(world.source_alive && world.target_alive);
        let both_killed = !world.source_alive && !world.target_alive;
        let lost_alone = !world.source_alive && (!world.whole_there || world.went_on_here || world.had_given_up)
            || world.ever_ran_there && !world.target_alive;
        if !torn && !both_killed && !lost_alone {
            prop_assert!(world.runs_here != world.runs_there, "{source:?} {target:?} {world:#?}");
        }
    }

    #[test]
    fn before_the_switch_it_can_always_be_called_off(
        parameters in parameters(), disks: bool, choices in proptest::collection::vec(0_u8..53, 0..30),
    ) {
        let mut world = World::new(parameters, disks);
        for choice in choices {
            world.step(choice);
        }
        let state = world.source.status().state;
        let on_its_way = matches!(world.phase, Phase::Device) || world.todo.contains(&Action::SwitchOver);
        let called_off = world.source(Event::Cancel(String::new()));
        if !on_its_way && world.unread_here.is_empty() {
            prop_assert_eq!(called_off, !state.has_left(), "{:?}", state);
        }
        world.calm();
        let end = world.source.status().state;
        if called_off && world.source_alive {
            prop_assert!(matches!(end, State::Cancelled | State::Failed), "{:?}", end);
            prop_assert!(world.runs_here && !world.runs_there);
        }
    }
}

/// A migration that succeeds, step by step.
fn well(parameters: MigrationParameters) -> World {
    let mut world = World::new(parameters, true);
    world.act(false);
    assert_eq!(world.source.status().state, State::Mirroring);
    world.act(false);
    assert_eq!(world.source.status().state, State::Copying);
    world.act(false);
    world.deliver();
    world
}

#[test]
fn a_move_goes_through_its_states() {
    let mut world = well(MigrationParameters::default());
    world.qemu(false);
    world.deliver();
    assert_eq!(world.source.status().state, State::Switching);
    world.act(false);
    world.act(false);
    world.qemu(false);
    world.deliver();
    assert_eq!(world.source.status().state, State::HandingOver);
    assert_eq!(world.target.status().state, State::Arrived);
    assert!(world.source.step(world.now, Event::Cancel(String::new())).is_err());
    world.act(true);
    assert!(world.source.status().reason.contains("lost") && world.runs_there);
    world.tick();
    world.act(false);
    assert_eq!(world.source.status().state, State::Completed);
    assert_eq!(world.target.status().state, State::Completed);
    assert_eq!(world.source.wake_at(), None);
}

/// The target's state is then the newest, and is used unless the source has reported that the guest continued there.
#[test]
fn a_source_whose_qemu_ends_at_the_switch_does_not_report_that_the_guest_stayed() {
    for (settled, sent, expected) in
        [(false, false, State::Failed), (true, false, State::Switching), (true, true, State::HandingOver)]
    {
        let mut world = well(MigrationParameters::default());
        world.qemu(false);
        world.deliver();
        if settled {
            world.act(false);
        }
        if sent {
            world.act(false);
            world.qemu(false);
            world.deliver();
        }
        assert!(world.source(Event::Gone("QEMU has ended".into())));
        let status = world.source.status().clone();
        assert_eq!((status.state, status.reason.as_str()), (expected, "QEMU has ended"));
        assert_eq!(world.source.wake_at(), None);
        assert_eq!(world.source(Event::Verdict(true)), expected == State::Failed);
        assert!(world.source(Event::Timer) && world.source.status() == &status);
    }
    // Given to the source because the target is gone, it is not at the target.
    let mut world = well(MigrationParameters::default());
    world.qemu(false);
    world.deliver();
    world.act(false);
    world.act(false);
    world.qemu(false);
    world.deliver();
    world.kill_target();
    world.verdict();
    assert_eq!(world.source.status().state, State::Cancelling);
    assert!(world.source(Event::Gone("QEMU has ended".into())));
    assert_eq!(world.source.status().state, State::Failed);
}

#[test]
fn when_the_time_is_up() {
    let run = |on_timeout| {
        let parameters =
            MigrationParameters { on_timeout, completion_timeout_s: 5, ..MigrationParameters::default() };
        let mut world = well(parameters);
        assert_eq!(world.source.wake_at(), Some(Duration::from_secs(5)));
        world.tick();
        world
    };
    let world = run(OnTimeout::Abort);
    assert_eq!(world.source.status().reason, "not done within 5 s");
    assert_eq!(world.todo, [Action::CancelCopy]);
    let world = run(OnTimeout::Continue);
    assert!(world.source.status().reason.starts_with("late") && world.todo.is_empty());
    assert_eq!(world.source.wake_at(), None);
    let mut world = run(OnTimeout::PostCopy);
    assert!(world.todo.is_empty(), "memory is gone through once before");
    world.source(Event::Pass(2));
    assert_eq!(world.todo, [Action::StartPostCopy]);
}

#[test]
fn a_target_of_no_use_ends() {
    let mut target = Target::new(Duration::ZERO, "m".into());
    assert!(target.step(Duration::ZERO, target::Event::Lost).unwrap().is_empty(), "another may come");
    target.step(Duration::ZERO, target::Event::Listening).unwrap();
    assert!(target.step(Duration::ZERO, target::Event::Listening).is_err());
    let actions = target.step(Duration::ZERO, target::Event::Lost).unwrap();
    assert_eq!((actions.as_slice(), target.status().state), (&[target::Action::End][..], State::Failed));
    let mut target = Target::new(Duration::ZERO, "m".into());
    let actions = target.step(Duration::from_secs(900), target::Event::Timer).unwrap();
    assert_eq!(actions, [target::Action::End]);
    assert_eq!(target.status().reason, "no source has come");
}

/// A target that received everything in a second, then the order `run`, and whose guest runs.
fn let_run_after_a_second(run: target::Event) -> Target {
    let second = Duration::from_secs(1);
    let mut target = Target::new(Duration::ZERO, "m".into());
    target.step(Duration::ZERO, target::Event::Listening).unwrap();
    target.step(second, target::Event::Phase(Phase::Completed)).unwrap();
    assert_eq!(target.step(second, run).unwrap(), [target::Action::Continue]);
    target.step(second, target::Event::Runs).unwrap();
    target
}

/// The source may go right after it got the report: then no [`Stop`](target::Event::Stop) comes.
#[test]
fn the_port_of_a_guest_that_has_arrived_is_closed_without_its_source() {
    let seconds = Duration::from_secs;
    let run = || target::Event::Run(Box::default());
    let mut target = let_run_after_a_second(run());
    assert_eq!(target.wake_at(), Some(seconds(61)));
    // The response was lost, and the source repeats its order: the target listens for as long again.
    assert!(target.step(seconds(31), run()).unwrap().is_empty());
    assert!(target.step(seconds(61), target::Event::Timer).unwrap().is_empty());
    assert!(target.step(seconds(70), target::Event::Lost).unwrap().is_empty());
    assert_eq!(target.wake_at(), Some(seconds(91)));
    assert_eq!(target.step(seconds(91), target::Event::Timer).unwrap(), [target::Action::Close]);
    assert_eq!((target.status().state, target.wake_at()), (State::Completed, None));
}

/// QEMU releases a guest before it has measured the downtime.
#[test]
fn numbers_that_are_counted_late_are_kept_by_the_target() {
    let seconds = Duration::from_secs;
    let run = |downtime_ms| {
        let progress = MigrationProgress { downtime_ms, passes: 2, ..MigrationProgress::default() };
        target::Event::Run(Box::new((progress, MigrationGuest::default())))
    };
    let mut target = let_run_after_a_second(run(None));
    for (reported, kept) in [(None, None), (Some(21), Some(21)), (None, Some(21))] {
        assert!(target.step(seconds(2), run(reported)).unwrap().is_empty());
        assert_eq!(target.status().progress.downtime_ms, kept);
    }
}
