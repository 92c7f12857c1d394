//! A whole cluster of a user who is not root.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use neonvm_test_support::{Running, eventually_blocking, need, needs};
use serde_json::Value;

use crate::cluster::{possible, until};
use crate::machine;

/// The user and group `nobody`: ssh wants one that the VM knows.
const USER: u32 = 65_534;

/// A user who is not root, with a home, and the programs and a kernel in readable files.
struct Person {
    place: tempfile::TempDir,
}

impl Person {
    fn new() -> Self {
        // Below /tmp: the directory of builds may be closed to others.
        let place = tempfile::Builder::new().prefix("rootless-").tempdir_in("/tmp").unwrap();
        let person = Self { place };
        open(person.place.path());
        let programs = person.path("bin");
        std::fs::create_dir(&programs).unwrap();
        for name in ["neonctl", "neond", "neonvm-runner", "vm-builder", "neonvm-guest-amd64"] {
            copy(&machine::programs().join(name), &programs.join(name), 0o755);
        }
        let kernel = needs::kernel().unwrap();
        let default = person.path("home/.local/share/neonvm/kernels/default");
        std::fs::create_dir_all(&default).unwrap();
        for entry in std::fs::read_dir(kernel).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &default.join(entry.file_name()), 0o644);
        }
        own(&person.path("home"));
        let root = machine::busybox();
        let to = person.path("root");
        let copied = Command::new("cp").arg("-a").arg(root).arg(&to).status().unwrap();
        assert!(copied.success());
        own(&to);
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A command of this person.
    fn command(&self, program: &Path) -> Command {
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(program).env_clear();
        command.env("HOME", self.path("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("KUBECONFIG", self.path("home/.local/state/neonctl/local/local/kubeconfig"));
        command.env("NEONCTL_REQUEST_TIMEOUT", "60s").current_dir(self.path("home")).stdin(Stdio::null());
        command
    }

    fn neonctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.path("bin/neonctl"));
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (Output, String) {
        let output = self.neonctl(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, text)
    }

    /// Standard output, standard error of a command that must succeed.
    fn good(&self, arguments: &[&str]) -> (String, String) {
        let (output, errors) = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {errors}\n{}", self.logs());
        (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
    }

    fn logs(&self) -> String {
        let (output, _) = self.run(&["local", "logs", "--tail", "40"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn vm(&self, name: &str) -> Value {
        serde_json::from_str(&self.good(&["vm", "get", name, "-o", "json"]).0).unwrap()
    }

    fn image(&self, name: &str, words: &[&str]) {
        let root = self.path("root").display().to_string();
        let first = ["vm", "build", "--from", &root, "--owner", "root", "-t", name, "--"];
        self.good(&first.iter().chain(words).copied().collect::<Vec<_>>());
    }

    fn create(&self, name: &str, image: &str) {
        let first =
            ["vm", "create", name, "--image", image, "--cpu", "0.5..2", "--start-cpu", "1", "--no-autoscale"];
        let more = ["--memory", "256Mi..1Gi", "--port", "8080", "--wait", "--timeout", "170s"];
        // Time to shut down in order, also for one that is emulated on a busy machine.
        let more = [&more[..], &["--grace", "120s"]].concat();
        self.good(&first.iter().chain(&more).copied().collect::<Vec<_>>());
    }
}

/// The directory of root's clusters.
struct Closed;

impl Closed {
    const PATH: &str = "/run/neonvm";

    fn new() -> Self {
        std::fs::create_dir_all(Self::PATH).unwrap();
        std::fs::set_permissions(Self::PATH, std::fs::Permissions::from_mode(0o700)).unwrap();
        Self
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        // Fails while a cluster of root uses it.
        let _ = std::fs::remove_dir(Self::PATH);
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.neonctl(&["local", "down", "--delete", "--timeout", "5s"]).output();
    }
}

fn open(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// By another program: children of this one would inherit a file that it writes, and the kernel refuses to run an open file.
fn copy(from: &Path, to: &Path, mode: u32) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{}", from.display());
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a directory and what is in it to the person.
fn own(path: &Path) {
    let status = Command::new("chown").args(["-hR", &format!("{USER}:{USER}")]).arg(path).status().unwrap();
    assert!(status.success());
    chown(path, Some(USER), Some(USER)).unwrap();
}

fn condition(vm: &Value, kind: &str) -> (String, String, String) {
    let all = vm.pointer("/status/conditions").and_then(Value::as_array).unwrap();
    let found = all.iter().find(|condition| condition["type"] == kind).unwrap();
    let word = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (word("status"), word("reason"), word("message"))
}

/// What comes back from a port that sends back what it gets.
fn echo(address: &str, text: &str) -> Option<String> {
    let mut stream = TcpStream::connect(format!("{address}:8080")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    writeln!(stream, "{text}").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[test]
fn a_whole_cluster_needs_no_root() {
    need!(possible());
    need!(needs::program("setpriv"));
    let person = Person::new();
    // As a cluster of root on the same host makes it: closed to others.
    let _closed = Closed::new();
    let (output, text) = person.run(&["local", "up", "--accel", "tcg", "--nodes", "2"]);
    assert!(
        output.status.code() == Some(5) && text.contains("more than one node requires network namespaces"),
        "{text}"
    );
    let (_, text) = person.good(&["local", "up", "--accel", "tcg", "--cpus", "8", "--timeout", "120s"]);
    assert!(
        text.contains("one node")
            && text.contains("user-mode networking, because the command does not run as root"),
        "{text}"
    );
    person.image("echo:1", &["/bin/nc", "-ll", "-p", "8080", "-e", "/bin/cat"]);
    person.create("a", "echo:1");
    person.create("b", "echo:1");
    both_are_reached(&person);
    until(|| person.vm("a")["status"]["phase"] == "Running", || person.logs());
    reports_what_cannot_be_limited(&person.vm("a"));
    assert_eq!(person.good(&["vm", "ssh", "a", "--", "nproc"]).0.trim(), "1");
    for (cpu, memory, online) in [("2", "1Gi", "2"), ("0.5", "512Mi", "1"), ("1.5", "256Mi", "2")] {
        person.good(&["vm", "scale", "a", "--cpu", cpu, "--memory", memory, "--wait", "--timeout", "170s"]);
        assert_eq!(person.good(&["vm", "ssh", "a", "--", "nproc"]).0.trim(), online);
        let vm = person.vm("a");
        assert_eq!(condition(&vm, "Scaled").1, "Reached");
        reports_what_cannot_be_limited(&vm);
    }
    let logs = person.good(&["vm", "logs", "a", "--source", "serial"]).0;
    assert!(logs.contains("Linux version"), "{logs}");
    the_console_answers(&person);
    person.good(&["vm", "delete", "a", "--timeout", "170s"]);
    assert_eq!(person.run(&["vm", "get", "a"]).0.status.code(), Some(3));
    let (_, text) = person.good(&["local", "down", "--delete", "--timeout", "150s"]);
    assert!(!text.contains("was killed"), "{text}");
    assert!(!person.path("home/.local/state/neonctl/local/local").exists());
}

/// The same port of two VMs, each at an address of its own.
fn both_are_reached(person: &Person) {
    let addresses = ["a", "b"].map(|name| {
        let vm = person.vm(name);
        assert_eq!(vm.pointer("/status/machine/network").unwrap(), "user");
        vm["status"]["podIP"].as_str().unwrap().to_owned()
    });
    assert!(addresses.iter().all(|address| address.starts_with("127.")), "{addresses:?}");
    assert_ne!(addresses[0], addresses[1]);
    for address in &addresses {
        let otherwise = || format!("an answer at {address}:8080\n{}", person.logs());
        assert_eq!(eventually_blocking(otherwise, || echo(address, address)), *address);
    }
}

fn reports_what_cannot_be_limited(vm: &Value) {
    let (status, reason, message) = condition(vm, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "CpuNotLimited"), "{message}");
    assert!(message.contains("cannot be limited") && message.contains("needs root"), "{message}");
    assert_eq!(vm["status"]["phase"], "Running");
}

/// Types into the console, and leaves it with its escape character.
fn the_console_answers(person: &Person) {
    let mut command = person.neonctl(&["vm", "console", "a"]);
    let mut console =
        Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut typed = console.0.stdin.take().unwrap();
    let seen = BufReader::new(console.0.stdout.take().unwrap());
    // The first line starts the shell. What is typed is shown too; only what is made of it is looked for.
    typed.write_all(b"\n").unwrap();
    let (lines, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in seen.split(b'\n').map_while(Result::ok) {
            let _ = lines.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let mut all = String::new();
    until(
        || {
            typed.write_all(b"echo sum-$((40+2))\n").unwrap();
            while let Ok(line) = received.recv_timeout(Duration::from_millis(500)) {
                all.push_str(&line);
            }
            all.contains("sum-42")
        },
        || "the console does not answer".into(),
    );
    typed.write_all(b"\x1d").unwrap();
    assert!(console.0.wait().unwrap().success());
}
