//! A local cluster of one test, with images to start VMs from. Nothing of it is left when it goes out of scope.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use neonvm_e2e::client::{Error, KubeClient, Resource};
use neonvm_test_support::{Need, eventually_blocking_within, needs};
use serde_json::Value;

use crate::machine::{self, FIXTURE_TOOLS, Machine};

/// Time for anything that is to happen; emulated on a busy host it may be slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Cluster {
    home: Machine,
    arguments: Vec<String>,
    /// Environment of the services.
    variables: Vec<(String, String)>,
}

/// What a cluster with guests needs.
///
/// # Errors
/// If something is missing.
pub(crate) fn possible() -> Need {
    needs::network_namespaces()?;
    needs::qemu()?;
    needs::programs(&["ssh", "mkfs.ext4"])?;
    needs::programs(&FIXTURE_TOOLS)?;
    needs::kernel().map(drop)
}

/// What a VM with the database needs besides, from a client and its benchmark to what its disk is made with.
///
/// # Errors
/// If something is missing.
pub(crate) fn possible_with_database() -> Need {
    possible()?;
    needs::programs(&machine::POSTGRES_TOOLS)?;
    needs::program("pgbench").map(drop)
}

impl Cluster {
    /// One node with emulated VMs.
    pub(crate) fn start() -> Self {
        Self::with(&["--nodes", "1"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::with_variables(&[], arguments)
    }

    /// One whose default kernel is in this directory.
    pub(crate) fn with_kernel(kernel: &Path, arguments: &[&str]) -> Self {
        Self::started(kernel, &[], arguments)
    }

    /// One whose services have these variables in their environment.
    pub(crate) fn with_variables(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::started(&needs::kernel().unwrap(), variables, arguments)
    }

    fn started(kernel: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let home = Machine::new();
        // A directory of kernels of its own: with a default, which is not shared.
        let kernels = home.path(".local/share/neonvm/kernels");
        std::fs::remove_file(&kernels).unwrap();
        std::fs::create_dir(&kernels).unwrap();
        std::os::unix::fs::symlink(kernel, kernels.join("default")).unwrap();
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let cluster = Self { home, arguments, variables };
        cluster.up();
        cluster
    }

    /// Starts it, or starts it again.
    pub(crate) fn up(&self) {
        let mut arguments = vec!["local", "up", "--accel", "tcg", "--timeout", "120s"];
        if !self.arguments.iter().any(|argument| argument == "--cpus") {
            // As many on every computer: pods request what their VM has.
            arguments.extend(["--cpus", "4"]);
        }
        arguments.extend(self.arguments.iter().map(String::as_str));
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        text(self.neonctl(&arguments).envs(variables), &arguments);
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

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    pub(crate) fn neonctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.neonctl(arguments);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// A client of its API.
    pub(crate) fn client(&self) -> KubeClient {
        KubeClient::new(self.kubeconfig())
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

    pub(crate) fn get(&self, resource: Resource, name: &str) -> Value {
        self.client().get(resource, name).unwrap()
    }

    pub(crate) fn list(&self, resource: Resource) -> Vec<Value> {
        self.client().list(resource).unwrap()
    }

    pub(crate) fn vm(&self, name: &str) -> Value {
        self.get(Resource::VM, name)
    }

    /// Pods of a VM.
    pub(crate) fn pods_of(&self, vm: &str) -> Vec<Value> {
        self.client().list_labelled(Resource::POD, &format!("vm.neon.tech/name={vm}")).unwrap()
    }

    /// Applies documents, YAML or JSON.
    pub(crate) fn apply(&self, text: impl AsRef<str>) {
        self.client().apply(text.as_ref()).unwrap();
    }

    /// Deletes an object, and waits until it is gone.
    pub(crate) fn delete(&self, resource: Resource, name: &str) {
        self.client().delete(resource, name, None).unwrap();
        self.is_gone(resource, name);
    }

    pub(crate) fn is_gone(&self, resource: Resource, name: &str) {
        let gone = || self.client().get(resource, name).is_err_and(|error| error.is(404));
        until(gone, || format!("{name} is still there\n{}", self.logs()));
    }

    /// Output of a command in the container of a VM's pod, which must succeed.
    pub(crate) fn exec(&self, pod: &str, command: &[&str]) -> String {
        let executed = self.client().exec(pod, command).unwrap();
        assert_eq!(executed.code, Some(0), "{command:?} in {pod}: {executed:?}");
        executed.stdout
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

    /// A VM of `idle:1` with one CPU, running, which keeps its size.
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
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{command} in {name}: {}: {error}\n{}",
            output.status,
            self.lines(name)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn inside_output(&self, name: &str, command: &str) -> Output {
        self.neonctl(&["vm", "ssh", name, "--", command]).output().unwrap()
    }

    /// The last lines of a VM's log, of all sources.
    fn lines(&self, name: &str) -> String {
        let output = self.neonctl(&["vm", "logs", name, "--tail", "40", "--timestamps"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Closes a node to new pods, and waits until the scheduler has observed it: the next pod may be there sooner.
    pub(crate) fn cordon(&self, node: &str) {
        self.client().cordon(node).unwrap();
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

    /// Opens a node again.
    pub(crate) fn uncordon(&self, node: &str) {
        self.client().uncordon(node).unwrap();
    }

    /// Name of the VM's pod.
    pub(crate) fn pod(&self, name: &str) -> String {
        self.vm(name).pointer("/status/podName").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Waits until it is true of a VM.
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
                let Ok(vm) = self.client().get(Resource::VM, name) else { return false };
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

    /// Waits until nothing is left of VMs that were deleted.
    pub(crate) fn is_emptied(&self) {
        let names = |resource| -> Result<Vec<String>, Error> {
            let name = |object: &Value| object["metadata"]["name"].to_string();
            Ok(self.client().list(resource)?.iter().map(name).collect())
        };
        let left = || match (names(Resource::POD), names(Resource::SECRET)) {
            (Ok(pods), Ok(secrets)) => [pods, secrets].concat(),
            (pods, secrets) => vec![format!("{pods:?} {secrets:?}")],
        };
        until(|| left().is_empty(), || format!("left: {:?}\n{}", left(), self.logs()));
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
        processes_with(word, &self.directory().display().to_string())
    }

    /// QEMU processes of a VM, by its UID.
    pub(crate) fn qemus(uid: &str) -> Vec<i32> {
        let is_it = |directory: &Path| {
            let line = read(directory, "cmdline");
            line.contains("qemu-system") && line.contains(uid) && !is_killed(directory)
        };
        processes_that(is_it)
    }

    /// Stops and forgets it; then nothing of it may be left on this host.
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

/// Processes, by their directories in `/proc`.
pub(crate) fn processes_that(is_it: impl Fn(&Path) -> bool) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pid = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse::<i32>().ok());
    all.filter_map(|entry| pid(entry.file_name()).filter(|_| is_it(&entry.path()))).collect()
}

/// Processes with a word in their command line whose command line, environment or mounts name a place.
pub(crate) fn processes_with(word: &str, place: &str) -> Vec<i32> {
    processes_that(|directory| {
        let line = read(directory, "cmdline");
        // A runner in a root of its own has no path of the node but for where its mounts come from.
        let names = |file: &str| read(directory, file).contains(place);
        line.contains(word) && (line.contains(place) || names("environ") || names("mountinfo"))
    })
}

/// A file of a process, with spaces between its words; empty if the process is gone.
pub(crate) fn read(process: &Path, file: &str) -> String {
    let bytes = std::fs::read(process.join(file)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn text(command: &mut Command, arguments: &[&str]) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until it is so.
pub(crate) fn until(check: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    until_within(LIMIT, check, otherwise);
}

/// [`until`] with a limit of its own.
pub(crate) fn until_within(limit: Duration, mut check: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    eventually_blocking_within(limit, otherwise, || check().then_some(()));
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
