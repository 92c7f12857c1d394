//! What every boot needs, made once: the static program, a kernel with its initramfs, a workload.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use neonvm_test_support::guest::SmallGuest;
use neonvm_test_support::{Missing, Need, needs};

pub(crate) struct Lab {
    pub(crate) guest: PathBuf,
    pub(crate) kernel: PathBuf,
    /// None with a kernel that has all it needs built in, such as `neonctl kernel build` makes: it boots from the root disk.
    pub(crate) initramfs: Option<PathBuf>,
    pub(crate) workload: PathBuf,
}

/// The lab, if its kernel boots from an initramfs with modules.
pub(crate) fn lab_with_modules() -> Need<&'static Lab> {
    let lab = lab()?;
    if lab.initramfs.is_none() {
        return Err(Missing::unavailable("this kernel has no modules: everything is built in"));
    }
    Ok(lab)
}

/// The lab, made once.
pub(crate) fn lab() -> Need<&'static Lab> {
    static LAB: OnceLock<Need<Lab>> = OnceLock::new();
    LAB.get_or_init(make).as_ref().map_err(Clone::clone)
}

fn make() -> Need<Lab> {
    needs::qemu()?;
    needs::programs(&["cc", "mke2fs"])?;
    let guest = build_guest();
    // The modules and their order are those of the kernel that `neonctl kernel fetch` makes ready; the program is today's.
    let boot = SmallGuest::with_init("guest", &fs::read(&guest).unwrap())?;
    let initramfs = boot.has_modules.then_some(boot.initramfs);
    let directory = needs::target_directory().join("guest-lab");
    fs::create_dir_all(&directory).unwrap();
    // Other test processes use the same file: it is made aside and put in place as a whole.
    let staged = tempfile::tempdir_in(&directory).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu/fixture/workload.c");
    let made = staged.path().join("workload");
    run(Command::new("cc").args(["-O1", "-static", "-s", "-o"]).arg(&made).arg(source)).unwrap();
    let workload = directory.join("workload");
    fs::rename(made, &workload).unwrap();
    Ok(Lab { guest, kernel: boot.kernel, initramfs, workload })
}

/// The program, as it is shipped: the one that `cargo xtask guest` has built, or else built now.
fn build_guest() -> PathBuf {
    if std::env::var_os("NEONVM_TEST_BUILT").is_some() {
        return needs::target_directory().join("debug/neonvm-guest-amd64");
    }
    let target = needs::target_directory();
    let triple = "x86_64-unknown-linux-gnu";
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "guest", "--target", triple, "-p", "neonvm-guest"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))
    .unwrap();
    target.join(triple).join("guest/neonvm-guest")
}

/// Runs a command to its end; its output, or why it failed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
