//! Where `unsafe` stands. Each file that calls what the compiler cannot check is listed here with what it calls, so that a new
//! one is a decision. In the files the workspace's lints require a reason and a `SAFETY:` comment for each block.

use std::path::{Path, PathBuf};

/// Files with `unsafe`, and what they need it for.
const FILES: [(&str, &str); 13] = [
    ("controllers/hypervisor/src/accelerator/counter.rs", "the time stamp counter"),
    ("controllers/hypervisor/src/accelerator/kvm.rs", "an ioctl of /dev/kvm"),
    (
        "controllers/hypervisor/src/accelerator/kvm/guest.rs",
        "ioctls of /dev/kvm and memory of the probe's guest",
    ),
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
    let is_code = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    let found: Vec<String> = tracked
        .iter()
        .filter(|file| is_code(file) && !file.ends_with(SELF))
        .filter(|file| has_unsafe(&std::fs::read_to_string(root.join(file)).unwrap_or_default()))
        .map(|file| file.display().to_string())
        .collect();
    compare(&found)
}

fn compare(found: &[String]) -> Vec<String> {
    let listed = |file: &str| FILES.iter().any(|(known, _)| *known == file);
    let new = found.iter().filter(|file| !listed(file));
    let mut faults: Vec<String> = new
        .map(|file| format!("{file}: has unsafe code; use a safe wrapper, or list the file in foreign.rs"))
        .collect();
    let stale = FILES.iter().filter(|(file, _)| !found.iter().any(|other| other == file));
    faults.extend(
        stale.map(|(file, _)| format!("{file}: has no unsafe code any more; remove it from foreign.rs")),
    );
    faults
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

    #[test]
    fn new_and_stale_files_are_faults() {
        let mut found: Vec<String> = FILES.iter().map(|(file, _)| (*file).to_owned()).collect();
        assert_eq!(compare(&found), Vec::<String>::new());
        found[0] = "cli/src/main.rs".to_owned();
        let faults = compare(&found);
        assert_eq!(faults.len(), 2);
        assert!(faults[0].starts_with("cli/src/main.rs: has unsafe code"));
    }
}
