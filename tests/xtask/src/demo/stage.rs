//! Output of the demonstration: each command is shown before it runs, with the time since the start.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

/// Where the database's programs are in its root directory.
pub(super) const POSTGRES: &str = "/usr/lib/postgresql/17/bin";

pub(super) struct Stage {
    pub(super) root: PathBuf,
    /// Kept between runs: kernel, image, root directory of the database.
    pub(super) kept: PathBuf,
    pub(super) programs: PathBuf,
    path: std::ffi::OsString,
    begun: Instant,
}

impl Stage {
    pub(super) fn new(root: &Path) -> anyhow::Result<Self> {
        let target = crate::package::target(root)?;
        let kept = target.join("demo");
        let programs = target.join(super::PROFILE);
        std::fs::create_dir_all(&kept)?;
        let mut path = vec![programs.clone()];
        path.extend(std::env::split_paths(&crate::process::path_with_sbin()));
        let path = std::env::join_paths(path)?;
        Ok(Self { root: root.to_owned(), kept, programs, path, begun: Instant::now() })
    }

    pub(super) fn title(&self, text: &str) {
        println!("\n[{:5.1}s] {text}", self.begun.elapsed().as_secs_f64());
    }

    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root).env("PATH", &self.path);
        command.env("XDG_DATA_HOME", self.kept.join("data")).env("XDG_CACHE_HOME", self.kept.join("cache"));
        command.env("XDG_STATE_HOME", self.kept.join("state")).env("KUBECONFIG", self.kubeconfig());
        command
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.kept.join("state/neonctl/local/demo/kubeconfig")
    }

    pub(super) fn show(&self, program: &str, arguments: &[&str]) {
        let quoted =
            |word: &&str| if word.contains([' ', ';']) { format!("'{word}'") } else { (*word).to_owned() };
        let words: Vec<String> = arguments.iter().map(quoted).collect();
        println!("[{:5.1}s] $ {program} {}", self.begun.elapsed().as_secs_f64(), words.join(" "));
    }

    pub(super) fn step(&self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        self.show(program, arguments);
        let status = self.command(program, arguments).status();
        let status = status.with_context(|| format!("cannot run {program}"))?;
        ensure!(status.success(), "{program} {}: {status}", arguments.join(" "));
        Ok(())
    }

    pub(super) fn neonctl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.step("neonctl", arguments)
    }

    pub(super) fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.command(program, arguments).output()?;
        ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A program of the database from its root directory, so that nothing has to be installed for it.
    pub(super) fn database_client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.kept.join("postgres-17-root")).arg(format!("{POSTGRES}/{program}")).args(arguments);
        command.env("PATH", &self.path).env("LC_ALL", "C.UTF-8");
        command
    }
}
