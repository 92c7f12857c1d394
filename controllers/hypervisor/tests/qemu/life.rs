//! Start and the ways to end.

use neonvm_test_support::{Missing, need};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use neonvm_hypervisor::installation::{Installation, Version};
use neonvm_hypervisor::machine::{Machine, MachineEvent, Resources, RunState, StartError};
use neonvm_hypervisor::plan::{Architecture, Backend, Forward, InterfacePlan, Protocol};
use neonvm_hypervisor::qmp::QmpError;
use tokio::io::AsyncReadExt as _;

use crate::lab::{PATIENCE, event, lab, resources, start, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_guest_waits_for_its_word_and_the_power_button_ends_it() {
    let lab = need!(lab());
    let machine = Machine::start(lab.plan("wait"), resources().await).await.unwrap();
    assert_eq!(machine.status().await, Ok(RunState::Prelaunch));
    assert!(machine.version().major >= 7);
    let threads = machine.vcpu_threads().await.unwrap();
    assert_eq!(threads.len(), 1);
    let name =
        std::fs::read_to_string(format!("/proc/{}/task/{}/comm", machine.pid(), threads[0].thread)).unwrap();
    assert!(name.starts_with("CPU 0"), "{name}");
    drop(machine);

    let mut plan = lab.plan("wait");
    // Port 0: one that is free.
    let forward = Forward { protocol: Protocol::Tcp, address: Ipv4Addr::LOCALHOST, port: 0, guest_port: 22 };
    let backend = Backend::User { forwards: vec![forward] };
    plan.interfaces = vec![InterfacePlan { mac: [2, 0, 0, 0, 0, 1], mtu: Some(1400), backend }];
    let (machine, mut console) = start(plan).await;
    let mut events = machine.events();
    console.ready().await;
    let usage = machine.usage(&[machine.vcpu_threads().await.unwrap()[0].thread]).unwrap();
    assert!(
        usage.resident.get() > 10 << 20 && !usage.threads.is_zero() && usage.process >= usage.threads,
        "{usage:?}"
    );
    machine.stop().await.unwrap();
    event(&mut events, "the stop", |event| *event == MachineEvent::Stopped(RunState::Paused)).await;
    machine.continue_().await.unwrap();
    machine.power_button().await.unwrap();
    let exit = machine.wait_for(PATIENCE).await.unwrap();
    assert!(exit.is_power_off() && exit.code == Some(0) && !exit.guest_panicked, "{exit:?}");
    event(&mut events, "the button", |event| *event == MachineEvent::PowerButton).await;
    assert!(machine.status().await.is_err(), "QEMU no longer answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_guests_are_distinguished() {
    let lab = need!(lab());
    let (machine, _console) = start(lab.plan("reboot")).await;
    let exit = machine.wait_for(PATIENCE).await.unwrap();
    assert!(exit.is_reboot() && exit.code == Some(0), "{exit:?}");
    let (machine, mut console) = start(lab.plan("panic")).await;
    console.ready().await;
    let exit = machine.wait_for(PATIENCE).await.unwrap();
    if lab.kernel().ends_with("built/vmlinux") {
        assert!(exit.guest_panicked && !exit.is_reboot(), "{exit:?}");
    } else {
        // Its driver of the panic device is a module that is not loaded here.
        assert!(exit.guest_panicked || exit.is_reboot(), "{exit:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_that_is_killed_or_asked_to_quit_is_reported() {
    let lab = need!(lab());
    let (machine, _console) = start(lab.plan("wait")).await;
    machine.kill();
    let exit = machine.wait_for(PATIENCE).await.unwrap();
    assert_eq!((exit.signal, exit.shutdown.clone()), (Some(9), None), "{exit:?}");
    let (machine, _console) = start(lab.plan("wait")).await;
    machine.quit().await.unwrap();
    let exit = machine.wait_for(PATIENCE).await.unwrap();
    assert!(exit.is_quit() && exit.code == Some(0), "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_come_by_their_port() {
    let lab = need!(lab());
    let (machine, _console) = start(lab.plan("report")).await;
    let mut report = machine.take_report().unwrap();
    assert!(machine.take_report().is_none());
    let mut line = [0; 12];
    tokio::time::timeout(PATIENCE, report.read_exact(&mut line)).await.unwrap().unwrap();
    assert_eq!(&line, b"{\"hello\":1}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_is_reported_when_qemu_refuses_a_machine() {
    let lab = need!(lab());
    let mut plan = lab.plan("wait");
    plan.machine_type = "pc-q35-0.1".into();
    let error = Machine::start(plan, resources().await).await.unwrap_err();
    assert!(matches!(error, StartError::Qemu { .. }), "{error:?}");
    assert!(error.to_string().contains("unsupported machine type"), "{error}");
    let mut plan = lab.plan("wait");
    plan.kernel = "/no/kernel".into();
    let error = Machine::start(plan, resources().await).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot open /no/kernel: No such file or directory (os error 2)");
    let mut resources = resources().await;
    resources.installation.program = "/no/qemu".into();
    let error = Machine::start(lab.plan("wait"), resources).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot start /no/qemu: "), "{error}");
}

fn script(directory: &tempfile::TempDir, text: &str) -> Resources {
    let program = directory.path().join("qemu");
    // Another process writes it: programs that this process starts meanwhile would inherit the open file, and a file that is
    // open for writing cannot be executed.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = Command::new("/bin/sh").args(["-c", write]).arg(&program).arg(text).status();
    assert!(written.unwrap().success());
    let version = Version { major: 7, minor: 2, micro: 0 };
    Resources::new(Installation { program, version, architecture: Architecture::Amd64 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_that_hangs_is_given_up_and_killed() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let mut deadline = Duration::from_millis(500);
    let stderr = loop {
        let mut resources = script(&directory, "echo $$ >&2; exec /bin/sleep 1000");
        resources.deadline = deadline;
        let error = Machine::start(lab.plan("wait"), resources).await.unwrap_err();
        let StartError::Qemu { source, stderr } = error else { panic!("{error:?}") };
        assert!(matches!(source, QmpError::Timeout { .. }), "{source}");
        // It hangs only after it has written its output: a busy host may need longer for that.
        if !stderr.is_empty() || deadline > PATIENCE {
            break stderr;
        }
        deadline *= 4;
    };
    assert_eq!(stderr.len(), 1, "{stderr:?}");
    let process = std::path::PathBuf::from("/proc").join(&stderr[0]);
    until("its end", async || !process.exists()).await;
}

/// What runs as QEMU reads no file of its user, makes none, and reaches no other process of its user, its runner least.
#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_that_a_guest_has_taken_over_finds_nothing_of_its_users() {
    let lab = need!(lab());
    need!(match neonvm_hypervisor::landlock::version() {
        0 => Err(Missing::unavailable("this kernel has no Landlock")),
        _ => Ok(()),
    });
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (secret, meeting) = (other.path().join("tls.key"), other.path().join("migration"));
    let store = other.path().join("suspended");
    std::fs::write(&secret, "KEY").unwrap();
    let own = std::process::id();
    // Root's right to measure (CAP_PERFMON) opens this one in any domain on new kernels; a runner has no such right.
    let environ = (!rustix::process::geteuid().is_root()).then(|| format!("cat /proc/{own}/environ"));
    let attempts = [
        format!("cat {}", secret.display()),
        format!("ls {}", other.path().display()),
        format!("echo x > {}", other.path().join("new").display()),
        format!("echo x > {}", meeting.join("file").display()),
        format!("echo x > {}", store.join("file").display()),
        format!("head -c 1 /proc/{own}/mem"),
        format!("ls /proc/{own}/fd/0"),
        "cat /etc/shadow".to_owned(),
    ];
    for attempt in attempts.into_iter().chain(environ) {
        let text = format!("{{ {attempt}; }} >/dev/null 2>/dev/null && echo REACHED >&2; echo tried >&2");
        let mut resources = script(&directory, &text);
        (resources.meeting, resources.store) = (Some(meeting.clone()), Some(store.clone()));
        let error = Machine::start(lab.plan("wait"), resources).await.unwrap_err();
        assert_eq!(error.stderr(), ["tried"], "{attempt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_qemu_before_its_end_is_kept_within_bounds() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let resources =
        script(&directory, "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done; exit 3");
    let error = Machine::start(lab.plan("wait"), resources).await.unwrap_err();
    assert_eq!(error.stderr().len(), 32);
    assert_eq!(error.stderr().last().map(String::as_str), Some("line 99"));
    assert!(error.to_string().ends_with("line 99"), "{error}");
}
