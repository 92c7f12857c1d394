//! What a test run leaves when it is broken off: the programs of its lane, local clusters, network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::package::target;

/// Marks programs of a test run: a variable of every lane, with the directory of the repository.
pub(crate) const MARK: &str = "NEONVM_TEST_RUN";

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// Time for killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends what runs of a test run of this repository, and removes what it made.
pub(crate) fn clean_up(root: &Path) -> anyhow::Result<()> {
    let target = target(root)?;
    end(|process| process.variable(MARK) == Some(root.to_string_lossy().as_ref()))?;
    for home in homes(&target.join("tmp")) {
        remove_home(&target.join("debug/neonctl"), &home)?;
    }
    remove_namespaces();
    Ok(())
}

/// A process as `/proc` shows it.
struct Process {
    id: u32,
    command: Vec<u8>,
    environment: Vec<u8>,
}

impl Process {
    fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(|id| *id != std::process::id()).map(Self::from_id).collect()
    }

    fn from_id(id: u32) -> Self {
        let read = |name: &str| fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
        Self { id, command: read("cmdline"), environment: read("environ") }
    }

    /// A variable of the environment it was started with.
    fn variable(&self, name: &str) -> Option<&str> {
        let variables = self.environment.split(|byte| *byte == 0);
        let mut variables = variables.filter_map(|variable| std::str::from_utf8(variable).ok());
        variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether this is the name of its program.
    fn is_called(&self, name: &str) -> bool {
        let program = self.command.split(|byte| *byte == 0).next().unwrap_or_default();
        program.rsplit(|byte| *byte == b'/').next() == Some(name.as_bytes())
    }

    /// Whether it was started with a directory as its home, or with a path below it as an argument.
    fn is_of(&self, home: &Path) -> bool {
        let arguments = String::from_utf8_lossy(&self.command);
        self.variable("HOME").is_some_and(|value| Path::new(value) == home)
            || arguments.contains(&format!("{}/", home.display()))
    }
}

/// Kills the processes of a kind, again and again: one may start another just before it ends.
fn end(of_this_kind: impl Fn(&Process) -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<u32> =
            Process::all().iter().filter(|process| of_this_kind(process)).map(|process| process.id).collect();
        if left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "processes do not end: {left:?}");
        let ids = left.iter().map(u32::to_string);
        let _ = Command::new("kill").arg("-KILL").args(ids).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Homes of the persons that lanes play: each may have local clusters.
fn homes(temporary: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    let is_home = |name: &str| name.starts_with("home-") || name.starts_with("kernel-home-");
    entries.filter(|entry| is_home(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// Takes down the clusters of a home, ends what else was started there, and removes it.
fn remove_home(neonctl: &Path, home: &Path) -> anyhow::Result<()> {
    // What is still at work there has clusters locked, and would make files again.
    end(|process| process.is_of(home) && process.is_called("neonctl"))?;
    if home.join(".local/state/neonctl/local").exists() {
        let mut down = Command::new(neonctl);
        down.args(["local", "down", "--all", "--delete"])
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_DATA_HOME");
        down.env_remove("XDG_CACHE_HOME").env_remove("KUBECONFIG").env("HOME", home).current_dir(home);
        let done = down.stdin(Stdio::null()).output()?;
        let error = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "clusters of {} stay: {error}", home.display());
    }
    end(|process| process.is_of(home))?;
    fs::remove_dir_all(home).with_context(|| format!("cannot remove {}", home.display()))
}

/// Removes network namespaces of tests whose process is gone.
fn remove_namespaces() {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let gone = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
        if owner(&name).is_some_and(gone) {
            let _ = Command::new("ip").args(["netns", "delete", &name]).status();
        }
    }
}

/// The process that a test's network namespace is named after: `nvxID-…` of the overlay, `nvrID-…` of the runner. Those of local
/// clusters, `nv-…`, go with them.
fn owner(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("nvx").or_else(|| name.strip_prefix("nvr"))?;
    rest.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_started_for_a_run_is_ended() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path();
        let start = |variable: &str, value: &Path| {
            Command::new("sleep").arg("1000").env(variable, value).spawn().unwrap()
        };
        let mut of_run = start(MARK, path);
        let mut of_home = start("HOME", path);
        let mut other = start(MARK, Path::new("/another"));
        end(|process| process.is_of(path) && process.is_called("neonctl")).unwrap();
        assert!(of_home.try_wait().unwrap().is_none());
        end(|process| process.variable(MARK) == path.to_str() || process.is_of(path)).unwrap();
        assert!(!of_run.wait().unwrap().success() && !of_home.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn the_name_of_a_namespace_has_its_owner() {
        assert_eq!(owner("nvx1203-0-n1"), Some(1203));
        assert_eq!(owner("nvr77-forwarding"), Some(77));
        // Of a local cluster, and of another program.
        assert_eq!(owner("nv-a1b2c3-n-1"), None);
        assert_eq!(owner("blue"), None);
    }

    #[test]
    fn homes_are_distinguished_from_what_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["disk", "home-a7", "other"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        assert_eq!(homes(directory.path()), [directory.path().join("home-a7")]);
    }
}
