//! Programs of others: QEMU above all. All others are in [`PROGRAMS`].

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::needs::{Family, Necessity, PROGRAMS, Package, Program};
use crate::commands::checks::finding::{Finding, fail, ok, warn};
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result, reason};

/// How long QEMU may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The oldest QEMU that we know to do what we need.
const OLDEST: (u32, u32) = (7, 2);

pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}

fn own_qemu() -> (&'static str, Package) {
    match architecture() {
        "arm64" => (
            "qemu-system-aarch64",
            Package {
                debian: "qemu-system-arm",
                fedora: "qemu-system-aarch64",
                suse: "qemu-arm",
                arch: "qemu-system-aarch64",
            },
        ),
        _ => (
            "qemu-system-x86_64",
            Package {
                debian: "qemu-system-x86",
                fedora: "qemu-system-x86",
                suse: "qemu-x86",
                arch: "qemu-system-x86",
            },
        ),
    }
}

pub(super) fn programs(env: &Env, root: bool) -> Vec<Finding> {
    let family = Family::of_host();
    let mut checks = qemu(env, family);
    checks.extend(PROGRAMS.iter().map(|program| tool(env, program, family, root)));
    checks
}

fn tool(env: &Env, program: &Program, family: Family, root: bool) -> Finding {
    let name = program.name;
    if let Some(path) = env.program(name) {
        return ok(name, path.display().to_string());
    }
    let check = fail(name, format!("not found; it {}", program.purpose), family.install(&program.package));
    if root && program.necessity == Necessity::Root { check } else { check.at_most_warn() }
}

fn qemu(env: &Env, family: Family) -> Vec<Finding> {
    let (name, package) = own_qemu();
    let remedy = &family.install(&package);
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
fn qboot(qemu: &Path, remedy: &str) -> Finding {
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

/// Most of an answer that is read, in bytes.
const LONGEST: u64 = 64 << 10;

pub(super) struct ProgramOutput {
    pub(super) success: bool,
    pub(super) text: String,
    /// The first line of standard error.
    pub(super) complaint: String,
}

/// Runs a program to its end; kills it at the deadline.
pub(super) fn ask(program: &Path, arguments: &[&str], deadline: Duration) -> Result<ProgramOutput> {
    block_on(async {
        let failed = |error: std::io::Error| {
            Error::new(Code::Failed, format!("{} does not start: {}", program.display(), reason(&error)))
        };
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let all = async { tokio::join!(read(stdout), read(stderr), child.wait()) };
        match tokio::time::timeout(deadline, all).await {
            Ok((text, errors, ended)) => Ok(ProgramOutput {
                success: ended.is_ok_and(|status| status.success()),
                text,
                complaint: errors.lines().next().unwrap_or_default().trim().to_owned(),
            }),
            Err(_) => {
                Err(Error::new(Code::Timeout, format!("it was stopped after {} s", deadline.as_secs())))
            }
        }
    })
}

async fn read<R: tokio::io::AsyncRead + Unpin>(stream: Option<R>) -> String {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came before an error is the answer.
        let _ = stream.take(LONGEST).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

    #[test]
    fn a_program_that_hangs_is_ended() {
        let error = ask(Path::new("/bin/sleep"), &["1000"], Duration::from_millis(50)).err().unwrap();
        assert_eq!(error.code, Code::Timeout);
    }

    #[test]
    fn answers_and_complaints() {
        let answer =
            ask(Path::new("/bin/sh"), &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(60))
                .unwrap();
        assert_eq!(
            (answer.success, answer.text.as_str(), answer.complaint.as_str()),
            (false, "out\n", "err")
        );
        assert!(ask(Path::new("/no/such/program"), &[], Duration::from_secs(60)).is_err());
    }
}
