use proptest::prelude::*;

use super::*;

mod disks;
mod limits;
mod pause;
mod suspend;

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        size: size(1000, 1),
        cpu: (MilliCpu::new(250), MilliCpu::new(4000)),
        memory: (Bytes::gib(1), Bytes::gib(8)),
        slot: Bytes::gib(1),
    }
}

fn size(cpu: u32, gib: u32) -> SizeRequest {
    SizeRequest { cpu: MilliCpu::new(cpu), memory: Bytes::gib(gib) }
}

fn started() -> Core {
    let mut core = Core::new(limits());
    assert_eq!(core.step(SECOND, Event::Started(MachineInfo::default())), []);
    core.step(SECOND, Event::Memory(Bytes::gib(1)));
    core
}

fn running() -> Core {
    let mut core = started();
    core.step(SECOND, Event::Answered { online: 1 });
    assert!(core.status().ready);
    core
}

fn problems(core: &Core) -> Vec<ProblemReason> {
    core.status().problems.iter().map(|problem| problem.reason).collect()
}

/// Who follows a runner drops documents whose number is not higher than that of the last.
#[test]
fn numbers_of_documents_continue_those_of_the_preparation() {
    let mut core = Core::new(limits());
    core.continue_after(2);
    assert_eq!(core.status().sequence, 2);
    core.step(Duration::ZERO, Event::QuotaFailed("no".into()));
    assert_eq!(core.status().sequence, 3);
}

#[test]
fn a_guest_that_does_not_report_is_asked_until_it_answers() {
    let mut core = started();
    let mut now = core.wake_at().unwrap();
    for _ in 0..10 {
        assert!(matches!(core.step(now, Event::Timer)[..], [Action::AskGuest(_)]));
        core.step(now, Event::Silent("refused".into()));
        assert!(core.wake_at().unwrap() > now && core.wake_at().unwrap() <= now + ASK_LONGEST);
        now = core.wake_at().unwrap();
    }
    core.step(now, Event::Answered { online: 1 });
    assert!(core.status().ready && core.wake_at().is_none(), "nothing is polled once it is up");
}

#[test]
fn a_guest_that_reports_is_ready_when_its_workload_was_started() {
    let mut core = started();
    core.step(SECOND, Event::Report(ReportKind::Booted { version: "1".into() }));
    assert_eq!(core.wake_at(), Some(SECOND + ASK_OVERDUE), "it will report when");
    assert_eq!(core.step(SECOND, Event::Report(ReportKind::Ready)), [Action::AskGuest(ASK_WITHIN * 16 / 15)]);
    core.step(SECOND, Event::Answered { online: 1 });
    assert!(!core.status().ready);
    core.step(SECOND, Event::Report(ReportKind::WorkloadStarted { pid: 9, restarts: 0 }));
    assert!(core.status().ready);
}

#[test]
fn cpu_grows_and_shrinks_by_observation() {
    let mut core = running();
    let actions = core.step(SECOND, Event::Resize(size(2500, 1)));
    assert_eq!(actions, [Action::SetQuota(MilliCpu::new(2500)), Action::SetCpus(MilliCpu::new(2500))]);
    assert_eq!(core.status().cpu.applied, MilliCpu::new(1000));
    core.step(SECOND, Event::QuotaSet(MilliCpu::new(2500)));
    assert_eq!(
        core.status().cpu.applied,
        MilliCpu::new(1000),
        "one CPU cannot do the work of two and a half"
    );
    core.step(SECOND, Event::Answered { online: 3 });
    assert_eq!((core.status().cpu.applied, core.status().cpu.online), (MilliCpu::new(2500), 3));
    // Down: first the guest gives back, with the CPU it has; then the quota.
    assert_eq!(core.step(SECOND, Event::Resize(size(500, 1))), [Action::SetCpus(MilliCpu::new(500))]);
    assert_eq!(core.step(SECOND, Event::Answered { online: 1 }), [Action::SetQuota(MilliCpu::new(500))]);
    core.step(SECOND, Event::QuotaSet(MilliCpu::new(500)));
    assert_eq!(core.status().cpu.applied, MilliCpu::new(500));
    assert_eq!(core.wake_at(), None);
}

#[test]
fn a_lower_quota_waits_for_memory_but_not_for_ever() {
    let mut core = running();
    core.step(SECOND, Event::Resize(size(1000, 4)));
    core.step(SECOND, Event::Memory(Bytes::gib(4)));
    let actions = core.step(SECOND, Event::Resize(size(250, 1)));
    assert_eq!(actions, [Action::SetMemory(Bytes::gib(1))]);
    assert_eq!(core.step(2 * SECOND, Event::Memory(Bytes::gib(3))), []);
    assert_eq!(core.wake_at(), Some(4 * SECOND));
    assert_eq!(core.step(4 * SECOND, Event::Timer), [Action::SetQuota(MilliCpu::new(250))]);
}

#[test]
fn a_change_within_one_cpu_is_a_matter_of_the_quota_alone() {
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::Resize(size(250, 1))), [Action::SetQuota(MilliCpu::new(250))]);
}

/// With cgroups of version 1 the kernel refuses a quota that a cgroup above does not allow.
#[test]
fn a_quota_that_is_refused_is_not_taken_for_set_and_is_set_again() {
    let mut core = running();
    core.step(SECOND, Event::QuotaSet(MilliCpu::new(1000)));
    core.step(SECOND, Event::Resize(size(500, 1)));
    core.step(SECOND, Event::QuotaFailed("Invalid argument".into()));
    assert_eq!(core.status().cpu.applied, MilliCpu::new(1000), "what was in force still is");
    assert_eq!(problems(&core), [ProblemReason::CpuNotLimited]);
    assert_eq!(core.wake_at(), Some(2 * SECOND));
    assert_eq!(core.step(2 * SECOND, Event::Timer), [Action::SetQuota(MilliCpu::new(500))]);
    core.step(2 * SECOND, Event::QuotaSet(MilliCpu::new(500)));
    assert_eq!(core.status().cpu.applied, MilliCpu::new(500));
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
}

#[test]
fn a_guest_that_does_not_change_its_cpus_is_asked_again_and_reported() {
    let mut core = running();
    core.step(SECOND, Event::Resize(size(4000, 1)));
    let (mut now, mut sent) = (SECOND, 1);
    while problems(&core).is_empty() {
        core.step(now, Event::Silent("timed out".into()));
        now = core.wake_at().unwrap();
        assert!(now < 60 * SECOND);
        sent += core.step(now, Event::Timer).iter().filter(|a| matches!(a, Action::SetCpus(_))).count();
    }
    assert!(sent > 3);
    assert_eq!(problems(&core), [ProblemReason::CpuNotScaled]);
    core.step(now, Event::Answered { online: 4 });
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
}

/// A timer that is due and does nothing would be due again and again.
#[test]
fn a_silence_about_a_size_that_is_not_wanted_any_more_is_not_repeated() {
    let mut core = running();
    core.step(SECOND, Event::Resize(size(2000, 1)));
    core.step(SECOND, Event::Resize(size(1000, 1)));
    core.step(2 * SECOND, Event::Silent("timed out".into()));
    assert!(core.wake_at().is_none_or(|at| at > 2 * SECOND), "{:?}", core.wake_at());
    core.step(60 * SECOND, Event::Timer);
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
}

#[test]
fn a_guest_that_is_to_stop_is_not_woken_for_its_size() {
    let mut core = running();
    core.step(SECOND, Event::Resize(size(2000, 4)));
    core.step(SECOND, Event::Stop { grace: 60 * SECOND });
    core.step(SECOND, Event::Report(ReportKind::ShuttingDown { reason: "power button".into() }));
    core.step(30 * SECOND, Event::Timer);
    assert_eq!(core.wake_at(), Some(60 * SECOND));
}

#[test]
fn a_guest_that_keeps_its_memory_is_reported_with_what_it_reached_and_asked_again() {
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::Resize(size(1000, 4))), [Action::SetMemory(Bytes::gib(4))]);
    core.step(SECOND, Event::Memory(Bytes::gib(4)));
    assert_eq!(core.wake_at(), None);
    core.step(SECOND, Event::Resize(size(1000, 2)));
    core.step(2 * SECOND, Event::Memory(Bytes::gib(3)));
    let look = core.wake_at().unwrap();
    assert_eq!(core.step(look, Event::Timer), [Action::SetMemory(Bytes::gib(2))]);
    assert_eq!(problems(&core), [ProblemReason::MemoryNotReleased]);
    assert!(core.status().problems[0].message.contains("down to 3Gi, not to 2Gi"));
    let again = core.wake_at().unwrap();
    assert_eq!(core.step(again, Event::Timer), [Action::SetMemory(Bytes::gib(2))]);
    core.step(again, Event::Memory(Bytes::gib(2)));
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
}

#[test]
fn a_late_answer_of_qemu_does_not_undo_a_newer_request() {
    let mut core = running();
    core.step(SECOND, Event::Resize(size(1000, 4)));
    core.step(SECOND, Event::Resize(size(1000, 1)));
    core.step(SECOND, Event::Memory(Bytes::gib(4)));
    assert_eq!(core.status().memory.asked, Bytes::gib(1));
    let look = core.wake_at().unwrap();
    assert_eq!(core.step(look, Event::Timer), [Action::SetMemory(Bytes::gib(1))]);
}

#[test]
fn the_power_button_is_pressed_until_it_is_noticed_and_force_comes_last() {
    let mut core = running();
    assert_eq!(core.step(SECOND, Event::Stop { grace: 30 * SECOND }), [Action::PressPowerButton]);
    let again = core.wake_at().unwrap();
    assert_eq!(core.step(again, Event::Timer), [Action::PressPowerButton]);
    core.step(again, Event::Report(ReportKind::ShuttingDown { reason: "power button".into() }));
    assert_eq!(core.wake_at(), Some(30 * SECOND), "one second is kept for the runner itself");
    assert_eq!(core.step(30 * SECOND, Event::Timer), [Action::Kill]);
    core.step(30 * SECOND, Event::Ended(QemuEnd { forced: true, ..QemuEnd::default() }));
    assert_eq!(core.status().exit.as_ref().unwrap().reason, ExitReason::StoppedByForce);
}

#[test]
fn a_guest_that_ignores_the_button_is_a_problem() {
    let mut core = running();
    core.step(SECOND, Event::Stop { grace: 60 * SECOND });
    for _ in 0..5 {
        let at = core.wake_at().unwrap();
        core.step(at, Event::Timer);
    }
    assert_eq!(problems(&core), [ProblemReason::PowerButtonIgnored]);
}

#[test]
fn every_end_has_its_reason() {
    use ExitReason as R;
    let panic = vec!["[    1.5] Kernel panic - not syncing: Attempted to kill init!".to_owned()];
    let end = |cause: &str| QemuEnd { cause: Some(cause.to_owned()), ..QemuEnd::default() };
    let code = |code| Some(ProcessExit { code: Some(code), ..ProcessExit::default() });
    let ended = Some("workload ended");
    for (end, stopping, announced, workload, reason, success) in [
        (
            QemuEnd { console: vec!["reboot: Power down".to_owned()], ..end("guest-shutdown") },
            true,
            None,
            None,
            R::Stopped,
            true,
        ),
        (end("guest-shutdown"), true, Some("power button"), None, R::Stopped, true),
        (end("guest-shutdown"), false, None, None, R::PoweredOff, true),
        (end("guest-shutdown"), false, ended, code(0), R::WorkloadEnded, true),
        (end("guest-shutdown"), false, ended, code(3), R::WorkloadEnded, false),
        (end("guest-reset"), false, None, None, R::Rebooted, true),
        (QemuEnd { console: panic.clone(), ..end("guest-reset") }, false, None, None, R::GuestPanic, false),
        (QemuEnd { panicked: true, ..end("guest-reset") }, true, None, None, R::GuestPanic, false),
        (
            QemuEnd { internal_error: true, ..QemuEnd::default() },
            false,
            None,
            None,
            R::AcceleratorFailure,
            false,
        ),
        (
            QemuEnd { words: "killed by signal 9".into(), ..QemuEnd::default() },
            false,
            None,
            None,
            R::QemuEnded,
            false,
        ),
        (QemuEnd { words: "killed".into(), ..QemuEnd::default() }, true, None, None, R::QemuEnded, false),
    ] {
        let exit = exit::from_end(&end, stopping, announced, workload);
        assert_eq!((exit.reason, exit.is_success()), (reason, success), "{end:?}");
        assert_eq!(exit.console, end.console, "of every end");
    }
}

#[test]
fn sizes_out_of_bounds_are_refused_with_the_bounds() {
    let core = running();
    assert_eq!(core.check(&size(5000, 1)).unwrap_err(), "cpu: 5 is not between 250m and 4");
    assert_eq!(core.check(&size(1000, 9)).unwrap_err(), "memory: 9Gi is not between 1Gi and 8Gi");
    let odd = SizeRequest { cpu: MilliCpu::new(1000), memory: Bytes::new((1 << 30) + 1) };
    assert!(core.check(&odd).unwrap_err().contains("not a multiple of the slot size 1Gi"));
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Started(MachineInfo::default())),
        (250_u32..4000, 1_u32..8).prop_map(|(cpu, gib)| Event::Resize(size(cpu, gib))),
        (0_u64..40).prop_map(|s| Event::Stop { grace: Duration::from_secs(s) }),
        (0_u32..9).prop_map(|gib| Event::Memory(Bytes::gib(gib))),
        (0_u32..6).prop_map(|online| Event::Answered { online }),
        Just(Event::Silent("no".into())),
        (250_u32..4000).prop_map(|cpu| Event::QuotaSet(MilliCpu::new(cpu))),
        Just(Event::QuotaFailed("no".into())),
        any::<bool>().prop_map(Event::Pause),
        any::<bool>().prop_map(Event::Paused),
        Just(Event::PauseFailed("no".into())),
        Just(Event::DiskRoom),
        Just(Event::Report(ReportKind::Ready)),
        Just(Event::Report(ReportKind::WorkloadStarted { pid: 1, restarts: 0 })),
        Just(Event::Report(ReportKind::ShuttingDown { reason: "power button".into() })),
        Just(Event::Ended(QemuEnd::default())),
        Just(Event::Timer),
    ]
}

proptest! {
    /// Whatever happens: numbers only grow, what is observed is bounded by what is there, and the end is the end.
    #[test]
    fn laws(events in proptest::collection::vec((any_event(), 0_u64..3000), 0..80)) {
        let (mut core, mut now) = (Core::new(limits()), Duration::ZERO);
        for (event, pause) in events {
            now += Duration::from_millis(pause);
            let before = core.status().clone();
            let actions = core.step(now, event);
            let after = core.status();
            prop_assert!(after.sequence >= before.sequence);
            prop_assert_eq!(after.sequence == before.sequence, *after == before);
            prop_assert!(after.cpu.applied.milli() <= after.cpu.online * 1000);
            prop_assert!(before.state <= after.state, "{:?} to {:?}", before.state, after.state);
            if before.state == RunnerState::Ended {
                prop_assert!(actions.is_empty() && *after == before);
                prop_assert_eq!(core.wake_at(), None);
            }
        }
    }

    /// With a guest that obeys, every size is reached, and then nothing more is done.
    #[test]
    fn sizes_are_reached(sizes in proptest::collection::vec((250_u32..4000, 1_u32..8), 1..10)) {
        let mut core = running();
        let mut now = SECOND;
        for (cpu, gib) in &sizes {
            let mut todo = core.step(now, Event::Resize(size(*cpu, *gib)));
            while let Some(action) = todo.pop() {
                now += Duration::from_millis(1);
                todo.extend(match action {
                    Action::SetMemory(bytes) => core.step(now, Event::Memory(bytes)),
                    Action::SetQuota(cpu) => core.step(now, Event::QuotaSet(cpu)),
                    Action::SetCpus(cpu) => core.step(now, Event::Answered { online: cpu.cpus_rounded_up() }),
                    other => panic!("{other:?}"),
                });
            }
        }
        let (cpu, gib) = sizes[sizes.len() - 1];
        prop_assert_eq!(core.status().cpu.applied, MilliCpu::new(cpu));
        prop_assert_eq!(core.status().memory.actual, Bytes::gib(gib));
        prop_assert_eq!(core.wake_at(), None);
        prop_assert!(core.status().problems.is_empty());
    }
}

#[test]
fn a_workload_that_fails_is_a_problem_until_it_has_run_for_a_while() {
    let mut core = running();
    let exited = ReportKind::WorkloadExited { code: None, signal: Some(9), out_of_memory: true };
    core.step(SECOND, Event::Report(exited));
    assert_eq!(problems(&core), [ProblemReason::WorkloadFailing]);
    let message = core.status().problems[0].message.clone();
    assert_eq!(
        message,
        "the workload was ended by signal 9, out of memory; it is started again inside the guest"
    );
    core.step(2 * SECOND, Event::Report(ReportKind::WorkloadStarted { pid: 9, restarts: 1 }));
    assert_eq!(core.wake_at(), Some(62 * SECOND));
    core.step(61 * SECOND, Event::Timer);
    assert_eq!(problems(&core), [ProblemReason::WorkloadFailing]);
    core.step(62 * SECOND, Event::Timer);
    assert!(problems(&core).is_empty() && core.wake_at().is_none());
    core.step(
        63 * SECOND,
        Event::Report(ReportKind::WorkloadExited { code: Some(0), signal: None, out_of_memory: false }),
    );
    assert!(problems(&core).is_empty(), "an end that is a success is no problem");
}

/// No program, no such user, a disk that is not mounted: final, with the guest's own words.
#[test]
fn a_guest_that_cannot_start_its_workload_is_up_and_gives_the_reason() {
    let failure = || ReportKind::Failure { message: "no command specified".into(), workload: true };
    let mut core = Core::new(limits());
    core.step(SECOND, Event::Started(MachineInfo::default()));
    core.step(SECOND, Event::Report(ReportKind::Booted { version: "1".into() }));
    core.step(SECOND, Event::Report(failure()));
    core.step(SECOND, Event::Answered { online: 1 });
    assert_eq!(core.status().state, RunnerState::Running);
    assert_eq!(problems(&core), [ProblemReason::WorkloadNotStarted]);
    assert_eq!(core.status().problems[0].message, "no command specified");
    // The target of a migration knows it, too: the guest does not report twice.
    let mut target = Core::new(limits());
    target.step(SECOND, Event::TakenOver(MachineInfo::default(), Some(core.guest())));
    assert_eq!(problems(&target), [ProblemReason::WorkloadNotStarted]);
    let announced = |reason: &str| Event::Report(ReportKind::ShuttingDown { reason: reason.into() });
    core.step(2 * SECOND, announced("there is no workload"));
    let off = || Event::Ended(QemuEnd { cause: Some("guest-shutdown".into()), ..QemuEnd::default() });
    core.step(2 * SECOND, off());
    let exit = core.status().exit.clone().unwrap();
    assert_eq!((exit.reason, exit.message.as_str()), (ExitReason::StartFailure, "no command specified"));
    assert!(!exit.is_success());

    // One that cannot be executed, with a policy that ends the VM: the status is that of shells.
    let mut core = running();
    core.step(SECOND, Event::Report(failure()));
    let exited = ReportKind::WorkloadExited { code: Some(126), signal: None, out_of_memory: false };
    core.step(SECOND, Event::Report(exited));
    assert_eq!(problems(&core), [ProblemReason::WorkloadNotStarted]);
    core.step(2 * SECOND, announced("workload ended"));
    core.step(2 * SECOND, off());
    let exit = core.status().exit.clone().unwrap();
    assert_eq!((exit.reason, exit.message.as_str()), (ExitReason::WorkloadEnded, "no command specified"));
    assert_eq!(exit.workload.and_then(|workload| workload.code), Some(126));

    // A later attempt succeeds: a service had made the program by then.
    let mut core = running();
    core.step(SECOND, Event::Report(failure()));
    core.step(2 * SECOND, Event::Report(ReportKind::WorkloadStarted { pid: 7, restarts: 0 }));
    assert!(problems(&core).is_empty());
}

#[test]
fn a_guest_that_is_reset_before_its_init_ran_never_came_up() {
    let reset = QemuEnd { cause: Some("guest-reset".into()), ..QemuEnd::default() };
    let mut core = Core::new(limits());
    core.step(SECOND, Event::Started(MachineInfo::default()));
    core.step(2 * SECOND, Event::Ended(reset.clone()));
    let exit = core.status().exit.clone().unwrap();
    assert_eq!(exit.reason, ExitReason::StartFailure);
    assert!(exit.message.contains("1Gi of memory may be too little"), "{}", exit.message);
    let mut core = running();
    core.step(2 * SECOND, Event::Ended(reset));
    assert_eq!(core.status().exit.clone().unwrap().reason, ExitReason::Rebooted);
}
