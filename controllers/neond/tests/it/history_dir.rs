//! The directory of the history, prepared with the rights of the manifest's container.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use neonvm_test_support::{need, needs};

const AGENT: u32 = 65532;

/// Runs it as root with the capability CHOWN and no other.
fn prepare(directory: &Path) {
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set=-all,+chown",
        "--inh-caps=-all",
        env!("CARGO_BIN_EXE_neond"),
        "history-dir",
    ]);
    let output = command.arg(format!("--owner={AGENT}")).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_capability_chown_is_enough_whatever_the_mode_was() {
    need!(needs::root());
    need!(needs::program("setpriv"));
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("history");
    let state = || fs::metadata(&directory).map(|found| (found.uid(), found.mode() & 0o777)).unwrap();
    for (owner, mode) in [(0, 0o755), (AGENT, 0o700), (AGENT, 0o755), (1000, 0o750)] {
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        chown(&directory, Some(owner), None).unwrap();
        prepare(&directory);
        assert_eq!(state(), (AGENT, 0o700), "from {owner} and {mode:o}");
    }
}
