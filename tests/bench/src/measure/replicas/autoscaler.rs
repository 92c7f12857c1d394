//! The autoscaler as a process of its own, so that its memory and processor time are its own.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use neonvm_kit::port::Reserved;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LOOK, PATIENCE};
use crate::service::Service;

/// Killed when dropped.
#[derive(Debug)]
pub(super) struct Autoscaler {
    /// The process.
    pub(super) service: Service,
    metrics: Reserved,
}

impl Autoscaler {
    pub(super) async fn start(program: &Path, kubeconfig: &Path, directory: &Path) -> anyhow::Result<Self> {
        let metrics = Reserved::loopback()?;
        let address = metrics.address().to_string();
        // Pods are simulated on the loopback interface.
        let arguments: [&OsStr; 6] = [
            "--kubeconfig".as_ref(),
            kubeconfig.as_ref(),
            "--metrics-bind-address".as_ref(),
            address.as_ref(),
            "--scrape-allow".as_ref(),
            "127.0.0.0/8".as_ref(),
        ];
        let service = Service::start(program, "pod-autoscaler", &arguments, directory)?;
        let autoscaler = Self { service, metrics };
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
        self.service.signal(Signal::STOP)?;
        Ok(turns)
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
}
