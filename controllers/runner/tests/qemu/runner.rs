//! A runner as a separate process: this test program, called again.

use neonvm_api::merge_patch::merge;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use neonvm_api::runner_pod::{Receive, RunnerConfig, RunnerSettings, Seal};
use neonvm_api::virtual_machine::CpuScalingMode;
use neonvm_kit::anchors::{fingerprints, sha256};
use neonvm_kit::ca::Identity;
use neonvm_runner::Options;
use neonvm_runner::logs::{self, Format};
use neonvm_runner::options::{Accelerator, NetworkMode};
use neonvm_test_support::eventually_within;
use neonvm_types::runner_protocol::{Exit, MigrationState, RunnerStatus, server_name};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::lab::{Lab, PATIENCE, address};
use crate::network::Network;
use crate::process::Process;

pub(crate) const UID: &str = "5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d";
const SIZE: u64 = 32 << 20;

/// Not a separate test: what [`Runner::start`] starts.
#[test]
#[ignore = "not a test: the process that other tests start"]
fn a_runner_in_a_process_of_its_own() {
    let settings = std::env::var("NEONVM_TEST_RUNNER").unwrap();
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let text = |key: &str| settings[key].as_str().unwrap().to_owned();
    let root = PathBuf::from(text("root"));
    let options = Options {
        kernel: text("kernel").into(),
        initramfs: Some(text("initramfs").into()),
        guest_program: None,
        network: NetworkMode::User,
        node_socket: PathBuf::new(),
        accelerator: Accelerator::Tcg,
        probe: Vec::new(),
        probe_kept: None,
        cgroup: None,
        termination_log: root.join("exit"),
        grace: None,
        addresses: vec![text("address").parse().unwrap()],
        node: None,
        seal: Seal {
            config: text("config"),
            authorities: serde_json::from_value(settings["authorities"].clone()).unwrap(),
        },
        root,
    };
    let log = logs::start(Format::Plain, std::io::stdout()).unwrap();
    let own = log.clone();
    tracing_subscriber::fmt()
        .with_env_filter("info,neonvm_runner=debug,neonvm_hypervisor=debug")
        .with_ansi(false)
        .with_writer(move || own.own())
        .init();
    let runtime = neonvm_runner::runtime().unwrap();
    let exit = runtime.block_on(neonvm_runner::run(&options, &log));
    std::process::exit(i32::from(!exit.is_success()));
}

/// Gives a pod's files to its user.
fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
    if std::fs::symlink_metadata(path).unwrap().is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), user));
    }
}

/// Two pods of one machine share its base, which each user may read.
pub(crate) fn base(directory: &Path) -> PathBuf {
    std::fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = directory.join("base.raw");
    std::fs::write(&path, vec![0x5A; 1 << 20]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(SIZE).unwrap();
    path
}

/// How a runner of the tests is to be.
#[derive(Clone)]
pub(crate) struct Pod<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) base: PathBuf,
    pub(crate) walk: u32,
    /// User of the runner; `None`: that of the tests.
    pub(crate) user: Option<u32>,
    pub(crate) spec: Value,
    pub(crate) identity: Option<Identity>,
    /// Where it is, if not where the test is.
    pub(crate) network: Option<Network>,
}

/// A runner; killed and removed when dropped.
pub(crate) struct Runner {
    directory: tempfile::TempDir,
    pub(crate) address: IpAddr,
    child: Child,
}

impl Drop for Runner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- log of {}\n{}", self.address, self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Runner {
    pub(crate) fn start(pod: &Pod<'_>, receive: Option<Receive>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let config = root.join("vm/config");
        for path in ["vm/config", "vm/rootdisk", "vm/images", "vm/disks/data"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(&pod.base, root.join("vm/rootdisk/disk.qcow2")).unwrap();
        let mut spec = json!({
            "guest": {
                "cpus": { "min": 1, "max": 1, "use": 1 },
                "memorySlotSize": "256Mi",
                "memorySlots": { "min": 1, "max": 2, "use": 1 },
                "rootDisk": { "image": "img:1" },
                "appendKernelCmdline": format!("walk={}", pod.walk),
            },
            "enableSSH": false,
            "enableAcceleration": false,
            "disks": [{ "name": "data", "mountPath": "/data", "emptyDisk": { "size": "32Mi" } }],
        });
        merge(&mut spec, &pod.spec);
        let document = RunnerConfig {
            claims: std::collections::BTreeMap::new(),
            namespace: "default".into(),
            name: "vm".into(),
            uid: UID.into(),
            pod: "vm-abcde".into(),
            spec: serde_json::from_value(spec).unwrap(),
            cpu_scaling_mode: CpuScalingMode::SysfsScaling,
            extra_net: None,
            receive,
            settings: RunnerSettings { cgroup: false, ..RunnerSettings::default() },
        };
        let document = serde_json::to_vec(&document).unwrap();
        std::fs::write(config.join("vm.json"), &document).unwrap();
        let own = || pod.lab.authority.peer_for("neonvm-runner", &[server_name(UID)], 3600).unwrap();
        let identity = pod.identity.clone().unwrap_or_else(own);
        std::fs::write(config.join("tls.crt"), identity.certificate).unwrap();
        std::fs::write(config.join("tls.key"), identity.key).unwrap();
        std::fs::write(config.join("ca.crt"), pod.lab.authority.certificate()).unwrap();
        let address = address();
        let settings = json!({ "root": root, "kernel": pod.lab.guest.kernel, "initramfs": pod.lab.guest.initramfs,
            "address": address, "config": sha256(&document),
            "authorities": fingerprints(pod.lab.authority.certificate()).unwrap() });
        let log = std::fs::File::create(root.join("log")).unwrap();
        let program = std::env::current_exe().unwrap();
        let user = pod.user;
        if let Some(user) = user {
            give(root, user);
        }
        let mut command = match (&pod.network, user) {
            (Some(network), _) => network.command(&program, user),
            (None, Some(user)) => {
                let mut command = Command::new(program);
                command.uid(user).gid(user);
                command
            }
            (None, None) => Command::new(program),
        };
        command.args(["--exact", "runner::a_runner_in_a_process_of_its_own", "--ignored", "--nocapture"]);
        command.env("NEONVM_TEST_RUNNER", settings.to_string());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { address, child: command.spawn().unwrap(), directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    pub(crate) fn qemu(&self) -> Process {
        let own = self.process();
        own.children().into_iter().find(|child| child.name().starts_with("qemu")).expect("its QEMU")
    }

    /// Connections and sockets that it and its QEMU have open, but for those of the guest, which QEMU closes later.
    pub(crate) fn sockets(&self) -> usize {
        Process(self.child.id()).sockets() + self.qemu().unix_sockets()
    }

    /// Waits until it has no more sockets open than these.
    pub(crate) async fn has_closed_all_but(&self, sockets: usize) {
        let what = || format!("{} sockets, not {sockets}:\n{}", self.sockets(), self.describe_sockets());
        eventually_within(PATIENCE, what, async || self.sockets() <= sockets).await;
    }

    pub(crate) fn describe_sockets(&self) -> String {
        let (own, qemu) = (Process(self.child.id()).describe_sockets(), self.qemu().describe_sockets());
        format!("{own}of QEMU:\n{qemu}")
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Why it ended, once it has.
    pub(crate) async fn exit(&mut self) -> Exit {
        until("the end of the runner", async || self.child.try_wait().unwrap()).await;
        let text = std::fs::read_to_string(self.path("exit")).unwrap_or_default();
        Exit::from_message(&text).unwrap_or_else(|| panic!("no reason: {text:?}"))
    }

    /// A request to the runner's own socket. `None`: it does not answer.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
        let answer = async {
            let directory = std::fs::File::open(self.path("vm/run")).ok()?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
            let stream = UnixStream::connect(format!("/proc/self/fd/{number}/runner.sock")).await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection);
            let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
            let request = Request::builder().method(method).uri(path).header("host", "x");
            let answer = sender.send_request(request.body(Full::new(body)).unwrap()).await.ok()?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.ok()?.to_bytes();
            Some((status, String::from_utf8_lossy(&body).into_owned()))
        };
        tokio::time::timeout(PATIENCE, answer).await.ok().flatten()
    }

    pub(crate) async fn status(&self) -> Option<RunnerStatus> {
        let (_, text) = self.call("GET", "/v1/status", &Value::Null).await?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) async fn state(&self) -> Option<MigrationState> {
        self.status().await?.migration.map(|migration| migration.state)
    }

    pub(crate) async fn is(&self, wanted: MigrationState) {
        until(&format!("{wanted:?} at {}", self.address), async || {
            (self.state().await == Some(wanted)).then_some(())
        })
        .await;
    }

    pub(crate) async fn ready(&self) -> RunnerStatus {
        until("a guest that is up", async || self.status().await.filter(|status| status.ready)).await
    }

    /// The guest's report about itself.
    pub(crate) async fn guest(&self) -> Option<Guest> {
        let asked = async {
            let port = "/v1/guest/25183";
            let directory = std::fs::File::open(self.path("vm/run")).ok()?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
            let stream = UnixStream::connect(format!("/proc/self/fd/{number}/runner.sock")).await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(connection.with_upgrades());
            let request = Request::builder().uri(port).header("host", "x").header("connection", "upgrade");
            let request = request.header("upgrade", "neonvm-stream").body(Full::new(Bytes::new())).unwrap();
            let mut answer = sender.send_request(request).await.ok()?;
            let inner = TokioIo::new(hyper::upgrade::on(&mut answer).await.ok()?);
            let (mut sender, connection) = http1::handshake(TokioIo::new(inner)).await.ok()?;
            tokio::spawn(connection);
            let request = Request::builder().uri("/state").header("host", "x");
            let answer = sender.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.ok()?;
            let body = answer.into_body().collect().await.ok()?.to_bytes();
            serde_json::from_slice::<Guest>(&body).ok()
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await.ok().flatten()
    }

    /// The guest lives: it walks and writes, and nothing is wrong.
    pub(crate) async fn lives(&self) {
        let before = until("the guest", async || self.guest().await).await;
        until("a guest that goes on", async || {
            let now = self.guest().await?;
            // Every block that was written before the migration has been read again.
            (now.laps > before.laps + 1 && now.turns > before.turns + 200).then_some(())
        })
        .await;
        let now = until("the guest", async || self.guest().await).await;
        assert_eq!(now.bad, 0, "the guest is damaged at {}:\n{}", self.address, self.log());
    }
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub(crate) struct Guest {
    pub(crate) laps: u64,
    pub(crate) turns: u64,
    pub(crate) bad: u64,
}

/// Waits until there is something.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, || what.to_owned(), look).await
}
