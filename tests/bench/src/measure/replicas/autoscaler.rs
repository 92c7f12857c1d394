//! The autoscaler as a process of its own, so that its memory and processor time are its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neonvm_kit::port::Reserved;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LOOK, PATIENCE};
use crate::process::cpu_of;

/// Killed when dropped.
pub(super) struct Autoscaler {
    child: Child,
    metrics: Reserved,
}

impl Autoscaler {
    pub(super) async fn start(program: &Path, kubeconfig: &Path, directory: &Path) -> anyhow::Result<Self> {
        let metrics = Reserved::loopback()?;
        let log = std::fs::File::create(directory.join("autoscaler.log"))?;
        let mut command = Command::new(program);
        command.arg("pod-autoscaler").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--metrics-bind-address", &metrics.address().to_string()]).env("RUST_LOG", "warn");
        // Pods are simulated on the loopback interface.
        command.args(["--scrape-allow", "127.0.0.0/8"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let autoscaler = Self { child, metrics };
        let deadline = Instant::now() + PATIENCE;
        while autoscaler.turns().await.is_err() {
            ensure!(Instant::now() < deadline, "the autoscaler does not serve its metrics");
            tokio::time::sleep(LOOK).await;
        }
        Ok(autoscaler)
    }

    /// Stops it between two turns; answers with their count until then.
    pub(super) async fn stop(&self) -> anyhow::Result<u64> {
        let turns = self.turns().await?;
        self.signal(Signal::STOP)?;
        Ok(turns)
    }

    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = Pid::from_child(&self.child);
        Ok(kill_process(process, signal)?)
    }

    pub(super) async fn turns(&self) -> anyhow::Result<u64> {
        self.counter("neonvm_pod_autoscaler_turns_total").await
    }

    /// A counter from its metrics.
    pub(super) async fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let mut stream = TcpStream::connect(self.metrics.address()).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no {name} in {text:?}"))
    }

    /// In bytes.
    pub(super) fn memory(&self, field: &str) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {field} in the status of the autoscaler"))? * 1024)
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }
}

impl Drop for Autoscaler {
    fn drop(&mut self) {
        // It may be gone already; no caller needs the error. SIGKILL ends a stopped one, too.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}
