//! The probe on this host: whatever it finds, it reports in time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use neonvm_hypervisor::accelerator::{Accelerator, ChooseError, Request, choose, probe};

use neonvm_test_support::{Missing, Need, need};

use crate::lab::{lab, resources_of, start_with, until};

/// Not a separate test but the process that the next one starts.
#[test]
fn helper_that_probes() {
    if std::env::var_os("NEONVM_TEST_PROBE").is_some() {
        println!("\n{}", probe::run_in_this_process().to_line());
    }
}

#[tokio::test]
async fn the_choice_is_made_by_running_a_guest() {
    let program = std::env::current_exe().unwrap();
    let helper = ["--exact", "accelerator::helper_that_probes", "--nocapture"].map(OsString::from);
    let mut command = vec![OsString::from("env"), "NEONVM_TEST_PROBE=1".into(), program.into()];
    command.extend(helper);
    let directory = tempfile::tempdir().unwrap();
    let has_device = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    // On a busy host the probe may be late, which is not kept: then it is repeated.
    until("an answer that is kept", async || {
        let _ = choose(Request::Auto, &command, Some(directory.path())).await;
        !has_device || directory.path().join("kvm-probe.json").exists()
    })
    .await;
    let chosen = choose(Request::Auto, &command, Some(directory.path())).await.unwrap();
    println!("{chosen:?}");
    let required = choose(Request::Kvm, &command, Some(directory.path())).await;
    match chosen.accelerator {
        Accelerator::Kvm => {
            assert_eq!(chosen.note, "");
            assert_eq!(required, Ok(chosen));
        }
        Accelerator::Tcg => {
            assert!(
                chosen.note.ends_with("; using TCG") && chosen.note.contains("/dev/kvm"),
                "{}",
                chosen.note
            );
            let reason = chosen.note.strip_suffix("; using TCG").unwrap().to_owned();
            assert_eq!(required, Err(ChooseError::NoKvm(reason)));
        }
    }
}

/// What the guest sees of its CPU. Neither ERMS (leaf 7, EBX bit 9) nor FSRM (EDX bit 4) is there.
const CPU: &str = "\
CPU 1.0 00060fb1 00000000 f6d8320b 0fcbfbfd
CPU 6.0 00000004 00000000 00000000 00000000
CPU 7.0 00000000 019841a9 8001020c 00000000
CPU 7.1 00000000 00000000 00000000 00000000
CPU d.1 00000005 00000000 00000000 00000000
CPU 14.0 00000000 00000000 00000000 00000000
CPU 19.0 00000000 00000000 00000000 00000000
CPU 80000001.0 00060fb1 00000000 00000075 edd3fbfd
CPU 80000007.0 00000000 00000000 00000000 00000000
CPU 80000008.0 00003928 00000000 00000000 00000000
CPU 8000000a.0 00000001 00000010 00000000 10010001
CPU 80000021.0 00000000 00000000 00000000 00000000
";

/// Another QEMU than the host's, of another version.
pub(crate) fn other_qemu() -> Need<PathBuf> {
    match std::env::var_os("NEONVM_TEST_OTHER_QEMU") {
        Some(program) => Ok(program.into()),
        None => Err(Missing::unavailable("NEONVM_TEST_OTHER_QEMU names no second QEMU")),
    }
}

/// The CPU of an emulated guest, which has booted.
async fn cpu_with(program: Option<&Path>) -> Need<String> {
    let plan = lab()?.plan("cpu");
    let (machine, mut console) = start_with(plan, resources_of(program).await).await;
    console.ready().await;
    machine.kill();
    let text = console.text();
    let lines = text.lines().map(str::trim_end).filter(|line| line.starts_with("CPU "));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

#[tokio::test]
async fn an_emulated_guest_boots_with_the_known_cpu() {
    assert_eq!(need!(cpu_with(None).await), CPU);
}

#[tokio::test]
async fn an_emulated_guest_has_the_same_cpu_with_another_version_of_qemu() {
    let program = need!(other_qemu());
    assert_eq!(need!(cpu_with(Some(&program)).await), CPU);
}
