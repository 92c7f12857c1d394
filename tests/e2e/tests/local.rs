//! `neonctl local`, with the real `neond`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use neonvm_e2e::client::{KubeClient, Resource};
use neonvm_e2e::is_alive;
use neonvm_test_support::{eventually_blocking, need, needs};
use serde_json::Value;
use tempfile::TempDir;

/// The directory of the programs, built if they are not.
fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| neonvm_e2e::programs().unwrap())
}

/// A VM with nothing on it; clusters that a failed test leaves are stopped.
struct Machine {
    home: TempDir,
}

impl Machine {
    fn new() -> Self {
        // Where a run that is broken off is cleaned up.
        let home = tempfile::Builder::new().prefix("home-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { home }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(programs().join("neonctl"));
        command.args(arguments.split_whitespace()).env_clear().env("HOME", self.home.path());
        command.current_dir(self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdin(Stdio::null());
        // Clusters of several tests start at once, on a slow machine too.
        command.env("NEONCTL_TIMEOUT", "120s").env("NEONCTL_REQUEST_TIMEOUT", "60s");
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that must succeed.
    fn good(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "neonctl {arguments}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{arguments} -o json"))).unwrap()
    }

    /// Standard error of a command that must end with this code.
    fn bad(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "neonctl {arguments}\n{stderr}");
        stderr
    }

    /// What there is of clusters, by name.
    fn directories(&self) -> Vec<std::ffi::OsString> {
        let all = std::fs::read_dir(self.home.path().join(".local/state/neonctl/local")).unwrap();
        let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    fn files(&self) -> Vec<PathBuf> {
        fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(self.home.path(), &mut found);
        found
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.run("local down --all --delete --timeout 5s");
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    eventually_blocking(|| what.to_owned(), || done().then_some(()));
}

/// The services of a cluster: name and process of each.
fn services(machine: &Machine, name: &str) -> Vec<(String, Value)> {
    let path = machine.home.path().join(".local/state/neonctl/local").join(name).join("services.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let word = |service: &Value| service["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(|service| (word(service), service["pid"].clone())).collect()
}

fn kill(pid: &Value, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().unwrap()
}

#[test]
fn two_clusters_side_by_side_and_nothing_stays() {
    let machine = Machine::new();
    let first = machine.json("local up --name one");
    let second = machine.json("local up --name two");
    assert_ne!(first["server"], second["server"]);
    assert_eq!(first["name"], "one");
    for cluster in [&first, &second] {
        let kubeconfig = cluster["kubeconfig"].as_str().unwrap();
        let status = machine.json(&format!("status --kubeconfig {kubeconfig}"));
        assert_eq!(status["healthy"], true);
        assert_eq!(status["apiServer"]["server"], cluster["server"]);
        assert_eq!(status["definitions"]["installed"].as_array().unwrap().len(), 5);
    }
    let list = machine.json("local list --sort-by name");
    let pids: Vec<Value> = items(&list).iter().map(|item| item["pid"].clone()).collect();
    assert_eq!(items(&list).len(), 2);
    machine.good("local down --all --delete");
    assert!(pids.iter().all(|pid| !is_alive(pid)));
    assert_eq!(machine.files(), Vec::<PathBuf>::new());
    machine.bad("local down --name one", 3);
}

#[test]
fn up_twice_is_harmless_and_the_own_context_is_untouched() {
    let machine = Machine::new();
    std::fs::create_dir_all(machine.home.path().join(".kube")).unwrap();
    let own = machine.home.path().join(".kube/config");
    std::fs::write(&own, "untouched").unwrap();
    // No other process gets its port while it is stopped.
    let kept = neonvm_kit::port::Reserved::loopback().unwrap();
    let first = machine.json(&format!("local up --port {}", kept.address().port()));
    let before = machine.json("local list");
    let again = machine.json("local up");
    assert_eq!(first, again);
    assert_eq!(before, machine.json("local list"));
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "untouched");
    let export = machine.good("local up -q");
    assert_eq!(export.trim(), format!("export KUBECONFIG={}", first["kubeconfig"].as_str().unwrap()));
    machine.bad("local up --port 1", 5);
    let stopped = machine.good("local down -o jsonpath={.items[0].status}");
    assert_eq!(stopped, "stopped");
    assert!(machine.bad("local status", 7).contains("is stopped"));
    // The address stays, so that a kubeconfig that a user copied stays valid.
    assert_eq!(machine.json("local up")["server"], first["server"]);
}

#[test]
fn the_agents_take_their_configuration_from_a_file() {
    let machine = Machine::new();
    let missing = machine.bad("local up --agent-config nowhere.json", 3);
    assert!(missing.contains("--agent-config: file nowhere.json does not exist"), "{missing}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agent/config.json");
    let cluster = machine.json(&format!("local up --agent-config {}", file.display()));
    let kubeconfig = cluster["kubeconfig"].as_str().unwrap();
    // Only an agent that read its file takes its lease, which is how it is found.
    until("the agent answers", || {
        machine.run(&format!("agent inspect --kubeconfig {kubeconfig}")).status.success()
    });
    machine.good("local down --delete");
}

#[test]
fn a_killed_cluster_comes_back_with_its_state() {
    let machine = Machine::new();
    // No other process gets its port while it is down.
    let kept = neonvm_kit::port::Reserved::loopback().unwrap();
    let up = machine.json(&format!("local up --port {}", kept.address().port()));
    let pid = items(&machine.json("local list"))[0]["pid"].clone();
    kill(&pid, rustix::process::Signal::KILL);
    until("the end of the process", || !is_alive(&pid));
    // Its services end with it, each in its own time: who starts it again waits for them.
    assert_eq!(items(&machine.json("local list"))[0]["status"], "ended");
    assert!(machine.bad("local status", 7).contains("ended without being stopped"));
    let output = machine.run("local up --no-install -o json");
    assert!(output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("ended without being stopped; starting it again")
    );
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(up["server"], again["server"]);
    // Installed before the kill, and not by this start.
    let status = machine.json("local status");
    assert_eq!(status["definitions"]["missing"], serde_json::json!([]));
}

/// A start that was interrupted is finished by the next one, which reports that the cluster runs only when it is healthy.
#[test]
fn an_interrupted_start_is_finished_by_the_next() {
    let machine = Machine::new();
    let mut first =
        machine.command("local up --nodes 1").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let directory = machine.home.path().join(".local/state/neonctl/local/local");
    // The server runs, and nothing that follows is done.
    until("the record of the process", || directory.join("process.json").exists());
    first.kill().unwrap();
    first.wait().unwrap();
    let output = machine.run("local up --nodes 1");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains("is already running, as process"), "{text}");
    let status = machine.json("local status");
    assert_eq!(
        (&status["healthy"], &status["definitions"]["missing"]),
        (&true.into(), &serde_json::json!([]))
    );
}

/// Root of a container with the capabilities that an engine gives by default: one node, stated with the reason.
#[test]
fn root_without_privileges_gets_a_node_without_namespaces() {
    need!(needs::root());
    need!(needs::program("setpriv").map(drop));
    let machine = Machine::new();
    let without = |capability: &str, arguments: &str| {
        let inner = machine.command(arguments);
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set=-{capability}")).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).output().unwrap()
    };
    for capability in ["net_admin", "sys_admin"] {
        let name = capability.replace('_', "-");
        let output = without(capability, &format!("local up --name {name}"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{capability}: {text}");
        let lacks =
            format!("user-mode networking, because this root lacks CAP_{}", capability.to_uppercase());
        assert!(text.contains(&lacks), "{text}");
        assert_eq!(machine.json(&format!("local status --name {name}"))["healthy"], true);
        machine.good(&format!("local down --name {name}"));
    }
    let output = without("net_admin", "local up --name many --nodes 2");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(5) && text.contains("--nodes 2: more than one node requires"),
        "{text}"
    );
}

#[test]
fn a_port_in_use_is_reported_clearly() {
    let machine = Machine::new();
    // A process of its own listens: of ours each program that we are just starting has the same sockets for a moment.
    let first = machine.json("local up --name first --nodes 0");
    let port = first["server"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let (_, pid) =
        services(&machine, "first").into_iter().find(|(service, _)| service == "apiserver").unwrap();
    let before = machine.directories();
    let error = machine.bad(&format!("local up --port {port}"), 5);
    assert!(error.contains(&format!("port {port} is in use by ")) && error.contains("hint:"), "{error}");
    assert!(error.contains(&format!("(pid {pid})")), "{error}");
    assert_eq!(machine.directories(), before, "nothing was started, so nothing stays behind");
}

/// `local up` in the foreground, and its output.
fn foreground(machine: &Machine, name: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = machine.command(&format!("local up --foreground --name {name}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

#[test]
fn a_cluster_in_the_foreground_ends_when_it_is_asked_to() {
    let machine = Machine::new();
    let (mut child, mut stdout) = foreground(&machine, "front");
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("export KUBECONFIG="), "{line:?}");
    machine.good("local status --name front");
    let pid = items(&machine.json("local list"))[0]["pid"].clone();
    machine.bad("local up --foreground --name front", 5);
    kill(&serde_json::json!(child.id()), rustix::process::Signal::TERM);
    assert!(child.wait().unwrap().success());
    assert!(!is_alive(&pid));
    assert_eq!(items(&machine.json("local list"))[0]["status"], "stopped");
}

#[test]
fn a_cluster_in_the_foreground_can_be_asked_before_it_is_ready() {
    let machine = Machine::new();
    let (mut child, _stdout) = foreground(&machine, "early");
    let pid = || items(&machine.json("local list")).first().map(|cluster| cluster["pid"].clone());
    until("a process", || pid().is_some_and(|pid| !pid.is_null()));
    let pid = pid().unwrap();
    kill(&serde_json::json!(child.id()), rustix::process::Signal::TERM);
    let code = child.wait().unwrap().code();
    // Or it has become ready in that moment.
    assert!(code == Some(130) || code == Some(0), "{code:?}");
    // The kernel takes a moment to end it.
    until("the end of what it started", || !is_alive(&pid));
    let list = machine.json("local list");
    assert!(items(&list).iter().all(|cluster| cluster["status"] == "stopped"), "{list}");
}

#[test]
fn logs_are_kept_and_cut() {
    let machine = Machine::new();
    machine.good("local up");
    // The output of a service comes by way of the supervisor.
    until("a line about readiness", || machine.good("local logs").contains("ready"));
    // What runs goes on writing: only then are two answers the same.
    machine.good("local down");
    let all = machine.good("local logs");
    assert!(all.contains("ready"), "{all}");
    let last = machine.good("local logs --tail 1");
    assert_eq!(last.lines().count(), 1);
    assert_eq!(Some(last.trim_end()), all.lines().last());
    assert_eq!(machine.good("local logs --since 1h"), all);
    assert_eq!(machine.bad("local logs --since soon", 2), "error: \"soon\" is not a duration for --since\n");
}

#[test]
fn names_of_clusters_are_completed() {
    let machine = Machine::new();
    machine.good("local up --name dev");
    let output = machine.command("-- neonctl local down --name d").env("COMPLETE", "fish").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "dev");
}

/// A restored cluster is its source only in the source's own place; anywhere else it is another one with new keys.
#[test]
fn a_cluster_restored_in_another_place_has_its_own_keys() {
    let machine = Machine::new();
    let place = |name: &str| machine.home.path().join(".local/state/neonctl/local").join(name);
    let keys = |name: &str| {
        ["ca.crt", "ca.key", "sa.key"].map(|file| std::fs::read_to_string(place(name).join(file)).unwrap())
    };
    machine.good("local up --name a --nodes 0");
    machine.good("local backup --name a -O new.backup");
    let source = keys("a");
    // As versions wrote it that did not know where the source was.
    let text = std::fs::read(machine.home.path().join("new.backup")).unwrap();
    let end = text.iter().position(|byte| *byte == b'\n').unwrap();
    let mut header: Value = serde_json::from_slice(&text[..end]).unwrap();
    assert!(header.as_object_mut().unwrap().remove("place").is_some());
    let old = [header.to_string().as_bytes(), &text[end..]].concat();
    std::fs::write(machine.home.path().join("old.backup"), old).unwrap();
    for (backup, copy) in [("new.backup", "b"), ("old.backup", "c")] {
        let output = machine.run(&format!("local restore --name {copy} {backup}"));
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && notes.contains("is a new cluster"), "{notes}");
        let own = keys(copy);
        assert!(own.iter().zip(&source).all(|(own, source)| own != source), "{backup}");
        machine.good(&format!("local check --name {copy}"));
        machine.good(&format!("local up --name {copy} --nodes 0"));
        assert_eq!(keys(copy), own);
    }
    machine.good("local down --name a");
    for backup in ["new.backup", "old.backup"] {
        let output = machine.run(&format!("local restore --name a --force {backup}"));
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !notes.contains("is a new cluster"), "{notes}");
        assert_eq!(keys("a"), source, "{backup}");
    }
    // Its place is known when all else of it is lost.
    machine.good("local down --name a --delete");
    let restored = machine.json("local restore --name a new.backup");
    assert_eq!((&restored["kind"], &restored["isNew"]), (&"LocalRestore".into(), &false.into()));
    assert_eq!(keys("a"), source);
    machine.good("local up --name a --nodes 0");
}

/// As after a start of the host at which another cluster, or a route, has taken the addresses.
#[test]
fn a_cluster_whose_network_is_taken_gets_another() {
    need!(needs::network_namespaces());
    let machine = Machine::new();
    let place = machine.home.path().join(".local/state/neonctl/local/a");
    let claims = Path::new("/run/neonvm/networks");
    let claim = || {
        let own = std::fs::canonicalize(&place).unwrap().display().to_string();
        let all = std::fs::read_dir(claims).unwrap().map(|entry| entry.unwrap().path());
        all.into_iter().find(|path| std::fs::read_to_string(path).unwrap_or_default() == own).unwrap()
    };
    let range = || {
        let node = KubeClient::new(place.join("kubeconfig")).get(Resource::NODE, "n1").unwrap();
        node["spec"]["podCIDR"].as_str().unwrap().to_owned()
    };
    machine.good("local up --name a --nodes 1");
    let (first, before) = (claim(), range());
    // The number outlasts its claim.
    machine.good("local down --name a");
    std::fs::remove_file(&first).unwrap();
    machine.good("local up --name a");
    assert_eq!((claim(), range()), (first.clone(), before.clone()));
    machine.good("local down --name a");
    let taken = format!("{}", machine.home.path().display());
    std::fs::write(&first, taken).unwrap();
    machine.good("local up --name a");
    assert_ne!(claim(), first);
    until("the range of the node", || range() != before);
    machine.good("local check --name a");
    std::fs::remove_file(&first).unwrap();
}
