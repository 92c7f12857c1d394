//! Bad input: one line that names the fault, a hint, and nothing half-written left behind.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use neonvm_test_support::{eventually_blocking, need, needs};

use super::guest::own_port;
use super::registry::{Registry, layout};
use crate::machine::{FIXTURE_TOOLS, Machine, busybox};

#[test]
fn bad_input_is_refused_with_a_hint_and_leaves_nothing() {
    need!(needs::programs(&FIXTURE_TOOLS));
    let machine = Machine::new();
    let root = busybox().display().to_string();
    machine.write("typo.yaml", "command:\n  - name: x\n");
    machine.write("action.yaml", "commands:\n  - {name: a, user: b, sysvInitAction: boot, shell: c}\n");
    machine.write("bad.qcow2", b"QFI\xfb\0\0\0\x03garbage");
    machine.write(
        "bad.tar",
        b"not a tar at all, not even nearly one, of five hundred and twelve bytes".repeat(9),
    );
    machine.write("guest", "#!/bin/sh\n");
    let unreachable = own_port();
    let unreachable = format!("{}/x:1", unreachable.address());
    let before = machine.files();
    let cases: [(&[&str], i32, &[&str]); 13] = [
        (&["vm", "build", "--from", &root], 2, &["-O", "hint"]),
        (&["vm", "build", "--from", &root, "-f", "typo.yaml", "-O", "x"], 2, &["typo.yaml", "command"]),
        (
            &["vm", "build", "--from", &root, "-f", "action.yaml", "-O", "x"],
            2,
            &["commands[0].sysvInitAction", "respawn"],
        ),
        (&["vm", "build", "--from", &root, "-f", "none.yaml", "-O", "x"], 2, &["none.yaml"]),
        (&["vm", "build", "--from", &root, "-O", "no/where/x"], 2, &["no/where", "hint"]),
        (&["vm", "build", "--from", &root, "-O", "x", "--size", "1Mi"], 1, &["size"]),
        (&["vm", "build", "--from", &root, "-O", "x", "--size", "big"], 2, &["--size", "hint"]),
        (
            &["vm", "build", "--from", &root, "-O", "x", "--guest", "guest"],
            5,
            &["guest", "not a 64-bit program"],
        ),
        (&["vm", "build", "--from", "bad.tar", "-O", "x"], 1, &["bad.tar", "hint"]),
        (&["vm", "build", "--from", "./nothing", "-O", "x"], 3, &["nothing"]),
        (&["vm", "build", "--from", &unreachable, "-O", "x"], 8, &["cannot be reached", "hint"]),
        (&["vm", "build", "--from", "a/Upper", "-O", "x"], 2, &["--from", "hint"]),
        (&["image", "inspect", "bad.qcow2"], 1, &["not a usable disk", "hint"]),
    ];
    for (arguments, code, parts) in cases {
        let (got, text) = machine.bad(arguments);
        assert_eq!(got, code, "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: no {part:?} in {text}");
        }
        let errors = text.lines().filter(|line| line.starts_with("error: ")).count();
        assert!(errors == 1 && !text.contains("panicked"), "{text}");
    }
    assert_eq!(machine.files(), before);
    assert_eq!(machine.bad(&["image", "inspect", "nothing"]).0, 3);
    assert_eq!(machine.bad(&["image", "remove", "nothing"]).0, 3);
    assert_eq!(machine.bad(&["kernel", "remove", "nothing"]).0, 3);
}

#[test]
fn a_registry_that_lacks_or_changes_things_is_caught() {
    need!(needs::programs(&FIXTURE_TOOLS));
    need!(needs::programs(&["docker-registry", "skopeo"]));
    let machine = Machine::new();
    let registry = Registry::start();
    layout(&busybox(), "amd64", &serde_json::json!({ "Cmd": ["/bin/sh"] }), &machine.path("layout"));
    registry.receive(&machine.path("layout"), "a/b:1");
    let name = |name: &str| registry.name(name);
    let (digest, tag, repository) =
        (name(&format!("a/b@sha256:{}", "0".repeat(64))), name("a/b:2"), name("a/c:1"));
    for (from, code, part) in [(&digest, 3, "sha256:000000"), (&tag, 3, "tag"), (&repository, 3, "hint")] {
        let (got, text) = machine.bad(&["vm", "build", "--from", from, "-O", "x"]);
        assert!(got == code && text.contains(part), "{got} {text}");
    }
    layout(&busybox(), "arm64", &serde_json::json!({}), &machine.path("other"));
    let (code, text) =
        machine.bad(&["vm", "build", "--from", "oci:other:image", "--arch", "amd64", "-O", "x"]);
    assert!(code == 1 && text.contains("linux/arm64"), "{text}");
    // Simulates a change of a layer in the layout behind its digest.
    let layout_path = machine.path("layout/blobs/sha256");
    let largest = std::fs::read_dir(&layout_path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
    let (_, text) =
        machine.bad(&["vm", "build", "--from", "oci:layout:image", "-O", "x", "--cache-dir", "fresh"]);
    assert!(text.contains("digest") || text.contains("damaged"), "{text}");
    assert_eq!(machine.files(), ["fresh", "layout", "other"]);
}

#[test]
fn a_full_disk_is_reported_and_nothing_stays() {
    need!(needs::root());
    need!(needs::programs(&FIXTURE_TOOLS));
    let machine = Machine::new();
    let small = machine.path("small");
    std::fs::create_dir(&small).unwrap();
    // A mount name space of its own: nothing is left mounted whatever happens.
    let program = crate::machine::programs().join("neonctl");
    let script = format!(
        "mount -t tmpfs -o size=256k none {0} && {1} vm build --from {2} -O {0}/x.qcow2; code=$?; ls -A {0}; exit $code",
        small.display(),
        program.display(),
        busybox().display()
    );
    let output = machine_command(&machine, &script);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no space left"), "{text}");
    assert!(text.contains("hint: free some space"), "{text}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
}

fn machine_command(machine: &Machine, script: &str) -> std::process::Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).env("HOME", machine.path("."));
    command.output().unwrap()
}

#[test]
fn a_kernel_without_what_vms_need_is_refused() {
    need!(needs::program("dpkg-deb"));
    let machine = Machine::new();
    machine.write(
        "p/DEBIAN/control",
        "Package: linux-image-x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\nDescription: x\n",
    );
    machine.write("p/boot/vmlinuz-1", "kernel");
    machine.write("p/boot/config-1", "CONFIG_EXT4_FS=y\n");
    assert!(
        Command::new("dpkg-deb")
            .args(["--build", "p", "k.deb"])
            .current_dir(machine.path("."))
            .output()
            .unwrap()
            .status
            .success()
    );
    let (code, text) =
        machine.bad(&["kernel", "fetch", "--package", "k.deb", "--kernel-name", "bad", "--no-default"]);
    assert!(code == 1 && text.contains("CONFIG_VIRTIO_PCI"), "{text}");
    machine.write("mine.config", "CONFIG_SMP=n\n");
    let (code, text) = machine.bad(&["kernel", "build", "--check-config", "--config", "mine.config"]);
    assert!(code == 2 && text.contains("CONFIG_SMP is asked for twice"), "{text}");
    let list = machine.good(&["kernel", "list", "-o", "name"]);
    assert!(!list.lines().any(|line| line == "kernel/bad"), "{list}");
}

/// A build that waits for a registry that never answers is stopped.
#[test]
fn an_interrupted_build_leaves_nothing() {
    let machine = Machine::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let from = format!("127.0.0.1:{}/a/b:1", listener.local_addr().unwrap().port());
    let mut command = machine.neonctl(&["vm", "build", "--from", &from, "-O", "x.qcow2"]);
    let mut child = command.process_group(0).spawn().unwrap();
    listener.set_nonblocking(true).unwrap();
    let connection = || {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended before it connected");
        listener.accept().ok()
    };
    // It has connected: it waits for the answer now.
    let _held = eventually_blocking(|| "the build connects".into(), connection);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = eventually_blocking(|| "the build ends".into(), || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert_eq!(machine.files(), Vec::<String>::new());
}

/// An image of the local store goes to a registry under the same or another name, and comes back to another user.
#[test]
fn a_stored_image_is_pushed_to_a_registry() {
    need!(needs::programs(&FIXTURE_TOOLS));
    need!(needs::programs(&["docker-registry", "skopeo"]));
    let machine = Machine::new();
    let registry = Registry::start();
    let root = busybox().display().to_string();
    machine.good(&["vm", "build", "--from", &root, "--owner", "root", "-t", "mine:1"]);
    let name = registry.name("disks/mine:2");
    let pushed = machine.good(&["image", "push", "mine:1", "--to", &name, "-o", "json"]);
    let pushed: serde_json::Value = serde_json::from_str(&pushed).unwrap();
    assert_eq!(pushed["reference"], name.as_str(), "{pushed}");
    let reference = format!("docker://{name}");
    let inspected =
        Command::new("skopeo").args(["inspect", "--tls-verify=false", &reference]).output().unwrap();
    let inspected: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(inspected["Digest"], pushed["digest"]);
    let other = Machine::new();
    other.good(&["image", "export", &name, "-O", "back.raw"]);
    assert!(other.path("back.raw").metadata().unwrap().len() > 0);
    assert_eq!(machine.bad(&["image", "push", "nothing:1", "--to", &name]).0, 3);
    let (code, text) = machine.bad(&["image", "push", "mine:1", "--to", "a/Upper"]);
    assert!(code == 2 && text.contains("hint"), "{text}");
}
