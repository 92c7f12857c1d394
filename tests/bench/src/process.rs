//! A server as a child process, and what the kernel knows about it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at a file that a starting server writes.
const LOOK: Duration = Duration::from_millis(1);

/// A command line that serves with `--data-dir D --listen A [--chaos]` appended.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// `path arguments…`
    pub fn new(path: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self { path: path.into(), arguments: arguments.iter().map(OsString::from).collect() }
    }

    /// The program without its arguments.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `neond apiserver`, the binary given or found beside the running one.
    ///
    /// # Errors
    /// If it is not there; the message names the command that builds it.
    pub fn neond(given: Option<&Path>) -> anyhow::Result<Self> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()?.with_file_name("neond"),
        };
        if !path.is_file() {
            bail!(
                "there is no server at {}; build it with `cargo build --release -p neonvm-neond`, or name one with --neond",
                path.display()
            );
        }
        Ok(Self::new(path, &["apiserver"]))
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    started: Instant,
    kubeconfig: Kubeconfig,
    /// Time from the start of the process until it answered `/readyz`.
    pub ready: Duration,
}

impl Process {
    /// Starts a server over `directory` and waits until it answers `/readyz`.
    ///
    /// # Errors
    /// If it ends, or does not answer within 60 s; the message carries the end of its log.
    pub async fn start(program: &Program, directory: &Path, chaos: bool) -> anyhow::Result<Self> {
        let mut process = Self::spawn(program, directory, chaos)?;
        process.wait(directory).await?;
        Ok(process)
    }

    /// Starts a server and does not wait for anything.
    pub fn spawn(program: &Program, directory: &Path, chaos: bool) -> anyhow::Result<Self> {
        let written = directory.join("kubeconfig");
        if written.exists() {
            std::fs::remove_file(&written)?;
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(directory.join("log"))?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).arg("--data-dir").arg(directory).args(["--listen", "127.0.0.1:0"]);
        if chaos {
            command.arg("--chaos");
        }
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot start {}", program.path.display()))?;
        Ok(Self { child, started, kubeconfig: Kubeconfig::default(), ready: START_LIMIT })
    }

    async fn wait(&mut self, directory: &Path) -> anyhow::Result<()> {
        let written = directory.join("kubeconfig");
        while !written.exists() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} before it was ready: {}", tail(directory));
            }
            if self.started.elapsed() > START_LIMIT {
                bail!("the server was not ready after {START_LIMIT:?}: {}", tail(directory));
            }
            tokio::time::sleep(LOOK).await;
        }
        self.kubeconfig = Kubeconfig::from_yaml(&std::fs::read_to_string(&written)?)?;
        let client = self.client().await?;
        client.request_text(http::Request::get("/readyz").body(Vec::new())?).await.context("/readyz")?;
        self.ready = self.started.elapsed();
        Ok(())
    }

    /// Configuration of an administrator's client; nothing is retried behind the caller's back.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let mut config =
            Config::from_custom_kubeconfig(self.kubeconfig.clone(), &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(config)
    }

    /// A client with connections of its own.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Resident memory in bytes now.
    pub fn memory(&self) -> anyhow::Result<u64> {
        memory_of(self.id(), "VmRSS:")
    }

    /// Highest resident memory in bytes since the start.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        memory_of(self.id(), "VmHWM:")
    }

    /// Processor time of all its present threads.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; no caller needs the error.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

/// A field of a process's status that is an amount of memory, in bytes.
pub(crate) fn memory_of(process: u32, field: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("no {field} in the status of the process"))? * 1024)
}

/// Processor time of the present threads of a process: `schedstat` counts nanoseconds where `stat` counts hundredths of a second.
pub(crate) fn cpu_of(process: u32) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end between the two looks.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

fn tail(directory: &Path) -> String {
    let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
    let last: Vec<&str> = log.lines().rev().take(5).collect();
    last.into_iter().rev().collect::<Vec<_>>().join("\n")
}
