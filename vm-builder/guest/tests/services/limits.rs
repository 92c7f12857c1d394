//! The control group with limits, as files: what the monitor writes when the VM changes its size and the group is at its limit.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use crate::monitor::{Agent, Guest, Monitor};
use crate::process::wait_until;

const MIB: u64 = 1 << 20;

/// The files of a group that is not the kernel's.
struct Files(PathBuf);

impl Files {
    fn new(root: &Path) -> Self {
        // The group appears whole, as one of the kernel's.
        let files = Self(root.join("sys/fs/cgroup/coming"));
        std::fs::create_dir_all(&files.0).unwrap();
        for (name, text) in [
            ("memory.stat", "inactive_anon 1048576\nactive_anon 0\n"),
            ("memory.current", "104857600\n"),
            ("memory.high", "max\n"),
            ("memory.max", "max\n"),
            ("memory.events", "low 0\nhigh 7\nmax 0\n"),
            ("cgroup.freeze", "1"),
        ] {
            files.write(name, text);
        }
        let group = Self(root.join("sys/fs/cgroup/work"));
        std::fs::rename(&files.0, &group.0).unwrap();
        group
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn limit(&self, name: &str) -> Option<u64> {
        self.read(name).trim().parse().ok()
    }
}

/// Waits until the monitor has looked at the group twice; its answer to a downscale to 1 GiB.
fn has_samples(agent: &mut Agent) -> String {
    let mut verdict = String::new();
    wait_until("two samples", || {
        agent.send(r#"{"content":{"target":{"cpu":2,"mem":1073741824}},"type":"DownscaleRequest","id":2}"#);
        verdict = agent.receive();
        !verdict.contains("too few samples")
    });
    verdict
}

#[test]
fn limits_follow_the_size_and_a_group_at_its_limit_is_frozen_for_a_moment() {
    let guest = Guest::new();
    let files = Files::new(guest.path());
    let (monitor, stdout) =
        Monitor::start_as_child(guest.path(), &["-c", "work", "--limits", "high-and-max"]);
    // 4 GiB less what the system needs; a monitor before this one left the group frozen.
    wait_until("the first limits", || files.limit("memory.high") == Some((4096 - 200) * MIB));
    wait_until("the other one", || files.limit("memory.max") == Some((4096 - 100) * MIB));
    assert_eq!(files.read("cgroup.freeze"), "0");
    let mut agent = Agent::connect(&monitor, 1);
    let verdict = has_samples(&mut agent);
    assert!(verdict.contains(r#""Ok":true"#), "{verdict}");
    assert_eq!(files.limit("memory.high"), Some(824 * MIB));
    files.write("memory.current", "734003200\n");
    wait_until("a refusal", || {
        agent.send(r#"{"content":{"target":{"cpu":2,"mem":968884224}},"type":"DownscaleRequest","id":4}"#);
        agent.receive().contains("the control group uses 700 MiB")
    });
    files.write("memory.events", "low 0\nhigh 8\nmax 0\n");
    assert_eq!(agent.receive(), r#"{"type":"UpscaleRequest","id":3}"#);
    // Process 1 is notified before the group stands still, so that it can thaw it too.
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "freezes work\n");
    wait_until("the thaw", || files.read("cgroup.freeze") == "0");
    agent.send(r#"{"content":{"granted":{"cpu":2,"mem":2147483648}},"type":"UpscaleNotification","id":6}"#);
    while agent.receive() != r#"{"type":"UpscaleConfirmation","id":6}"# {}
    assert_eq!(files.limit("memory.high"), Some((2048 - 200) * MIB));
    assert_eq!(files.limit("memory.max"), Some((2048 - 100) * MIB));
}

#[test]
fn a_group_that_comes_later_gets_its_limits_and_nothing_is_frozen_without_process_1() {
    let guest = Guest::new();
    let monitor = Monitor::start(guest.path(), &["--limits", "high", "-c", "work"]);
    let mut agent = Agent::connect(&monitor, 1);
    let files = Files::new(guest.path());
    wait_until("the limit", || files.limit("memory.high") == Some((4096 - 200) * MIB));
    assert_eq!(files.read("memory.max"), "max\n");
    // The events that were there before are none; a new one is requested for.
    files.write("memory.events", "low 0\nhigh 9\nmax 0\n");
    assert_eq!(agent.receive(), r#"{"type":"UpscaleRequest","id":3}"#);
    assert_eq!(files.read("cgroup.freeze"), "1");
}
