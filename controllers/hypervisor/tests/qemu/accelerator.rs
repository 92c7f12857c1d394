//! The probe on this host: whatever it finds, it reports in time.

use std::ffi::OsString;

use neonvm_hypervisor::accelerator::{Accelerator, ChooseError, Request, choose, probe};

use crate::lab::until;

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
