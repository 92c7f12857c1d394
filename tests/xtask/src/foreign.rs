//! Where `unsafe` stands. Each file that calls what the compiler cannot check is listed here with what it calls, so that a new
//! one is a decision. In the files the workspace's lints require a reason and a `SAFETY:` comment for each block.

use std::path::{Path, PathBuf};

use crate::lines;

/// Files with `unsafe`, and what they need it for.
const FILES: [(&str, &str); 14] = [
    ("controllers/hypervisor/src/accelerator/counter.rs", "the time stamp counter"),
    ("controllers/hypervisor/src/accelerator/kvm.rs", "an ioctl of /dev/kvm"),
    (
        "controllers/hypervisor/src/accelerator/kvm/guest.rs",
        "ioctls of /dev/kvm and memory of the probe's guest",
    ),
    ("controllers/hypervisor/src/landlock.rs", "system calls without a safe wrapper"),
    ("controllers/hypervisor/src/sys.rs", "what a child does between fork and exec"),
    ("controllers/kit/src/descriptors.rs", "`close_range`"),
    ("controllers/neond/src/local/supervisor/process.rs", "what a child does between fork and exec"),
    ("controllers/hypervisor/src/tap.rs", "ioctls of tap devices"),
    ("controllers/local/kubelet/src/sys.rs", "what a child does between fork and exec"),
    ("controllers/node/src/network/sockets.rs", "options of sockets"),
    ("controllers/node/src/service/caller.rs", "an option of sockets"),
    ("controllers/runner/src/network/capture.rs", "a packet socket"),
    ("vm-builder/guest/src/daemon/memory.rs", "the C library's allocator"),
    ("vm-builder/guest/src/system.rs", "system calls without a safe wrapper"),
];

/// This file, whose tests hold such words as text.
const SELF: &str = "tests/xtask/src/foreign.rs";

/// Every file with `unsafe` that is not listed, and every listed one without.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let found: Vec<String> = lines::sources(root, tracked)
        .filter(|(file, text)| !file.ends_with(SELF) && has_unsafe(text))
        .map(|(file, _)| file.display().to_string())
        .collect();
    let new = "has unsafe code; use a safe wrapper, or list the file in foreign.rs";
    lines::compare(&FILES, &found, [new, "has no unsafe code any more; remove it from foreign.rs"])
}

/// Whether code, not a comment or a lint's name, contains `unsafe`.
fn has_unsafe(text: &str) -> bool {
    let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    code.flat_map(|line| line.match_indices("unsafe ").map(move |(at, _)| (line, at))).any(|(line, at)| {
        let before = line.get(..at).and_then(|before| before.chars().last());
        let rest = line.get(at + "unsafe ".len()..).unwrap_or_default();
        let starts =
            ["{", "fn ", "impl ", "impl<", "extern ", "trait "].iter().any(|word| rest.starts_with(word));
        starts && before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_distinguished_from_words() {
        for code in
            ["    unsafe { f() }", "unsafe fn f() {", "let x = unsafe { g() };", "unsafe impl Send for X {}"]
        {
            assert!(has_unsafe(code), "{code}");
        }
        for other in ["// unsafe { f() }", "unsafe_code = \"deny\"", "\"unsafe { \"", "an unsafe thing"] {
            assert!(!has_unsafe(other), "{other}");
        }
    }
}
