//! A bare QEMU whose memory goes to a file, and others that start from it: from version 9 on with the file as memory, so that they read
//! none of it, before by reading a stream.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neonvm_kit::port::Reserved;
use serde_json::json;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::super::qmp::Monitor;
use super::super::{LIMIT, milliseconds};
use super::{Bare, Killed, Recipe, accept};

/// The block that has all memory of a machine without a memory device, and its header (QEMU's `docs/devel/migration/mapped-ram.rst`).
const BLOCK: &[u8] = b"\x06pc.ram";

/// A file with the memory of a machine.
pub(in super::super) struct Stored {
    recipe: Recipe,
    file: PathBuf,
    overlay: PathBuf,
    echo: Reserved,
    /// Port of the guest that sends everything back.
    port: u16,
    /// Whether the file is the memory of the next machine.
    pub(in super::super) is_mapped: bool,
    /// Bytes of the file on its disk.
    pub(in super::super) bytes: u64,
    /// Milliseconds that it took to write it.
    pub(in super::super) took: f64,
}

impl Recipe {
    /// Starts it, waits until its workload listens on a port, and stores its memory.
    pub(in super::super) async fn store(mut self, port: u16) -> anyhow::Result<Stored> {
        let (mut bare, _) = self.start(false).await?;
        let echo = Reserved::loopback()?;
        forward(&mut bare.monitor, echo.address(), port).await?;
        listens(echo.address()).await?;
        let major = bare.monitor.ask("query-version", json!({})).await?;
        let is_mapped = major.pointer("/qemu/major").and_then(|major| major.as_u64()).unwrap_or(0) >= 9;
        let file = self.directory.join("memory");
        bare.monitor.ask("stop", json!({})).await?;
        let begun = Instant::now();
        transfer(&mut bare.monitor, "migrate", &file, is_mapped).await?;
        let took = milliseconds(begun.elapsed());
        bare.end()?;
        let overlay = self.directory.join("kept.qcow2");
        std::fs::copy(&self.overlay, &overlay)?;
        if is_mapped {
            self.arguments_for(&file)?;
        }
        let bytes = file.metadata()?.blocks() * 512;
        Ok(Stored { recipe: self, file, overlay, echo, port, is_mapped, bytes, took })
    }

    /// Changes the command so that the file is the memory, and the file so that nothing of it is read.
    fn arguments_for(&mut self, file: &Path) -> anyhow::Result<()> {
        let mut head = vec![0; 4096];
        std::fs::File::open(file)?.read_exact(&mut head)?;
        let at = head.windows(BLOCK.len()).position(|part| part == BLOCK).context("no memory in the file")?;
        let numbers = head.get(at + BLOCK.len()..at + BLOCK.len() + 36).context("a short header")?;
        let number = |at: usize| -> anyhow::Result<u64> {
            let bytes = numbers.get(at..at + 8).context("a short header")?;
            Ok(u64::from_be_bytes(bytes.try_into()?))
        };
        let (length, bitmap, offset) = (number(0)?, number(20)?, number(28)?);
        let zeros = vec![0; usize::try_from(length.div_ceil(4096 * 8))?];
        let written = std::fs::File::options().write(true).open(file)?;
        std::os::unix::fs::FileExt::write_all_at(&written, &zeros, bitmap)?;
        let board = self.arguments.iter().position(|word| word == "-machine").context("no -machine")?;
        self.arguments.get_mut(board + 1).context("no board")?.push_str(",memory-backend=pc.ram");
        let path = file.display();
        let object = format!(
            "memory-backend-file,id=pc.ram,size={length},mem-path={path},offset={offset},share=off,readonly=on,rom=off"
        );
        self.arguments.extend(["-object".to_owned(), object]);
        Ok(())
    }
}

impl Stored {
    /// Milliseconds from the start of a process until its guest has sent back a byte, on a new connection.
    pub(in super::super) async fn wake(&self) -> anyhow::Result<f64> {
        let (mut command, listeners) = self.recipe.prepare()?;
        std::fs::copy(&self.overlay, &self.recipe.overlay)?;
        let begun = Instant::now();
        let child = Killed(Some(command.args(["-incoming", "defer"]).spawn()?));
        let woken = async {
            let (mut monitor, mut report, mut drains) = accept(&listeners).await?;
            drains.spawn(async move { drop(tokio::io::copy(&mut report, &mut tokio::io::sink()).await) });
            monitor.greet().await?;
            forward(&mut monitor, self.echo.address(), self.port).await?;
            transfer(&mut monitor, "migrate-incoming", &self.file, self.is_mapped).await?;
            monitor.ask("cont", json!({})).await?;
            let took = echo(self.echo.address(), begun).await?;
            let child = child.keep().context("no process")?;
            let address = self.recipe.listen.address();
            Bare { child, monitor, address, quota: None, _drains: drains }.end()?;
            anyhow::Ok(took)
        };
        tokio::time::timeout(LIMIT, woken).await.context("the bare guest does not wake in time")?
    }
}

/// Lets a port of this host lead into the guest.
pub(in super::super) async fn forward(
    monitor: &mut Monitor,
    from: SocketAddr,
    port: u16,
) -> anyhow::Result<()> {
    let line = format!("hostfwd_add net0 tcp:{from}-169.254.254.254:{port}");
    monitor.ask("human-monitor-command", json!({"command-line": line})).await.map(drop)
}

/// Waits until a guest sends back what it gets.
pub(in super::super) async fn listens(address: SocketAddr) -> anyhow::Result<()> {
    answered(async || echo(address, Instant::now()).await).await
}

/// Asks the workload of a guest until it answers.
pub(in super::super) async fn answered(ask: impl AsyncFn() -> anyhow::Result<f64>) -> anyhow::Result<()> {
    let answers = async {
        while ask().await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, answers).await.context("the workload does not listen")
}

/// Milliseconds since a moment until a new connection has sent back a byte.
pub(in super::super) async fn echo(address: SocketAddr, begun: Instant) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0]).await?;
    Ok(milliseconds(begun.elapsed()))
}

/// Writes or reads the memory of a machine that stands still, and waits for the end.
async fn transfer(monitor: &mut Monitor, command: &str, file: &Path, is_mapped: bool) -> anyhow::Result<()> {
    let names: &[&str] = if is_mapped { &["mapped-ram", "multifd"] } else { &[] };
    let states: Vec<_> = names.iter().map(|name| json!({"capability": name, "state": true})).collect();
    monitor.ask("migrate-set-capabilities", json!({"capabilities": states})).await?;
    monitor.ask("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40})).await?;
    let socket = file.with_extension("sock");
    let stream = if is_mapped {
        monitor.ask(command, json!({"uri": format!("file:{}", file.display())})).await?;
        None
    } else {
        let _ = std::fs::remove_file(&socket);
        let uri = json!({"uri": format!("unix:{}", socket.display())});
        let file = file.to_owned();
        Some(if command == "migrate" {
            let listener = UnixListener::bind(&socket)?;
            monitor.ask(command, uri).await?;
            tokio::spawn(async move {
                tokio::io::copy(&mut listener.accept().await?.0, &mut File::create(file).await?).await
            })
        } else {
            monitor.ask(command, uri).await?;
            tokio::spawn(async move {
                tokio::io::copy(&mut File::open(file).await?, &mut UnixStream::connect(socket).await?).await
            })
        })
    };
    loop {
        let answer = monitor.ask("query-migrate", json!({})).await?;
        match answer.get("status").and_then(|status| status.as_str()) {
            Some("completed") => break,
            Some("failed" | "cancelled") => anyhow::bail!("{command}: {answer}"),
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    if let Some(stream) = stream {
        ensure!(stream.await?? > 0, "an empty memory");
    }
    Ok(())
}
