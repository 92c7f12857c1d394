//! What every machine needs, made once: a kernel, a first root, an authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use neonvm_kit::ca::Authority;

/// Slow machines under load take long; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Lab {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) authority: Authority,
}

/// The lab, or None after a line that says what is missing.
pub(crate) fn lab() -> Option<&'static Lab> {
    static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
    match LAB.get_or_init(make) {
        Ok(lab) => Some(lab),
        Err(reason) => {
            println!("SKIP machine: {reason}");
            None
        }
    }
}

/// A loopback address that no other runner of this process has.
pub(crate) fn address() -> std::net::IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let id = std::process::id();
    let bytes = id.to_be_bytes();
    // One network of 256 addresses for each process; 127.0 to 127.63 are others'.
    std::net::IpAddr::from([127, 64 + (bytes[2] & 63), bytes[3], NEXT.fetch_add(1, Ordering::Relaxed)])
}

fn make() -> Result<Lab, String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err("the kernels are for x86-64".to_owned());
    }
    for program in ["cc", "qemu-system-x86_64"] {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} is not installed"));
        }
    }
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kernel = temporary.parent().ok_or("no target directory")?.join("kernels/built/vmlinux");
    if !kernel.exists() {
        return Err(format!("no kernel at {}", kernel.display()));
    }
    let directory = tempfile::tempdir_in(temporary).map_err(|error| error.to_string())?;
    let program = directory.path().join("init");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixture/init.c");
    let output = Command::new("cc").args(["-O1", "-static", "-s", "-o"]).arg(&program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let content = fs::read(&program).map_err(|error| error.to_string())?;
    // Other test processes use the same file: it is made aside and put in place as a whole.
    let aside = directory.path().join("initramfs");
    let initramfs = temporary.join("runner-guest.cpio");
    let put = fs::write(&aside, cpio(&content)).and_then(|()| fs::rename(&aside, &initramfs));
    put.map_err(|error| error.to_string())?;
    let (authority, _) = Authority::generate().map_err(|error| error.to_string())?;
    Ok(Lab { kernel, initramfs, authority })
}

/// An archive with `/init` and the console (`newc`, Linux, Documentation/driver-api/early-userspace/buffer-format).
fn cpio(init: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entries = [
        ("dev", 0o040_755, &[][..], (0, 0)),
        ("dev/console", 0o020_600, &[][..], (5, 1)),
        ("init", 0o100_755, init, (0, 0)),
        ("TRAILER!!!", 0, &[][..], (0, 0)),
    ];
    for (number, (name, mode, content, device)) in entries.into_iter().enumerate() {
        let length = content.len() as u32;
        let fields =
            [number as u32, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
        bytes.extend(b"070701");
        for field in fields {
            bytes.extend(format!("{field:08x}").into_bytes());
        }
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
