//! How VMs end, and how that is reported: exit codes, panics, full memory, broken images, guests that do not listen.

use neonvm_e2e::client::Resource;
use neonvm_test_support::need;
use serde_json::{Value, json};

use crate::cluster::{Cluster, kill, possible, until};

fn phase(vm: &Value) -> &str {
    vm["status"]["phase"].as_str().unwrap_or_default()
}

fn reason(vm: &Value) -> &str {
    vm.pointer("/status/lastExit/reason").and_then(Value::as_str).unwrap_or_default()
}

fn message(vm: &Value, condition: &str) -> String {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|found| found["type"] == condition).cloned();
    found.and_then(|found| found["message"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// The restart policy goes by what the workload really did.
#[test]
fn the_end_of_a_workload_ends_its_vm_by_its_policy() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let create = |name: &str, policy: &str, command: &str| {
        cluster.good(&[
            "vm",
            "create",
            name,
            "--image",
            "idle:1",
            "--cpu",
            "1",
            "--memory",
            "256Mi",
            "--restart",
            policy,
            "--",
            "/bin/sh",
            "-c",
            command,
        ]);
    };
    create("good", "Never", "echo done; exit 0");
    create("bad", "Never", "exit 3");
    create("tried", "OnFailure", "if [ -e /flag ]; then exit 0; fi; touch /flag; exit 1");
    let good = cluster.becomes("good", "succeeds", |vm| phase(vm) == "Succeeded");
    assert_eq!((reason(&good), &good["status"]["lastExit"]["exitCode"]), ("WorkloadEnded", &Value::from(0)));
    let bad = cluster.becomes("bad", "fails", |vm| phase(vm) == "Failed");
    assert_eq!((reason(&bad), &bad["status"]["lastExit"]["exitCode"]), ("WorkloadEnded", &Value::from(3)));
    assert!(cluster.good(&["vm", "logs", "bad", "--previous"]).contains("exit code 3"));
    let tried = cluster.becomes("tried", "succeeds at the second try", |vm| phase(vm) == "Succeeded");
    assert_eq!(tried["status"]["restartCount"], 0, "it was tried again inside the guest");
    cluster.good(&["vm", "delete", "good", "bad", "tried", "-y"]);
    cluster.down();
}

/// A VM of `idle:1` that is not restarted, with words on the kernel's command line and a command.
fn manifest(name: &str, line: &str, command: &str) -> String {
    format!(
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: {{ name: {name} }}\nspec:\n  restartPolicy: Never\n\
         \x20 guest:\n    appendKernelCmdline: \"{line}\"\n    command: [/bin/sh, -c, \"{command}\"]\n\
         \x20   cpus: {{ min: 1, use: 1, max: 1 }}\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: {{ min: 1, max: 1, use: 1 }}\n    rootDisk: {{ image: idle:1 }}\n"
    )
}

#[test]
fn a_kernel_panic_is_reported_with_the_last_console_lines() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    // A kernel panics when process 1 ends.
    cluster.apply(manifest("panics", "init=/bin/true", "true"));
    let vm = cluster.becomes("panics", "fails", |vm| phase(vm) == "Failed");
    assert_eq!(reason(&vm), "GuestPanic", "{}", vm["status"]);
    assert!(cluster.good(&["vm", "describe", "panics"]).contains("Kernel panic"), "{}", vm["status"]);
    cluster.down();
}

#[test]
fn a_workload_that_is_out_of_memory_is_reported() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.apply(manifest("hungry", "", "tail /dev/zero"));
    let vm = cluster.becomes("hungry", "fails", |vm| phase(vm) == "Failed");
    let words = vm["status"]["lastExit"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(reason(&vm) == "WorkloadEnded" && words.contains("out of memory"), "{}", vm["status"]);
    cluster.down();
}

#[test]
fn images_that_are_missing_or_broken_are_named() {
    need!(possible());
    let files = tempfile::tempdir().unwrap();
    let cluster = Cluster::with(&["--nodes", "1", "--image-files", files.path().to_str().unwrap()]);
    // A file of the node needs permission.
    let broken = files.path().join("broken.qcow2");
    std::fs::write(&broken, [b"QFI\xfb".as_slice(), &[0xff; 5000]].concat()).unwrap();
    let broken = broken.display();
    let (_, refused) = cluster.bad(&[
        "vm",
        "create",
        "broken",
        "--image",
        &format!("file://{broken}"),
        "--cpu",
        "1",
        "--memory",
        "256Mi",
    ]);
    assert!(refused.contains("allow.vm.neon.tech/node-files=true"), "{refused}");
    let allowed = json!({"metadata": {"labels": {"allow.vm.neon.tech/node-files": "true"}}});
    cluster.client().merge(Resource::NAMESPACE, "default", &allowed).unwrap();
    let nowhere = "127.0.0.1:1/none/such:1";
    for (name, image) in [("broken", format!("file://{broken}")), ("nowhere", nowhere.to_owned())] {
        cluster.good(&[
            "vm",
            "create",
            name,
            "--image",
            &image,
            "--cpu",
            "1",
            "--memory",
            "256Mi",
            "--restart",
            "Never",
        ]);
    }
    let vm = cluster
        .becomes("nowhere", "waits for its image", |vm| message(vm, "Available").contains("127.0.0.1:1"));
    assert_eq!(phase(&vm), "Pending");
    let vm = cluster.becomes("broken", "names the fault", |vm| {
        let all = message(vm, "Available") + &message(vm, "Degraded") + &vm["status"]["lastExit"].to_string();
        all.contains("qcow2")
    });
    assert!(phase(&vm) == "Failed" || phase(&vm) == "Pending", "{}", vm["status"]);
    // Both can be deleted although they never ran.
    cluster.good(&["vm", "delete", "broken", "nowhere", "-y", "--timeout", "170s"]);
    let (code, text) = cluster.bad(&["vm", "get", "nowhere"]);
    assert!(code == 3 && text.contains("not found"), "{text}");
    cluster.down();
}

/// The guest ignores the power button: after the grace period the VM ends all the same.
#[test]
fn a_guest_that_does_not_listen_is_ended_by_force() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.image("deaf:1", &["/bin/true"]);
    cluster.apply(
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: deaf }\nspec:\n  terminationGracePeriodSeconds: 4\n\
         \x20 guest:\n    appendKernelCmdline: \"init=/bin/cat\"\n\
         \x20   cpus: { min: 1, use: 1, max: 1 }\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: deaf:1 }\n",
    );
    let uid = cluster.vm("deaf")["metadata"]["uid"].as_str().unwrap().to_owned();
    until(|| !Cluster::qemus(&uid).is_empty(), || cluster.logs());
    cluster.good(&["vm", "delete", "deaf", "--timeout", "170s"]);
    assert!(Cluster::qemus(&uid).is_empty());
    cluster.down();
}

/// Kill QEMU: reported with the reason. Kill the runner: QEMU goes with it. Either way there is one VM again.
#[test]
fn killed_processes_are_reported_and_replaced() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("k", &[]);
    let uid = cluster.vm("k")["metadata"]["uid"].as_str().unwrap().to_owned();
    let up = |count: u64| move |vm: &Value| phase(vm) == "Running" && vm["status"]["restartCount"] == count;
    for pid in Cluster::qemus(&uid) {
        kill(pid, rustix::process::Signal::KILL);
    }
    let vm = cluster.becomes("k", "replaced", up(1));
    assert_eq!(reason(&vm), "QemuEnded");
    assert!(vm["status"]["lastExit"]["message"].as_str().unwrap().contains("signal 9"), "{}", vm["status"]);
    assert!(
        !vm["status"]["lastExit"]["console"].as_array().unwrap().is_empty(),
        "the last lines of the console are kept"
    );
    let runners = cluster.processes(" runner");
    assert_eq!(runners.len(), 1, "{runners:?}");
    let old = Cluster::qemus(&uid);
    kill(runners[0], rustix::process::Signal::KILL);
    let vm = cluster.becomes("k", "replaced again", up(2));
    assert_eq!(reason(&vm), "RunnerKilled");
    let now = Cluster::qemus(&uid);
    assert!(now.len() == 1 && now != old, "{old:?} {now:?}");
    cluster.down();
}
