//! QMP, as far as the reference needs it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::LIMIT;
use super::quota::Quota;

pub(super) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    async fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line).await? > 0, "QEMU closed its monitor");
        Ok(serde_json::from_str(&line)?)
    }

    pub(super) async fn greet(&mut self) -> anyhow::Result<()> {
        self.line().await?;
        self.ask("qmp_capabilities", json!({})).await.map(drop)
    }

    pub(super) async fn ask(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let request = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        loop {
            let answer = self.line().await?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if answer.get("error").is_some() {
                bail!("{command}: {answer}");
            }
        }
    }

    /// Asks the memory device for another size and waits until it has it. The size is that of what is plugged.
    pub(super) async fn memory(&mut self, device: &str, bytes: u64) -> anyhow::Result<()> {
        let set = json!({"path": device, "property": "requested-size", "value": bytes});
        self.ask("qom-set", set).await?;
        let deadline = Instant::now() + LIMIT;
        while self.ask("qom-get", json!({"path": device, "property": "size"})).await? != json!(bytes) {
            ensure!(Instant::now() < deadline, "the bare guest does not take {bytes} bytes");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    pub(super) async fn memory_device(&mut self) -> anyhow::Result<String> {
        let list = self.ask("qom-list", json!({"path": "/machine/peripheral"})).await?;
        let found = list.as_array().into_iter().flatten().find(|item| {
            item.get("type").and_then(Value::as_str).is_some_and(|kind| kind.contains("virtio-mem"))
        });
        let name = found.and_then(|item| item.get("name")).and_then(Value::as_str);
        Ok(format!("/machine/peripheral/{}", name.context("QEMU has no memory device")?))
    }

    /// Holds the virtual CPUs to one processor's time, as a runner does.
    pub(super) async fn hold(&mut self) -> anyhow::Result<Quota> {
        let processors = self.ask("query-cpus-fast", json!({})).await?;
        let processors = processors.as_array().into_iter().flatten();
        let threads: Vec<i64> = processors.filter_map(|cpu| cpu.get("thread-id")?.as_i64()).collect();
        Quota::of_one_cpu(&threads)
    }
}
