//! A local cluster of one test, with images to start machines from. Nothing of it is left when it goes out of scope.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::machine::{self, Machine};

/// Time for anything that is to happen; emulated on a busy machine it may be slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Cluster {
    home: Machine,
    arguments: Vec<String>,
}

/// Why the lane cannot run here, if it cannot.
pub(crate) fn possible(what: &str) -> bool {
    machine::is_root(what)
        && machine::has(&["qemu-system-x86_64", "kubectl", "ssh", "nft", "ip", "mkfs.ext4"], what)
}

impl Cluster {
    /// One node with emulated machines.
    pub(crate) fn start() -> Self {
        Self::with(&["--nodes", "1"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let home = Machine::new();
        // A directory of kernels of its own: with a default, which is not shared.
        let kernels = home.path(".local/share/neonvm/kernels");
        std::fs::remove_file(&kernels).unwrap();
        std::fs::create_dir(&kernels).unwrap();
        let kernel = machine::built_kernel().unwrap_or_else(machine::fetched_kernel);
        let place = machine::repository().join("target/kernels").join(kernel);
        std::os::unix::fs::symlink(place, kernels.join("default")).unwrap();
        let cluster = Self { home, arguments: arguments.iter().map(|&a| a.to_owned()).collect() };
        cluster.up();
        cluster
    }

    /// Starts it, or starts it again.
    pub(crate) fn up(&self) {
        let mut arguments = vec!["local", "up", "--accel", "tcg", "--timeout", "120s"];
        arguments.extend(self.arguments.iter().map(String::as_str));
        self.good(&arguments);
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.home.path(".local/state/neonctl/local/local")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        self.home.write(name, text).display().to_string()
    }

    fn in_it(&self, mut command: Command) -> Command {
        command.env("KUBECONFIG", self.directory().join("kubeconfig")).stdin(Stdio::null());
        command
    }

    pub(crate) fn neonctl(&self, arguments: &[&str]) -> Command {
        self.in_it(self.home.neonctl(arguments))
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(arguments).env("HOME", self.home.path(""));
        self.in_it(command)
    }

    /// Standard output of `neonctl` with these arguments, which must succeed.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        text(&mut self.neonctl(arguments), arguments)
    }

    /// Exit code and standard error of one that must fail.
    pub(crate) fn bad(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.neonctl(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeded");
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Standard output of `kubectl`, which must succeed.
    pub(crate) fn kube(&self, arguments: &[&str]) -> String {
        text(&mut self.kubectl(arguments), arguments)
    }

    /// Objects as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let all: Vec<&str> = ["get", "-o", "json"].into_iter().chain(arguments.iter().copied()).collect();
        serde_json::from_str(&self.kube(&all)).unwrap()
    }

    pub(crate) fn vm(&self, name: &str) -> Value {
        self.json(&["neonvm", name])
    }

    /// Builds the small image with a command, once for each name.
    pub(crate) fn image(&self, name: &str, command: &[&str]) {
        let root = machine::busybox().display().to_string();
        let mut arguments = vec!["vm", "build", "--from", &root, "--owner", "root", "-t", name, "--"];
        arguments.extend(command);
        self.good(&arguments);
    }

    /// The image `idle:1`, whose workload only waits.
    pub(crate) fn idle(&self) {
        self.image("idle:1", &["/bin/sh", "-c", "echo up; exec sleep 1000000"]);
    }

    /// A machine of `idle:1` with one CPU, running, which keeps its size.
    pub(crate) fn run(&self, name: &str, more: &[&str]) {
        let mut arguments = vec!["vm", "create", name, "--image", "idle:1", "--no-autoscale"];
        arguments.extend(["--wait", "--timeout", "170s"]);
        if !more.contains(&"--cpu") {
            arguments.extend(["--cpu", "1..2"]);
        }
        if !more.contains(&"--memory") {
            arguments.extend(["--memory", "256Mi..1Gi"]);
        }
        arguments.extend(more);
        self.good(&arguments);
    }

    /// Output of a command in the guest.
    pub(crate) fn inside(&self, name: &str, command: &str) -> String {
        let output = self.inside_output(name, command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{command} in {name}: {}: {said}\n{}",
            output.status,
            self.lines(name)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn inside_output(&self, name: &str, command: &str) -> Output {
        self.neonctl(&["vm", "ssh", name, "--", command]).output().unwrap()
    }

    /// The last lines of a machine, of all that speak for it.
    fn lines(&self, name: &str) -> String {
        let output = self.neonctl(&["vm", "logs", name, "--tail", "40", "--timestamps"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Closes a node to new pods. The scheduler hears of it in its own time, and of a pod that is made next perhaps sooner.
    pub(crate) fn cordon(&self, node: &str) {
        self.kube(&["cordon", node]);
        let last = std::cell::RefCell::new(String::new());
        let knows = || {
            let asked = ["scheduler", "inspect", "--node", node, "-o", "json"];
            let output = self.neonctl(&asked).output().unwrap();
            *last.borrow_mut() =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            output.status.success() && last.borrow().contains("is cordoned")
        };
        until(knows, || format!("{}\n{}", last.borrow(), self.logs()));
    }

    /// Name of the machine's pod.
    pub(crate) fn pod(&self, name: &str) -> String {
        self.vm(name).pointer("/status/podName").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Waits until it is true of a machine.
    pub(crate) fn becomes(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.becomes_within(name, LIMIT.as_secs(), what, check)
    }

    /// The same with a time of its own, in seconds.
    pub(crate) fn becomes_within(
        &self,
        name: &str,
        seconds: u64,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        let last = std::cell::RefCell::new(Value::Null);
        until_within(
            Duration::from_secs(seconds),
            || {
                let output = self.kubectl(&["get", "neonvm", name, "-o", "json"]).output().unwrap();
                let Ok(vm) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
                let good = check(&vm);
                *last.borrow_mut() = vm;
                good
            },
            || format!("{name}: {what}: {}\n{}", last.borrow()["status"], self.logs()),
        );
        last.into_inner()
    }

    /// Waits until a command succeeds.
    pub(crate) fn succeeds(&self, mut command: impl FnMut() -> Command) -> String {
        let last = std::cell::RefCell::new(String::new());
        until(
            || {
                let output = command().output().unwrap();
                *last.borrow_mut() = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                output.status.success()
            },
            || last.borrow().clone(),
        );
        last.into_inner()
    }

    /// Waits until nothing is left of machines that were deleted.
    pub(crate) fn is_emptied(&self) {
        let left = || self.kube(&["get", "pods,secrets", "-o", "name"]);
        until(|| left().trim().is_empty(), || format!("left: {}\n{}", left(), self.logs()));
    }

    /// The last lines of every service.
    pub(crate) fn logs(&self) -> String {
        let output = self.neonctl(&["local", "logs", "--tail", "40"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Process of a service, if it runs now.
    pub(crate) fn service(&self, name: &str) -> Option<i32> {
        let text = std::fs::read_to_string(self.directory().join("services.json")).ok()?;
        let services: Value = serde_json::from_str(&text).ok()?;
        let service = services.as_array()?.iter().find(|service| service["name"] == name)?.clone();
        i32::try_from(service["pid"].as_i64()?).ok()
    }

    /// Processes whose command line or environment names this cluster's directory, by a word of their command line.
    pub(crate) fn processes(&self, word: &str) -> Vec<i32> {
        let directory = self.directory().display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let read = |name: &str| {
                let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let line = read("cmdline");
            if line.contains(word) && (line.contains(&directory) || read("environ").contains(&directory)) {
                found.push(pid);
            }
        }
        found
    }

    /// QEMU processes of a machine of this cluster, by its UID.
    pub(crate) fn qemus(uid: &str) -> Vec<i32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains("qemu-system") && line.contains(uid) && !is_killed(&entry.path()) {
                found.push(pid);
            }
        }
        found
    }

    /// Stops and forgets it; then nothing of it may be left on this machine.
    pub(crate) fn down(self) {
        self.good(&["local", "down", "--delete"]);
        // One that was killed is gone when it has had the processor once more.
        let left = || [self.processes("neond"), self.processes(" runner")].concat();
        until(|| left().is_empty(), || format!("processes left: {:?}", left()));
        let directory = self.directory().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&directory), "mounts left: {mounts}");
        let claims = std::fs::read_dir("/run/neonvm/networks").into_iter().flatten().flatten();
        let claimed = claims.filter_map(|claim| std::fs::read_to_string(claim.path()).ok());
        assert!(!claimed.into_iter().any(|owner| owner == directory), "its network number is still taken");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.neonctl(&["local", "down", "--delete"]).output();
    }
}

fn text(command: &mut Command, arguments: &[&str]) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Looks again and again until it is so, or the time is up.
pub(crate) fn until(check: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    until_within(LIMIT, check, otherwise);
}

/// The same with a time of its own.
pub(crate) fn until_within(limit: Duration, mut check: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < limit, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether a process, by its directory in `/proc`, was killed and only waits for the processor to end: none of its own code runs
/// any more.
pub(crate) fn is_killed(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let masks =
        status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let bit = 1 << (rustix::process::Signal::KILL.as_raw() - 1);
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & bit != 0)
}

pub(crate) fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
