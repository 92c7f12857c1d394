//! QEMU without anything of ours around it: the command line of a machine of the cluster, with files, sockets and a network of
//! its own in place of what the runner handed over.

pub(super) mod stored;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neonvm_kit::port::Reserved;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::super::run_command as run;
use super::LIMIT;
use super::cluster::DISK;
use super::qmp::Monitor;
use super::quota::Quota;

/// Time for one question to the guest.
const ANSWER: Duration = Duration::from_secs(10);
/// Between two questions to a guest that has not answered yet.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// Sockets that QEMU connects to; those of which the bytes matter are `monitor` and `report`.
const SOCKETS: [&str; 4] = ["monitor", "console", "log", "report"];

/// Bytes from which a file is shared: images and kernels. Files of a pod are smaller, and vanish with it.
const SHARED: u64 = 64 << 20;

pub(super) struct Recipe {
    arguments: Vec<String>,
    directory: PathBuf,
    base: PathBuf,
    overlay: PathBuf,
    /// Written disks besides the root disk: the names of their nodes, and files of the same size.
    volumes: Vec<(String, PathBuf)>,
    listen: Reserved,
}

/// One that runs; killed when dropped.
pub(super) struct Bare {
    child: Child,
    pub(super) monitor: Monitor,
    pub(super) address: SocketAddr,
    quota: Option<Quota>,
    _drains: tokio::task::JoinSet<()>,
}

/// Milliseconds from the start of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) booted: f64,
    pub(super) ready: f64,
    pub(super) workload: f64,
    pub(super) answered: f64,
}

impl Recipe {
    /// From a machine that runs now. Files are copied into `directory`, except the image and the kernel, which are shared.
    pub(super) fn from_process(process: u32, directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let line = std::fs::read(format!("/proc/{process}/cmdline"))?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let listen = Reserved::loopback()?;
        let overlay = directory.join("overlay.qcow2");
        let mut this = Self {
            arguments: Vec::new(),
            directory: directory.to_owned(),
            base: PathBuf::new(),
            overlay,
            volumes: Vec::new(),
            listen,
        };
        let sets = descriptor_sets(process, &words)?;
        let mut words = words.into_iter().filter(|word| !word.is_empty()).skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-S" => {}
                "-add-fd" => drop(words.next()),
                "-chardev" | "-netdev" | "-blockdev" | "-kernel" | "-initrd" => {
                    let value = words.next().context("an option without its value")?;
                    let value = this.value(process, &word, &value, &sets)?;
                    this.arguments.extend([word, value]);
                }
                _ => this.arguments.push(word),
            }
        }
        ensure!(this.base.is_file(), "the command line of QEMU names no image: {:?}", this.arguments);
        Ok(this)
    }

    fn value(
        &mut self,
        process: u32,
        option: &str,
        value: &str,
        sets: &[(String, String)],
    ) -> anyhow::Result<String> {
        match option {
            "-chardev" => {
                let id =
                    value.split_once("id=").and_then(|(_, rest)| rest.split(',').next()).unwrap_or_default();
                Ok(format!("socket,id={id},path={}", self.socket(id).display()))
            }
            "-netdev" => Ok(netdev(value, self.listen.address())),
            "-kernel" | "-initrd" => {
                let descriptor = value.strip_prefix("/dev/fd/").unwrap_or_default();
                Ok(self.file(process, descriptor)?.display().to_string())
            }
            _ => {
                let mut block: Value = serde_json::from_str(value)?;
                let name = block.get("node-name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let set = block.get("filename").and_then(Value::as_str).unwrap_or_default();
                let set = set.strip_prefix("/dev/fdset/").map(str::to_owned);
                let Some(set) = set else { return Ok(value.to_owned()) };
                let descriptor = sets.iter().find(|(name, _)| *name == set).map(|(_, descriptor)| descriptor);
                let descriptor = descriptor.with_context(|| format!("no descriptor of set {set}"))?;
                let is_written = block.get("read-only") == Some(&json!(false));
                let path = match name.strip_suffix("-file") {
                    Some("disk0") => self.overlay.clone(),
                    Some(node) if is_written => self.volume(process, node, descriptor)?,
                    _ => self.file(process, descriptor)?,
                };
                if name == "disk0-base-file" {
                    self.base.clone_from(&path);
                }
                if let Some(block) = block.as_object_mut() {
                    block.insert("filename".into(), json!(path));
                }
                Ok(block.to_string())
            }
        }
    }

    /// A file that the process has open: itself if it has a name and is never written, otherwise a copy.
    fn file(&self, process: u32, descriptor: &str) -> anyhow::Result<PathBuf> {
        let link = PathBuf::from(format!("/proc/{process}/fd/{descriptor}"));
        let path = std::fs::read_link(&link).with_context(|| format!("{}", link.display()))?;
        if path.is_file() && path.metadata()?.len() > SHARED {
            return Ok(path);
        }
        let copy = self.directory.join(format!("file-{descriptor}"));
        std::fs::copy(&link, &copy)?;
        Ok(copy)
    }

    /// A file of the same size for a disk that the process writes.
    fn volume(&mut self, process: u32, node: &str, descriptor: &str) -> anyhow::Result<PathBuf> {
        let empty = self.directory.join(node);
        let length = std::fs::metadata(format!("/proc/{process}/fd/{descriptor}"))?.len();
        std::fs::File::create(&empty)?.set_len(length)?;
        self.volumes.push((node.to_owned(), empty.clone()));
        Ok(empty)
    }

    /// Nodes of the disks that are written, the root disk first.
    pub(super) fn written(&self) -> impl Iterator<Item = &str> {
        std::iter::once("disk0").chain(self.volumes.iter().map(|(node, _)| node.as_str()))
    }

    /// Takes the content of the volumes away.
    fn empty_volumes(&self) -> anyhow::Result<()> {
        for (_, path) in &self.volumes {
            let length = path.metadata()?.len();
            std::fs::File::create(path)?.set_len(length)?;
        }
        Ok(())
    }

    fn socket(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.sock"))
    }

    /// A new overlay, sockets to connect to, and the command.
    fn prepare(&self) -> anyhow::Result<(Command, Vec<UnixListener>)> {
        let _ = std::fs::remove_file(&self.overlay);
        let mut image = Command::new("qemu-img");
        image.args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"]).arg(&self.base).arg(&self.overlay);
        run(&mut image)?;
        let mut listeners = Vec::new();
        for name in SOCKETS {
            let path = self.socket(name);
            let _ = std::fs::remove_file(&path);
            listeners.push(UnixListener::bind(path)?);
        }
        let log = std::fs::File::create(self.directory.join("qemu.log"))?;
        let mut command = Command::new("qemu-system-x86_64");
        command.args(self.arguments.iter().map(OsString::from));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok((command, listeners))
    }

    /// Starts it over a new overlay and new file systems, and waits until the guest is up; if `held`, the virtual CPUs share a quota of one.
    pub(super) async fn start(&self, held: bool) -> anyhow::Result<(Bare, Times)> {
        self.empty_volumes()?;
        for (_, volume) in &self.volumes {
            // As the hypervisor makes it.
            let mut make = Command::new("mkfs.ext4");
            run(make.args(["-q", "-F", "-L", DISK, "-E", "nodiscard,lazy_itable_init=1"]).arg(volume))?;
        }
        let (mut command, listeners) = self.prepare()?;
        if held {
            command.arg("-S");
        }
        let begun = Instant::now();
        let child = Killed(Some(command.spawn()?));
        let up = self.up(child, listeners, held, begun);
        let waited = tokio::time::timeout(LIMIT, up).await.context("the bare guest is not up in time");
        waited?.with_context(|| std::fs::read_to_string(self.directory.join("qemu.log")).unwrap_or_default())
    }

    /// Starts it without a guest, over a new overlay and empty volumes: one is to come from another QEMU.
    pub(super) async fn start_for_a_move(&self) -> anyhow::Result<Bare> {
        self.empty_volumes()?;
        let (mut command, listeners) = self.prepare()?;
        let child = Killed(Some(command.args(["-incoming", "defer"]).spawn()?));
        let up = async {
            let (mut monitor, mut report, mut drains) = accept(&listeners).await?;
            // Read and thrown away, or a guest that reports would wait.
            drains.spawn(async move { drop(tokio::io::copy(&mut report, &mut tokio::io::sink()).await) });
            monitor.greet().await?;
            let child = child.keep().context("no process")?;
            anyhow::Ok(Bare { child, monitor, address: self.listen.address(), quota: None, _drains: drains })
        };
        tokio::time::timeout(LIMIT, up).await.context("QEMU does not start in time")?
    }

    async fn up(
        &self,
        child: Killed,
        listeners: Vec<UnixListener>,
        held: bool,
        begun: Instant,
    ) -> anyhow::Result<(Bare, Times)> {
        let (mut monitor, report, mut drains) = accept(&listeners).await?;
        let mut quota = None;
        if held {
            monitor.greet().await?;
            quota = Some(monitor.hold().await?);
            monitor.ask("cont", json!({})).await?;
        }
        let mut times = Times::default();
        let mut lines = BufReader::new(report).lines();
        while times.ready == 0.0 || times.workload == 0.0 {
            let line = lines.next_line().await?.context("the report port ended")?;
            let now = super::milliseconds(begun.elapsed());
            match serde_json::from_str::<Value>(&line)?.get("event").and_then(Value::as_str) {
                Some("booted") => times.booted = now,
                Some("ready") => times.ready = now,
                Some("workloadStarted") => times.workload = now,
                _ => {}
            }
        }
        first_answer(self.listen.address()).await?;
        times.answered = super::milliseconds(begun.elapsed());
        drains.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        if !held {
            monitor.greet().await?;
        }
        let child = child.keep().context("no process")?;
        Ok((Bare { child, monitor, address: self.listen.address(), quota, _drains: drains }, times))
    }
}

/// QEMU's own network, with the addresses that the guest was given beforehand: those of the link to its pod, unless it had QEMU's own
/// network there, too.
fn netdev(original: &str, listen: SocketAddr) -> String {
    match original.starts_with("user") {
        true => format!("user,id=net0,hostfwd=tcp:{listen}-:25183"),
        false => format!(
            "user,id=net0,net=169.254.254.0/24,host=169.254.254.253,dns=169.254.254.3,dhcpstart=169.254.254.254,\
             hostfwd=tcp:{listen}-169.254.254.254:25183"
        ),
    }
}

/// Monitor and reports; the rest is read and thrown away.
async fn accept(
    listeners: &[UnixListener],
) -> anyhow::Result<(Monitor, UnixStream, tokio::task::JoinSet<()>)> {
    let mut streams = Vec::new();
    for listener in listeners {
        streams.push(listener.accept().await?.0);
    }
    let [monitor, console, log, report]: [UnixStream; 4] =
        streams.try_into().map_err(|_| anyhow::anyhow!("not four sockets"))?;
    let mut drains = tokio::task::JoinSet::new();
    for mut stream in [console, log] {
        drains.spawn(async move {
            let mut buffer = vec![0; 4096];
            while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
        });
    }
    Ok((Monitor::new(monitor), report, drains))
}

/// Set and descriptor of `-add-fd fd=N,set=S`. QEMU duplicates the descriptors in the order of its options to the lowest
/// free numbers and closes those it was given, so these are the first regular files that it has open.
fn descriptor_sets(process: u32, words: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let is_file = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
        files.extend(number.filter(|_| is_file));
    }
    files.sort_unstable();
    let options = words.iter().zip(words.iter().skip(1)).filter(|(option, _)| *option == "-add-fd");
    let sets = options.filter_map(|(_, value)| Some(value.split_once(",set=")?.1.to_owned()));
    Ok(sets.zip(files).map(|(set, file)| (set, file.to_string())).collect())
}

/// Asks every few milliseconds until one question is answered: QEMU's own network loses those that come before the guest has
/// an address, and tries them again after seconds only.
async fn first_answer(address: SocketAddr) -> anyhow::Result<()> {
    let mut asking = tokio::task::JoinSet::new();
    let mut tick = tokio::time::interval(ASK_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                asking.spawn(ask(address, "GET", ""));
            }
            Some(Ok(Ok(_))) = asking.join_next() => return Ok(()),
        }
    }
}

/// A request to the guest's daemon about its CPUs, on a connection of its own.
pub(super) async fn ask(address: SocketAddr, method: &str, body: &str) -> anyhow::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "{method} /cpu HTTP/1.1\r\nHost: guest-vm\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(ANSWER, exchange).await??;
    ensure!(answer.starts_with("HTTP/1.1 2"), "{method} /cpu: {answer:?}");
    Ok(answer)
}

impl Bare {
    /// How long its virtual CPUs were held back.
    pub(super) fn throttled(&self) -> Duration {
        self.quota.as_ref().map_or(Duration::ZERO, Quota::throttled)
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may be gone already; no caller needs the error.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

/// A process that is killed unless it is kept.
struct Killed(Option<Child>);

impl Killed {
    fn keep(mut self) -> Option<Child> {
        self.0.take()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0
            && child.kill().is_ok()
        {
            child.wait().ok();
        }
    }
}
