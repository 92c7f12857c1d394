//! What every boot needs, made once: the static program, a kernel with its initramfs, a workload.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::cpio::Cpio;

/// Modules the disk needs at boot; what they depend on is found out.
const MODULES: [&str; 9] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "ext4",
    "isofs",
    "evdev",
    "button",
];

/// Modules the workload does not wait for.
const LATER: [&str; 2] = ["virtio_mem", "quota_v2"];

pub(crate) struct Lab {
    pub(crate) guest: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) workload: PathBuf,
}

/// The lab, or None after a line that says what is missing.
pub(crate) fn lab() -> Option<&'static Lab> {
    static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
    match LAB.get_or_init(make) {
        Ok(lab) => Some(lab),
        Err(reason) => {
            println!("SKIP boot: {reason}");
            None
        }
    }
}

fn make() -> Result<Lab, String> {
    for program in ["cc", "qemu-system-x86_64", "mke2fs", "dpkg-deb", "modinfo"] {
        let found = Command::new("sh")
            .args(["-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}")])
            .output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} is not installed"));
        }
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target directory")?.to_owned();
    let directory = target.join("guest-lab");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let guest = build_guest(&target)?;
    let package = kernel(&directory)?;
    // Other test processes use the same files: each is made aside and put in place as a whole.
    let staged = tempfile::tempdir_in(&directory).map_err(|error| error.to_string())?;
    let put = |name: &str| {
        fs::rename(staged.path().join(name), directory.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixture/workload.c");
    run(Command::new("cc")
        .args(["-O1", "-static", "-s", "-o"])
        .arg(staged.path().join("workload"))
        .arg(source))?;
    fs::write(staged.path().join("initramfs.cpio"), pack(&guest, &package)?)
        .map_err(|error| error.to_string())?;
    put("workload")?;
    put("initramfs.cpio")?;
    let (workload, initramfs) = (directory.join("workload"), directory.join("initramfs.cpio"));
    let kernel = find(&package.join("boot"), "vmlinuz-")?;
    Ok(Lab { guest, kernel, initramfs, workload })
}

/// The program, as it is shipped; `NEONVM_GUEST_PROGRAM` names one that is built already.
fn build_guest(target: &Path) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("NEONVM_GUEST_PROGRAM") {
        return Ok(path.into());
    }
    let triple = "x86_64-unknown-linux-gnu";
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "guest", "--target", triple, "-p", "neonvm-guest"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(target.join(triple).join("guest/neonvm-guest"))
}

/// The unpacked package of the distribution's kernel for clouds.
fn kernel(directory: &Path) -> Result<PathBuf, String> {
    let package = directory.join("kernel");
    if find(&package.join("boot"), "vmlinuz-").is_ok() {
        return Ok(package);
    }
    let text = run(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let name = name.ok_or("the package index has no cloud kernel")?.to_owned();
    run(Command::new("apt-get")
        .args(["-q", "download", &format!("linux-image-{name}")])
        .current_dir(directory))?;
    let archive = find(directory, &format!("linux-image-{name}"))?;
    let staged = directory.join(format!("kernel-{}", std::process::id()));
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&staged))?;
    let _ = fs::remove_file(archive);
    // Another run may have been faster.
    let _ = fs::rename(&staged, &package);
    let _ = fs::remove_dir_all(&staged);
    Ok(package)
}

fn pack(guest: &Path, package: &Path) -> Result<Vec<u8>, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let release = find(&package.join("lib/modules"), "")?;
    let mut cpio = Cpio::default();
    for directory in ["dev", "proc", "sys", "run", "modules", "neonvm-root"] {
        cpio.directory(directory);
    }
    cpio.file("init", 0o755, &read(guest)?);
    cpio.file("neonvm-initramfs", 0o644, b"");
    let mut seen = BTreeSet::new();
    for (list, modules) in [("order", &MODULES[..]), ("later", &LATER[..])] {
        let mut order = Vec::new();
        for module in modules {
            order_of(module, &release, &mut seen, &mut order)?;
        }
        let mut names = String::new();
        for path in order {
            let name = path.file_name().and_then(|name| name.to_str()).ok_or("odd module name")?;
            cpio.file(&format!("modules/{name}"), 0o644, &read(&path)?);
            names.push_str(&format!("{name}\n"));
        }
        cpio.file(&format!("modules/{list}"), 0o644, names.as_bytes());
    }
    Ok(cpio.finish())
}

/// Appends a module after those it depends on; what is built in has no file and is left out.
fn order_of(
    name: &str,
    release: &Path,
    seen: &mut BTreeSet<String>,
    order: &mut Vec<PathBuf>,
) -> Result<(), String> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let pattern = name.replace(['-', '_'], "[-_]");
    let found = run(Command::new("find").arg(release).args(["-name", &format!("{pattern}.ko")]))?;
    let Some(path) = found.lines().next().map(PathBuf::from) else { return Ok(()) };
    let depends = run(Command::new("/usr/sbin/modinfo").args(["-F", "depends"]).arg(&path))?;
    for dependency in depends.trim().split(',').filter(|name| !name.is_empty()) {
        order_of(dependency, release, seen, order)?;
    }
    order.push(path);
    Ok(())
}

fn find(directory: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    paths.next().map(|entry| entry.path()).ok_or_else(|| format!("{}: no {prefix}*", directory.display()))
}

/// Runs a command to its end; its output, or why it failed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}
