//! The same root and the same program in a container engine's runtime and in a VM: what both find.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use neonvm_test_support::need;
use neonvm_test_support::needs::{self, Missing, Need};
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible};
use crate::machine;

/// What a VM gives and a bare runtime does not: name, the value in the VM. Engines configure the same beside the runtime, or, for the
/// device and the first process, the VM is a computer of its own.
const OF_THE_VM: &[(&str, &str)] = &[
    ("nofile", "1048576:1048576"),
    ("core", "unlimited"),
    ("name", "in-hosts in-hostname"),
    ("localhost", "1"),
    ("resolv", "1"),
    ("dev ptmx", "666 character special file"),
    ("pid1", "init"),
    // The runtime's are those of the process that starts it.
    ("stack", "8192"),
    ("memlock", "8192"),
    ("oom", "0"),
    ("sigs", "SigIgn:\t0000000000000000 SigBlk:\t0000000000000000"),
];
const ENVIRONMENT: [&str; 2] = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "A=b c"];

/// `name=value` of each line; a line without a name belongs to the value before it.
fn facts(text: &str) -> BTreeMap<String, String> {
    let mut facts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.split_once('='), facts.last_mut()) {
            (Some((name, value)), _) => facts.push((name.to_owned(), value.to_owned())),
            (None, Some((_, value))) => *value = format!("{value} {line}"),
            (None, None) => {}
        }
    }
    facts.into_iter().collect()
}

/// A root with BusyBox, the probe, a user with a second group, and content below a directory that a VM mounts over.
fn root(root: &Path) {
    let copied = Command::new("cp").arg("-a").arg(machine::busybox()).arg(root).status().unwrap();
    assert!(copied.success());
    for directory in ["run/db", "srv/web", "tmp", "etc"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let probe = include_str!("engine-probe.sh");
    let files = [
        ("probe.sh", probe),
        ("run/db/flag", "flag"),
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\nweb:x:999:999::/srv/web:/bin/sh\n"),
        ("etc/group", "root:x:0:\nweb:x:999:\nextra:x:50:web\n"),
    ];
    for (name, text) in files {
        std::fs::write(root.join(name), text).unwrap();
    }
    let text = "chown -R 0:0 . && chmod 755 . probe.sh && chmod 1777 tmp && chown -R 999:999 run/db";
    assert!(Command::new("sh").args(["-c", text]).current_dir(root).status().unwrap().success());
}

/// The configuration that engines give their runtime, less what this computer's cgroups and limits may not allow.
fn bundle(root: &Path) -> Value {
    let tmpfs = |destination: &str, mode: &str| json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", mode] });
    json!({ "ociVersion": "1.0.2", "hostname": "probe", "root": { "path": root },
        "process": { "user": { "uid": 999, "gid": 999, "additionalGids": [50] }, "cwd": "/srv/web",
            "args": ["/probe.sh", "x"], "env": [ENVIRONMENT[0], ENVIRONMENT[1], "HOME=/srv/web"] },
        "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" },
            tmpfs("/dev", "mode=755"), tmpfs("/dev/shm", "mode=1777"),
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] },
            { "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue" },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"] }],
        "linux": { "namespaces": [{ "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
            "sysctl": { "net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647" } } })
}

/// What the program prints in a container.
fn in_a_container(home: &Path, root: &Path) -> Need<String> {
    needs::root()?;
    needs::programs(&["crun", "unshare"])?;
    let directory = home.join("bundle");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("config.json"), bundle(root).to_string()).unwrap();
    // The runtime refuses hosts with both versions of cgroups, so it sees none.
    let text = "mount -t tmpfs none /sys/fs/cgroup && exec crun --cgroup-manager=disabled --root \"$PWD/state\" run \"engine-$$\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", text])
        .current_dir(&directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(Missing::unavailable(format!(
            "crun runs no container here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[test]
fn a_vm_gives_what_a_container_engine_gives() {
    need!(possible());
    let cluster = Cluster::start();
    let path = cluster.path("root");
    root(&path);
    let container = facts(&need!(in_a_container(&cluster.path("."), &path)));
    let text = path.display().to_string();
    let image =
        ["--user", "web", "--workdir", "/srv/web", "--env", ENVIRONMENT[1], "--entrypoint", "/probe.sh"];
    cluster.good(&[&["vm", "build", "--from", &text, "-t", "probe:1"][..], &image, &["--", "x"]].concat());
    let size = ["--cpu", "1", "--memory", "256Mi"];
    let output = cluster
        .neonctl(&[&["vm", "run", "--rm", "--image", "probe:1"][..], &size].concat())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let vm = facts(&String::from_utf8_lossy(&output.stdout));
    let mut expected = container.clone();
    for (name, value) in OF_THE_VM {
        expected.insert((*name).to_owned(), (*value).to_owned());
    }
    assert_eq!(vm, expected, "in the container: {container:#?}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(vm.len() > 35 && vm["run"] == "flag 999:999 755" && vm["stdout"] == "x ok", "{vm:#?}");
    cluster.down();
}
