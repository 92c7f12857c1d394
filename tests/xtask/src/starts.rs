//! Which programs the product starts. Each file that starts one is listed here with what it starts; a program of the host
//! that a local cluster or a command needs is one that `neonctl doctor --local` asks for, so it cannot be forgotten there.

use std::path::{Path, PathBuf};

use crate::lines;

enum Starts {
    /// Programs of the host's distribution, in doctor's table.
    Host(&'static [&'static str]),
    /// Others, which doctor does not ask for, and why.
    #[expect(dead_code, reason = "for people")]
    Other(&'static str),
}

use Starts::{Host, Other};

/// Product files on the host that start programs.
const FILES: [(&str, Starts); 32] = [
    ("cli/src/commands/doctor/programs.rs", Other("programs that doctor found")),
    (
        "cli/src/commands/image/release.rs",
        Other("ctr, which hosts of containerd have; the error names the alternative"),
    ),
    ("cli/src/commands/local/down.rs", Other("our own program")),
    ("cli/src/commands/local/keep.rs", Other("our own program")),
    ("cli/src/commands/local/network.rs", Host(&["ip"])),
    ("cli/src/commands/local/start.rs", Other("our own program")),
    ("cli/src/commands/test/cluster/guest.rs", Other("our own program")),
    ("cli/src/commands/test/cluster/image.rs", Other("our own program, and a shell")),
    ("cli/src/commands/vm/ssh/session.rs", Host(&["ssh", "scp"])),
    ("controllers/hypervisor/src/accelerator/choose.rs", Other("our own program")),
    ("controllers/hypervisor/src/cpu_model.rs", Host(&["qemu-system-x86_64", "qemu-system-aarch64"])),
    ("controllers/hypervisor/src/disks/empty.rs", Host(&["mkfs.ext4"])),
    ("controllers/hypervisor/src/installation.rs", Host(&["qemu-system-x86_64", "qemu-system-aarch64"])),
    ("controllers/hypervisor/src/machine/start.rs", Host(&["qemu-system-x86_64", "qemu-system-aarch64"])),
    ("controllers/local/kubelet/src/confined.rs", Other("cat, which is everywhere")),
    ("controllers/local/kubelet/src/network/clean_up.rs", Host(&["ip", "nft"])),
    ("controllers/local/kubelet/src/network/command.rs", Host(&["ip", "nft"])),
    ("controllers/local/kubelet/src/node_object.rs", Other("our own program")),
    ("controllers/local/kubelet/src/process.rs", Other("our own programs")),
    ("controllers/local/kubelet/src/server/command.rs", Other("the user's command")),
    ("controllers/local/kubelet/src/server/exec.rs", Other("the user's command")),
    ("controllers/neond/src/local/supervisor/child.rs", Other("our own programs")),
    ("controllers/neond/src/main.rs", Other("our own program")),
    ("controllers/node/src/network/program.rs", Host(&["ip", "nft"])),
    ("controllers/runner/src/prepare/script.rs", Other("a shell with the user's script")),
    ("controllers/vxlan-controller/src/nft.rs", Host(&["nft"])),
    ("kernel/src/build.rs", Other("compilers, checked before a build")),
    ("kernel/src/fetch.rs", Other("apt-cache, where it is there")),
    ("kernel/src/source.rs", Other("apt, dpkg-deb and tar, for a build")),
    ("vm-builder/src/dockerfile.rs", Other("podman or docker, the first that is installed")),
    ("vm-builder/src/registry/credentials/helper.rs", Other("a helper that the user's configuration names")),
    ("vm-builder/src/tool.rs", Host(&["buildah"])),
];

/// Where doctor's tables are.
const DOCTOR: [&str; 2] = ["cli/src/commands/doctor/needs.rs", "cli/src/commands/doctor/programs.rs"];
/// Directories of the product that run on hosts. What runs in guests starts programs of images.
const PRODUCT: [&str; 5] = ["cli/src/", "controllers/", "deploy/", "kernel/src/", "vm-builder/src/"];
const START: &str = "Command::new(";

/// Every file that starts a program and is not listed, every listed one that starts none, and every program of the host that
/// doctor does not ask for.
pub(crate) fn faults(root: &Path, tracked: &[PathBuf]) -> Vec<String> {
    let found: Vec<String> = lines::sources(root, tracked)
        .filter(|(file, text)| is_product(file) && starts(text))
        .map(|(file, _)| file.display().to_string())
        .collect();
    let doctor: String =
        DOCTOR.iter().map(|file| std::fs::read_to_string(root.join(file)).unwrap_or_default()).collect();
    compare(&found, &doctor)
}

/// Code of the product; a module of tests has the name or the directory of one.
fn is_product(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let tests = ["tests", "tests.rs", "lab.rs", "conformance"];
    PRODUCT.iter().any(|directory| text.starts_with(directory))
        && !file.iter().any(|part| tests.iter().any(|name| part == *name))
}

/// Whether code starts a program, before the tests at its end and outside comments. A [`std::process::Command`] alone: types of
/// ours of that name take other arguments.
fn starts(text: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let imports = code.contains("process::Command") || code.contains("process::{");
    imports && code.lines().any(|line| line.contains(START) && !line.trim_start().starts_with("//"))
}

fn compare(found: &[String], doctor: &str) -> Vec<String> {
    let new = "starts a program; list it in starts.rs, and in doctor's table if the host has to have it";
    let mut faults =
        lines::compare(&FILES, found, [new, "starts no program any more; remove it from starts.rs"]);
    for (file, what) in &FILES {
        let Host(programs) = what else { continue };
        let missing = programs.iter().filter(|name| !doctor.contains(&format!("\"{name}\"")));
        faults.extend(missing.map(|name| format!("{file}: starts {name}, which doctor does not ask for")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_found_in_the_code_alone() {
        let import = "use std::process::Command;\n";
        assert!(starts(&format!("{import}fn f() {{ Command::new(\"x\"); }}")));
        assert!(starts("tokio::process::Command::new(program)"));
        for other in [
            format!("{import}// Command::new(\"x\")"),
            format!("{import}#[cfg(test)]\nmod tests {{ Command::new(\"x\") }}"),
            "use super::Command;\nCommand::new(node, handle)".to_owned(),
        ] {
            assert!(!starts(&other), "{other}");
        }
        assert!(is_product(Path::new("cli/src/main.rs")));
        for other in ["cli/tests/a.rs", "controllers/kit/src/client/tests.rs", "vm-builder/guest/src/a.rs"] {
            assert!(!is_product(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn new_stale_and_forgotten_ones_are_faults() {
        let mut found: Vec<String> = FILES.iter().map(|(file, _)| (*file).to_owned()).collect();
        let all =
            ["ip", "nft", "ssh", "scp", "mkfs.ext4", "buildah", "qemu-system-x86_64", "qemu-system-aarch64"];
        let doctor: String = all.iter().map(|name| format!("\"{name}\" ")).collect();
        assert_eq!(compare(&found, &doctor), Vec::<String>::new());
        found[0] = "cli/src/new.rs".to_owned();
        let faults = compare(&found, &doctor.replace("\"buildah\"", ""));
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[0].starts_with("cli/src/new.rs: starts a program"));
        assert!(faults[2].ends_with("starts buildah, which doctor does not ask for"));
    }
}
