//! The boots.

use neonvm_test_support::need;
use neonvm_types::guest::{Command, ImageConfig, Process, ReportKind, Service, Start};

use crate::lab::{lab, lab_with_modules};
use crate::machine::{Machine, Plan};

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn image(cmd: &[&str]) -> ImageConfig {
    let process = Process {
        cmd: words(cmd),
        env: words(&["GREETING=good morning $HOME"]),
        stop_signal: "SIGINT".into(),
        ..Process::default()
    };
    ImageConfig { process, ..ImageConfig::default() }
}

#[test]
fn a_workload_runs_once_and_its_status_is_reported() {
    let lab = need!(lab());
    let mut image = image(&["/workload", "exit", "7"]);
    image.process.working_dir = "/srv/made".into();
    image.services = vec![Service {
        name: "first".into(),
        user: "root".into(),
        start: Start::Sysinit,
        command: Command::Exec(words(&["/workload", "sysinit ran"])),
    }];
    let runtime = vec![("neonvm.json", br#"{"restartPolicy":"Never"}"#.to_vec())];
    let machine = Machine::start(
        lab,
        &Plan { image, command_line: "rw quiet hostname=vm-test", runtime, ..Plan::default() },
    );
    let (log, reports, console) = machine.wait_end();
    let first = log.find("sysinit ran").expect(&console);
    let second = log.find("workload prints good morning $HOME in /srv/made").expect(&log);
    assert!(first < second, "{log}");
    assert!(log.contains("cgroup 0::/workload"), "{log}");
    let kinds: Vec<&ReportKind> = reports.iter().map(|report| &report.kind).collect();
    let exited = ReportKind::WorkloadExited { code: Some(7), signal: None, out_of_memory: false };
    assert!(matches!(kinds.first(), Some(ReportKind::Booted { .. })), "{kinds:?}");
    assert!(kinds.contains(&&exited), "{kinds:?}");
    assert!(!kinds.iter().any(|kind| matches!(kind, ReportKind::Failure { .. })), "{kinds:?}");
    assert!(console.contains("neonvm: shutting down: workload ended"), "{console}");
}

#[test]
fn the_power_button_ends_everything_in_order() {
    let lab = need!(lab());
    let image = image(&["/workload", "serve"]);
    let plan = Plan { image, command_line: "rw quiet", slack: 32 << 20, ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    let is_booted = |kind: &ReportKind| matches!(kind, ReportKind::Booted { .. });
    let is_started = |kind: &ReportKind| matches!(kind, ReportKind::WorkloadStarted { restarts: 0, .. });
    let booted = machine.wait_report("init", is_booted).uptime_ms;
    let started = machine.wait_report("the workload", is_started).uptime_ms;
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    machine.wait_text("log", "workload serves");
    machine.wait_text("log", "workload writes to the port itself");
    if lab.initramfs.is_some() {
        machine.wait_text("log", "modules for later are loaded");
    }
    // QEMU's own network answers with these.
    machine.wait_text("log", "resolver \"nameserver 10.0.2.3\", default route true");
    // The root grew while everything ran.
    machine.wait_text("console", "/ grown to 80 MiB");
    machine.press_power();
    let (log, reports, console) = machine.wait_end();
    assert!(log.contains("workload stops"), "{log}");
    let kinds: Vec<ReportKind> = reports.into_iter().map(|report| report.kind).collect();
    println!("workload started {started} ms after the kernel, init {booted} ms");
    let down = kinds
        .iter()
        .position(|kind| matches!(kind, ReportKind::ShuttingDown { reason } if reason == "power button"));
    let exited =
        kinds.iter().position(|kind| matches!(kind, ReportKind::WorkloadExited { code: Some(0), .. }));
    assert!(down.is_some() && down < exited, "{kinds:?}");
    assert!(!console.contains("neonvm: unmount"), "{console}");
}

#[test]
fn a_read_only_root_boots_without_ports_and_without_a_runtime_volume() {
    let lab = need!(lab());
    let plan = Plan {
        image: image(&["/workload", "serve"]),
        command_line: "ro quiet",
        without_ports: true,
        files: vec![("etc/resolv.conf", "# of the image\n")],
        ..Plan::default()
    };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_text("console", "workload serves");
    // Mounted over the file of the read-only root.
    machine.wait_text("console", "resolver \"nameserver 10.0.2.3\"");
    machine.press_power();
    let (_, _, console) = machine.wait_end();
    assert!(console.contains("workload stops"), "{console}");
}

#[test]
fn a_missing_root_device_is_reported_with_the_existing_devices() {
    let lab = need!(lab_with_modules());
    let plan = Plan { command_line: "root=LABEL=elsewhere neonvm.root_timeout=1 quiet", ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_text(
        "console",
        "root device LABEL=elsewhere did not appear; block devices found: vda (48 MiB, ext4",
    );
}

#[test]
fn the_program_of_the_runtime_volume_takes_over_and_a_broken_one_does_not() {
    let lab = need!(lab());
    // Bytes behind the program change nothing but make it another one.
    let mut newer = std::fs::read(&lab.guest).unwrap();
    newer.push(0);
    for (program, expected) in [
        (newer, "neonvm: the program of the runtime volume takes over"),
        (b"#!/bin/nothing\n".to_vec(), "neonvm: failure: the program on the runtime volume does not run"),
    ] {
        let runtime =
            vec![("neonvm.json", br#"{"restartPolicy":"Never"}"#.to_vec()), ("neonvm_guest", program)];
        let plan = Plan {
            image: image(&["/workload", "exit", "0"]),
            command_line: "rw quiet",
            runtime,
            ..Plan::default()
        };
        let (log, _, console) = Machine::start(lab, &plan).wait_end();
        assert!(console.contains(expected), "{console}");
        assert!(log.contains("workload prints"), "{log}");
    }
}

#[test]
fn the_hook_is_repeated_until_the_workload_has_ended() {
    let lab = need!(lab());
    let mut image = image(&["/workload", "serve"]);
    image.shutdown_hook = Some("/workload hook".into());
    let shutdown = Command::Exec(words(&["/workload", "shutdown service ran"]));
    image.services =
        vec![Service { name: "last".into(), user: "0:0".into(), start: Start::Shutdown, command: shutdown }];
    let mut machine = Machine::start(lab, &Plan { image, command_line: "rw quiet", ..Plan::default() });
    machine.wait_text("log", "workload serves");
    machine.press_power();
    let (log, _, _) = machine.wait_end();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("no {text:?} in {log}"));
    assert!(at("shutdown service ran") < at("hook tries"), "{log}");
    assert!(at("hook tries") < at("hook asks"), "{log}");
    assert!(log.contains("workload stops"), "{log}");
}

#[test]
fn a_workload_that_ends_is_started_again_and_a_missing_one_is_named() {
    let lab = need!(lab());
    let plan =
        Plan { image: image(&["/workload", "exit", "3"]), command_line: "rw quiet", ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_report("the second restart", |kind| {
        matches!(kind, ReportKind::WorkloadStarted { restarts: 2, .. })
    });
    machine.press_power();
    machine.wait_end();

    let mut missing = image(&["no-such-program"]);
    missing.process.user = "nobody".into();
    let runtime = vec![("neonvm.json", br#"{"restartPolicy":"OnFailure"}"#.to_vec())];
    let mut machine =
        Machine::start(lab, &Plan { image: missing, command_line: "rw quiet", runtime, ..Plan::default() });
    let named = |kind: &ReportKind| matches!(kind, ReportKind::Failure { message, workload: true } if message.contains("\"nobody\""));
    machine.wait_report("the failure", named);
    // A policy that lets the VM end ends it.
    machine.wait_end();
    let locked = image(&["/etc/locked"]);
    let files = vec![("etc/locked", "#!/workload\n")];
    let plan = Plan { image: locked, files, command_line: "rw quiet", ..Plan::default() };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_report("the failure", |kind| {
        matches!(kind, ReportKind::Failure { message, workload: true } if message.contains("start /etc/locked: Permission denied"))
    });
    machine
        .wait_report("its status", |kind| matches!(kind, ReportKind::WorkloadExited { code: Some(126), .. }));
    machine.press_power();
    machine.wait_end();
}
