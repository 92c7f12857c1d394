//! The rights of a runner and its QEMU while a guest runs, as the kernel reports them, compared with SECURITY.md.

use std::os::unix::process::CommandExt as _;

use neonvm_test_support::{Missing, need, needs};
use rustix::thread::CapabilitySet;

use crate::runner::Runner;
use crate::world::World;

const DOCUMENT: &str = include_str!("../../../../SECURITY.md");

/// Names in the second column of a row of the table.
fn documented(process: &str) -> CapabilitySet {
    let head = format!("| {process} |");
    let row = DOCUMENT.lines().find_map(|line| line.strip_prefix(&head)).expect("a row");
    let names = row.split('|').next().unwrap().split('`').skip(1).step_by(2);
    names.map(|name| CapabilitySet::from_name(name).expect("a capability")).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}

fn set(status: &str, name: &str) -> CapabilitySet {
    CapabilitySet::from_bits_retain(u64::from_str_radix(field(status, name), 16).unwrap())
}

/// The runner has no right, and it is the user of its QEMU.
#[tokio::test]
async fn no_thread_of_a_runner_has_any_right() {
    need!(needs::root());
    need!(needs::program("python3").map(drop));
    let world = need!(World::new());
    let missing = || Missing::unavailable("other users cannot execute the tests' program");
    need!(world.pod.user.map(drop).ok_or_else(missing));
    let runner = world.source().await;
    assert!(documented("runner").is_empty() && documented("QEMU").is_empty());
    let all = [runner.process(), runner.qemu()].into_iter().flat_map(|process| process.threads());
    for (_, status) in all {
        for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert!(set(&status, name).is_empty(), "{name} of {status}");
        }
        assert_eq!((field(&status, "Uid"), field(&status, "Groups")), ("64055\t64055\t64055\t64055", ""));
    }
    for (_, status) in runner.qemu().threads() {
        assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("1", "2"), "{status}");
    }
    separated(&runner);
    // The socket of the runner is for commands in its container.
    assert_eq!(runner.call("GET", "/v1/status", &serde_json::Value::Null).await.unwrap().0, 200);
}

/// What another process of the runner's user, a command in its container, reaches of it. QEMU is in a domain besides; what that
/// keeps away is tested in the hypervisor's crate.
fn separated(runner: &Runner) {
    let trace = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) != 0)";
    let by_shell = |script: String| {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", &format!("{{ {script}; }} >/dev/null 2>&1")]).uid(64055).gid(64055);
        command
    };
    let read = |file: &str, pid: u32| format!("head -c 1 /proc/{pid}/{file}");
    let pid = runner.process().0;
    let files = ["environ", "maps", "mem", "fd/0", "exe"].map(|file| read(file, pid));
    let directories = ["cwd/.", "root/."].map(|directory| format!("ls /proc/{pid}/{directory}"));
    for attempt in files.into_iter().chain(directories).chain([format!("python3 -c '{trace}' {pid}")]) {
        assert!(!by_shell(attempt.clone()).status().unwrap().success(), "{attempt}");
    }
    // What every process shows, and what one shows that does not keep its user out.
    assert!(by_shell(format!("cat /proc/{pid}/status")).status().unwrap().success());
    let mut other = by_shell("exec sleep 1000".into()).spawn().unwrap();
    let shown = by_shell(read("maps", other.id())).status().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(shown.success(), "the attempts find nothing of any process");
}
