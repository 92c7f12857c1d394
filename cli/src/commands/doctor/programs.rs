//! Programs of others: QEMU above all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::{Check, fail, ok, warn};
use super::child::ask;
use crate::env::Env;

/// How long QEMU may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The oldest QEMU that we know to do what we need.
const OLDEST: (u32, u32) = (7, 2);

/// The architecture of this machine: as in images, as in QEMU's name, the package.
pub(super) fn architecture() -> (&'static str, &'static str, &'static str) {
    match std::env::consts::ARCH {
        "aarch64" => ("arm64", "qemu-system-aarch64", "apt-get install qemu-system-arm"),
        _ => ("amd64", "qemu-system-x86_64", "apt-get install qemu-system-x86"),
    }
}

/// QEMU, its firmware, and the tools around it.
pub(super) fn programs(env: &Env, root: bool) -> Vec<Check> {
    let mut checks = qemu(env);
    checks.push(tool(env, "qemu-img", "creates the disks of VMs", "apt-get install qemu-utils"));
    checks.push(
        tool(env, "mkfs.ext4", "creates the file systems of disks", "apt-get install e2fsprogs")
            .at_most_warn(),
    );
    for (name, what, remedy) in [
        ("ip", "configures the network of nodes and pods", "apt-get install iproute2"),
        ("nft", "gives VMs access to external networks", "apt-get install nftables"),
    ] {
        // Without root both are not used.
        let check = tool(env, name, what, remedy);
        checks.push(if root && name == "ip" { check } else { check.at_most_warn() });
    }
    let ssh = tool(env, "ssh", "is required by neonctl vm ssh", "apt-get install openssh-client");
    checks.push(ssh.at_most_warn());
    checks
}

fn tool(env: &Env, name: &'static str, what: &str, remedy: &str) -> Check {
    match env.program(name) {
        Some(path) => ok(name, path.display().to_string()),
        None => fail(name, format!("not found; it {what}"), remedy),
    }
}

fn qemu(env: &Env) -> Vec<Check> {
    let (_, name, remedy) = architecture();
    let Some(path) = env.program(name) else {
        return vec![fail(name, "not found; it runs the VMs", remedy)];
    };
    let answer = match ask(&path, &["--version"], DEADLINE) {
        Ok(answer) => answer,
        Err(error) => {
            return vec![fail(name, format!("{} --version: {}", path.display(), error.message), remedy)];
        }
    };
    let checked = match version(&answer.text) {
        Some((numbers, text)) if numbers >= OLDEST => ok(name, format!("{text} at {}", path.display())),
        Some((_, text)) => fail(
            name,
            format!("{text} at {} is older than {}.{}", path.display(), OLDEST.0, OLDEST.1),
            "install a newer QEMU",
        ),
        None => fail(name, format!("{} --version does not print a version", path.display()), remedy),
    };
    let mut checks = vec![checked];
    if std::env::consts::ARCH == "x86_64" {
        checks.push(qboot(&path, remedy));
    }
    checks
}

/// The first two numbers and the whole version of what `--version` prints.
fn version(text: &str) -> Option<((u32, u32), String)> {
    let word = text.lines().next()?.split_once("version ")?.1.split_whitespace().next()?;
    let mut numbers = word.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    Some(((numbers.next()?, numbers.next()?), word.to_owned()))
}

/// The firmware that starts kernels in some milliseconds; looked for where this QEMU looks.
fn qboot(qemu: &Path, remedy: &str) -> Check {
    let places = ask(qemu, &["-L", "help"], DEADLINE).map(|answer| answer.text).unwrap_or_default();
    let found =
        places.lines().map(|line| PathBuf::from(line.trim()).join("qboot.rom")).find(|file| file.is_file());
    match found {
        Some(file) => ok("qboot.rom", std::fs::canonicalize(&file).unwrap_or(file).display().to_string()),
        None => warn(
            "qboot.rom",
            "not found in QEMU's firmware directories; kernels with a PVH entry do not start",
            remedy,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_qemu() {
        for (text, wanted) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright", Some(((7, 2), "7.2.22"))),
            ("QEMU emulator version 10.0", Some(((10, 0), "10.0"))),
            ("QEMU emulator version 9.1.0-rc2 (v9)", Some(((9, 1), "9.1.0-rc2"))),
            ("QEMU emulator version x", None),
            ("", None),
        ] {
            let wanted = wanted.map(|(numbers, text): (_, &str)| (numbers, text.to_owned()));
            assert_eq!(version(text), wanted, "{text}");
        }
    }
}
