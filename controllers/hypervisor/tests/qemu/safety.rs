//! What QEMU may not do, and that it does not outlive its parent.

use neonvm_test_support::{need, needs};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use neonvm_hypervisor::disks::{inspect, overlay};
use neonvm_hypervisor::machine::Machine;
use neonvm_hypervisor::plan::{BaseFormat, DiskImage, DiskPlan};
use neonvm_types::Bytes;

use crate::lab::{Console, Lab, PATIENCE, lab, resources, start, until};

fn status(pid: i32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_has_no_rights_and_needs_none() {
    let lab = need!(lab());
    need!(needs::root());
    // Only this user may open these files.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let base = directory.path().join("base.raw");
    std::fs::write(&base, vec![0; 4 << 20]).unwrap();
    let file = directory.path().join("root.qcow2");
    overlay(&file, &inspect(&base).unwrap(), Some(Bytes::mib(8))).unwrap();
    let mut plan = lab.plan("write");
    let kernel = directory.path().join("vmlinux");
    std::fs::copy(&plan.kernel, &kernel).unwrap();
    plan.kernel = kernel.clone();
    for path in [&base, &file, &kernel] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let image = DiskImage::Overlay { file, base, base_format: BaseFormat::Raw };
    plan.disks = vec![DiskPlan { name: "root".into(), image, read_only: false, discard: true }];
    let machine = Machine::start(plan, resources().await).await.unwrap();
    let pid = machine.pid();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Seccomp"), "2");
    assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    let mut console = Console::follow(&machine);
    machine.continue_().await.unwrap();
    console.ready().await;
    machine.power_button().await.unwrap();
    assert!(machine.wait_for(PATIENCE).await.unwrap().is_power_off());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_dropped_is_gone_and_reaped() {
    let lab = need!(lab());
    let (machine, _console) = start(lab.plan("wait")).await;
    let process = format!("/proc/{}", machine.pid());
    assert!(Path::new(&process).exists());
    drop(machine);
    // A process that is not reaped is still there.
    until("the end of QEMU", async || !Path::new(&process).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_of_a_runtime_may_end_before_the_machine() {
    let lab = need!(lab());
    let resources = resources().await;
    let plan = lab.plan("wait");
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // QEMU is started from a thread that ends.
    let handle = tokio::runtime::Handle::current();
    let starter = std::thread::spawn(move || {
        let machine = handle.block_on(Machine::start(plan, resources)).unwrap();
        assert!(sender.send(machine).is_ok());
    });
    let machine = receiver.await.unwrap();
    starter.join().unwrap();
    machine.continue_().await.unwrap();
    assert_eq!(machine.exited(), None);
    machine.status().await.unwrap();
}

/// The helper of the next test: this very test in a separate process.
const HELPER: &str = "NEONVM_TEST_HELPER";

/// Starts a machine, prints the number of its process, and waits to be killed.
async fn run_until_killed(lab: &Lab) {
    let machine = Machine::start(lab.plan("wait"), resources().await).await.unwrap();
    println!("\nQEMU {}", machine.pid());
    let console = machine.take_console();
    machine.continue_().await.unwrap();
    std::future::pending::<()>().await;
    drop(console);
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_does_not_outlive_a_parent_that_is_killed() {
    let lab = need!(lab());
    if std::env::var_os(HELPER).is_some() {
        run_until_killed(lab).await;
    }
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "safety::qemu_does_not_outlive_a_parent_that_is_killed", "--nocapture"])
        .env(HELPER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("QEMU ")?.to_owned()));
    let pid = pid.unwrap();
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    assert!(name().starts_with("qemu-system"), "{}", name());
    helper.kill().unwrap();
    helper.wait().unwrap();
    // The process that inherits it may reap it late; a process that has ended has no memory.
    let gone = async || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.contains("VmRSS")
    };
    until("the end of QEMU", gone).await;
}
