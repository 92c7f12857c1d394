//! A service of `neond` as a child process, and what the kernel knows about it.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::process::{cpu_of, memory_of};

/// Killed when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
}

impl Service {
    /// Starts `program name arguments…`; what it logs is appended to `NAME.log` in the directory.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: &Path,
        name: &'static str,
        arguments: &[A],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command.arg(name).args(arguments).env("RUST_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child })
    }

    /// Resident memory now, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        memory_of(self.child.id(), "VmRSS:")
    }

    /// Highest resident memory since the start, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        memory_of(self.child.id(), "VmHWM:")
    }

    /// Processor time of all its present threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.child.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may be gone already; no caller needs the error. SIGKILL ends a stopped one, too.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}
