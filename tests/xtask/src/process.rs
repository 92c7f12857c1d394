//! Running a lane: a child in a process group of its own, its output shown and kept, and a deadline.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::package::{by_hand, cargo};

#[derive(Debug)]
pub(crate) struct Ended {
    /// It exited with status 0 in time.
    pub(crate) good: bool,
    pub(crate) late: bool,
    /// Both streams, line by line.
    pub(crate) lines: Vec<String>,
}

/// Runs a cargo command with its output as it is; true if it succeeded.
pub(crate) fn run_cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let status = cargo().args(arguments).current_dir(root).status();
    Ok(status.with_context(|| format!("cannot run cargo {}", arguments.join(" ")))?.success())
}

/// Whether this runs as root: the second word of the line of user numbers (proc_pid_status(5)) is the effective one.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.and_then(|users| users.split_whitespace().nth(1)).is_some_and(|user| user == "0")
}

/// Runs a command with a time limit; its lines are shown as they come. A program of this repository is found in `programs`.
pub(crate) fn run(
    root: &Path,
    programs: &Path,
    command: &[&str],
    environment: &[(&str, &str)],
    limit: Duration,
) -> anyhow::Result<Ended> {
    let (program, arguments) = command.split_first().context("no command")?;
    let own = programs.join(program);
    let mut ready = match *program {
        "cargo" => cargo(),
        _ if own.is_file() => by_hand(own),
        other => by_hand(other),
    };
    let mut child = ready
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let (send, receive) = mpsc::sync_channel(1024);
    follow(child.stdout.take(), &send);
    follow(child.stderr.take(), &send);
    drop(send);
    let deadline = Instant::now() + limit;
    let mut lines: Vec<String> = Vec::new();
    let late = loop {
        match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                lines.push(line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        // The whole group: a test runner's children must not outlive their lane.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let status = child.wait().context("cannot wait for a lane")?;
    Ok(Ended { good: status.success() && !late, late, lines })
}

fn follow(stream: Option<impl Read + Send + 'static>, lines: &mpsc::SyncSender<String>) {
    let Some(stream) = stream else { return };
    let lines = lines.clone();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut raw = Vec::new();
        while reader.read_until(b'\n', &mut raw).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&raw).trim_end().to_owned();
            raw.clear();
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}

/// Makes a minimal Debian with more packages in a directory.
pub(crate) fn debootstrap(to: &Path, release: &str, packages: &str) -> anyhow::Result<()> {
    let made = Command::new("debootstrap")
        .args(["--variant=minbase", packages, release])
        .arg(to)
        .args(std::env::var("DEBIAN_MIRROR").ok())
        .env("PATH", path_with_sbin())
        .stdout(Stdio::null())
        .status()
        .context("cannot run debootstrap")?;
    ensure!(made.success(), "debootstrap failed; its log is {}/debootstrap/debootstrap.log", to.display());
    Ok(())
}

/// Whether a program is installed, also where only administrators have their `PATH`.
pub(crate) fn installed(program: &str) -> bool {
    std::env::split_paths(&path_with_sbin()).any(|directory| directory.join(program).is_file())
}

/// `PATH` with the directories of the administrator's programs.
pub(crate) fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, limit: Duration) -> Ended {
        run(Path::new("/"), Path::new("/"), &["sh", "-c", text], &[], limit).unwrap()
    }

    #[test]
    fn a_lane_is_stopped_at_its_deadline() {
        let ended = shell("echo begun; sleep 60", Duration::from_millis(300));
        assert!(ended.late && !ended.good);
        assert_eq!(ended.lines, ["begun"]);
    }

    #[test]
    fn both_streams_are_kept() {
        let mut ended = shell("echo a; echo b >&2", Duration::from_secs(20));
        ended.lines.sort();
        assert_eq!(ended.lines, ["a", "b"]);
        assert!(ended.good);
    }
}
