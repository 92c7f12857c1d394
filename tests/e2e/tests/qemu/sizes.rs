//! Sizes change while the VM runs: nothing restarts, no connection is lost, and a refusal of the guest is reported.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{eventually_blocking, need, needs};
use serde_json::Value;

use crate::cgroup::Group;
use crate::cluster::{Cluster, LIMIT, possible, possible_with_database, until};
use crate::database::{self, Session};

fn scaled(vm: &Value) -> (String, String) {
    condition(vm, "Scaled")
}

/// Reason and message of a condition.
fn condition(vm: &Value, kind: &str) -> (String, String) {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind).cloned();
    let word =
        |key: &str| found.as_ref().and_then(|found| found[key].as_str()).unwrap_or_default().to_owned();
    (word("reason"), word("message"))
}

/// A database keeps its session, its pool and its place while it grows and shrinks.
#[test]
fn a_database_keeps_its_session_through_every_size() {
    need!(possible_with_database());
    let (cluster, address) = database();
    let mut session = Session::open(&address);
    resize_under(&cluster, &mut session);
    drop(session);
    assert_eq!(cluster.vm("pg")["status"]["restartCount"], 0);
    // What the bounds do not allow is refused before anything is changed.
    let (code, text) = cluster.bad(&["vm", "scale", "pg", "--cpu", "4"]);
    assert!(code == 5 && text.contains("above its maximum of 3.00 CPU"), "{text}");
    let (code, text) = cluster.bad(&["vm", "scale", "pg", "--memory", "100Mi"]);
    assert!(code == 5 && text.contains("below its minimum of 512Mi"), "{text}");
    cluster.down();
}

/// A VM with PostgreSQL that answers, and its address.
fn database() -> (Cluster, String) {
    let cluster = Cluster::start();
    database::build(&cluster);
    cluster.good(&[
        "vm",
        "create",
        "pg",
        "--image",
        "pg:1",
        "--cpu",
        "1..3",
        "--memory",
        "512Mi..2Gi",
        "--no-autoscale",
        "--port",
        "5432",
        "--wait",
        "--timeout",
        "170s",
    ]);
    let address = cluster.vm("pg")["status"]["podIP"].as_str().unwrap().to_owned();
    database::answers(&cluster, &address);
    (cluster, address)
}

fn resize_under(cluster: &Cluster, session: &mut Session) {
    let backend = session.query("select pg_backend_pid()");
    session.query("create temp table kept as select 42 as x; select 1");
    let uid = cluster.vm("pg")["metadata"]["uid"].as_str().unwrap().to_owned();
    let before = Cluster::qemus(&uid);
    for (cpu, memory, online) in
        [("3", "2Gi", "3"), ("1500m", "1Gi", "2"), ("1", "512Mi", "1"), ("2", "1536Mi", "2")]
    {
        cluster.good(&["vm", "scale", "pg", "--cpu", cpu, "--memory", memory, "--wait", "--timeout", "170s"]);
        assert_eq!(cluster.inside("pg", "nproc").trim(), online);
        assert_eq!(session.query("select x from kept"), "42", "at {cpu} CPU, {memory}");
        assert_eq!(session.query("select pg_backend_pid()"), backend);
    }
    assert_eq!(Cluster::qemus(&uid), before, "it is the same boot");
}

/// QmpScaling: QEMU plugs CPUs, the guest takes them into use, and an emulated VM, whose CPUs cannot be unplugged,
/// reports that.
#[test]
fn cpus_are_plugged_into_a_running_guest() {
    need!(possible());
    cpus_are_plugged(Cluster::start());
}

#[test]
fn cpus_are_plugged_into_a_running_guest_with_the_kernel_of_debian_13() {
    need!(possible());
    let kernel = need!(needs::debian_13_kernel());
    cpus_are_plugged(Cluster::with_kernel(&kernel, &["--nodes", "1"]));
}

fn cpus_are_plugged(cluster: Cluster) {
    cluster.idle();
    let manifest = cluster.write(
        "plug.yaml",
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: plug }\nspec:\n\
         \x20 cpuScalingMode: QmpScaling\n  guest:\n    cpus: { min: 500m, use: 1, max: 3 }\n\
         \x20   memorySlotSize: 256Mi\n    memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: idle:1 }\n",
    );
    cluster.good(&["vm", "create", "-f", &manifest, "--wait", "--timeout", "170s"]);
    assert_eq!((cluster.inside("plug", "nproc").trim(), vcpus(&cluster, "plug").len()), ("1", 1));
    for cpu in ["3", "2500m"] {
        cluster.good(&["vm", "scale", "plug", "--cpu", cpu, "--wait", "--timeout", "170s"]);
        assert_eq!(
            (cluster.inside("plug", "nproc").trim(), vcpus(&cluster, "plug").len()),
            ("3", 3),
            "{cpu}"
        );
    }
    the_vcpus_are_held_and_counted(&cluster, "plug", 3);
    cluster.good(&["vm", "scale", "plug", "--cpu", "1"]);
    let vm = cluster.becomes("plug", "the refusal is reported", |vm| {
        let (reason, message) = condition(vm, "Degraded");
        reason == "CpuNotScaled" && message.contains("cannot be unplugged without KVM")
    });
    // The quota of its control group holds it to one CPU all the same.
    assert_eq!(vm["status"]["cpus"], 1);
    assert_eq!((&vm["status"]["restartCount"], cluster.inside("plug", "nproc").trim()), (&0.into(), "3"));
    cluster.down();
}

/// All threads of vCPUs are in the cgroup that is held to the VM's size, and their time is in the counters: also of those that were
/// plugged.
fn the_vcpus_are_held_and_counted(cluster: &Cluster, name: &str, count: usize) {
    let vcpus = vcpus(cluster, name);
    assert_eq!(vcpus.len(), count, "{vcpus:?}");
    for thread in &vcpus {
        let groups = read(thread, "cgroup");
        assert!(groups.lines().any(|line| line.ends_with("/vcpus")), "{} {groups}", thread.display());
    }
    // The guest has used each of them.
    cluster.inside(name, "for cpu in 0 1 2 3; do timeout 1 sh -c 'while :; do :; done' & done; wait");
    let nanos = |thread: &Path| {
        read(thread, "schedstat").split_whitespace().next().and_then(|text| text.parse::<u64>().ok())
    };
    let used: u64 = vcpus.iter().filter_map(|thread| nanos(thread)).sum();
    let text = cluster.exec(&cluster.pod(name), &["neond", "runner", "statistics"]);
    let statistics: Value = serde_json::from_str(&text).unwrap();
    let counted = statistics["cpuUs"].as_u64().unwrap();
    assert!(counted >= used / 1000, "{counted} of {}", used / 1000);
}

/// Directories of the threads of a VM's vCPUs.
fn vcpus(cluster: &Cluster, name: &str) -> Vec<PathBuf> {
    let uid = cluster.vm(name)["metadata"]["uid"].as_str().unwrap().to_owned();
    let tasks = format!("/proc/{}/task", Cluster::qemus(&uid)[0]);
    let threads = std::fs::read_dir(tasks).unwrap().map(|entry| entry.unwrap().path());
    threads.filter(|thread| read(thread, "comm").starts_with("CPU ")).collect()
}

/// A file of a thread, empty if that has ended.
fn read(thread: &Path, file: &str) -> String {
    std::fs::read_to_string(thread.join(file)).unwrap_or_default()
}

/// The cgroup holds the vCPU threads to the size, and follows it.
#[test]
fn fractions_of_a_cpu_are_enforced_and_follow_the_size() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.image("busy:1", &["/bin/sh", "-c", "while :; do :; done"]);
    cluster.good(&[
        "vm",
        "create",
        "busy",
        "--image",
        "busy:1",
        "--cpu",
        "0.25..1",
        "--no-autoscale",
        "--start-cpu",
        "1",
        "--memory",
        "256Mi",
        "--wait",
    ]);
    let used = || -> (u64, u64) {
        let pod = cluster.pod("busy");
        let text = cluster.exec(&pod, &["neond", "runner", "statistics"]);
        let statistics: Value = serde_json::from_str(&text).unwrap();
        (statistics["cpuUs"].as_u64().unwrap(), statistics["uptimeMs"].as_u64().unwrap())
    };
    cluster.good(&["vm", "scale", "busy", "--cpu", "0.25", "--wait"]);
    // The time is read after the CPU, perhaps much later: then too much seems to be used since. That does not happen each time.
    let begun = [used(), used(), used()];
    let last = begun[2].1;
    until(|| used().1 > last + 4000, || "time stands still".into());
    let (cpu, time) = used();
    let shares = begun.map(|(first_cpu, first_time)| (cpu - first_cpu) * 100 / (1000 * (time - first_time)));
    let share = shares.into_iter().min().unwrap();
    // Never more than the quota and one period; how much less is the host's affair.
    assert!(share <= 32, "{share} % of a CPU at a size of 25 %");
    the_pod_is_never_smaller_than_its_vcpus(&cluster);
    cluster.down();
}

/// The quotas of pod and vCPU threads follow each other up and down, and the kernel never refuses one: with cgroups of version 1 it does
/// if the order of the two writes is wrong.
fn the_pod_is_never_smaller_than_its_vcpus(cluster: &Cluster) {
    let uid = cluster.vm("busy")["metadata"]["uid"].as_str().unwrap().to_owned();
    let pod = Group::from_process(Cluster::qemus(&uid)[0], "cpu");
    let quotas = || (pod.cpu_milli(), pod.children().first().and_then(Group::cpu_milli));
    for (cpu, of_the_pod, of_the_vcpus) in [("0.25", 350, 250), ("1", 1100, 1000), ("0.5", 600, 500)] {
        cluster.good(&["vm", "scale", "busy", "--cpu", cpu, "--wait", "--timeout", "170s"]);
        until(
            || quotas() == (Some(of_the_pod), Some(of_the_vcpus)),
            || format!("{:?} at {cpu}\n{}", quotas(), cluster.logs()),
        );
    }
    let log = std::fs::read_to_string(cluster.directory().join("log/node-n1.log")).unwrap();
    assert!(!log.contains("cannot be set to its size"), "{log}");
    let problems = cluster.good(&["vm", "describe", "busy"]);
    assert!(!problems.contains("CpuNotLimited"), "{problems}");
}

#[test]
fn a_guest_that_keeps_its_memory_is_reported_with_the_size_it_reached() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("keeper", &["--memory", "256Mi..1Gi", "--start-memory", "1Gi"]);
    cluster.inside(
        "keeper",
        "mount -t tmpfs -o size=900m none /mnt && dd if=/dev/zero of=/mnt/held bs=1M count=600",
    );
    let (code, text) =
        cluster.bad(&["vm", "scale", "keeper", "--memory", "256Mi", "--wait", "--timeout", "40s"]);
    // It waits for its whole time, and reports what was reached.
    assert!(code == 6 && text.contains("the guest has given memory back down to"), "{text}");
    let vm = cluster.vm("keeper");
    assert_eq!(vm["status"]["phase"], "Running", "it does not stay in Scaling");
    let (reason, message) = scaled(&vm);
    assert!(reason == "MemoryNotReleased" && message.contains("not to 256Mi"), "{reason}: {message}");
    // Events are delivered separately.
    let events = || cluster.good(&["vm", "history", "keeper"]);
    until(|| events().contains("ScaleLimited"), events);
    // The VM lives; what was freed is taken later.
    cluster.inside("keeper", "rm /mnt/held");
    cluster.becomes("keeper", "gives back after all", |vm| scaled(vm).0 == "Reached");
    cluster.down();
}

/// A connection from outside to a port of the guest, through every change.
#[test]
fn a_connection_through_the_pod_survives_patches() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.image("echo:1", &["/bin/nc", "-ll", "-p", "7", "-e", "/bin/cat"]);
    cluster.good(&[
        "vm",
        "create",
        "echo",
        "--image",
        "echo:1",
        "--cpu",
        "1..2",
        "--memory",
        "256Mi..512Mi",
        "--port",
        "7",
        "--wait",
    ]);
    let address = cluster.vm("echo")["status"]["podIP"].as_str().unwrap().to_owned();
    let connect = || TcpStream::connect(format!("{address}:7")).ok();
    let mut stream = eventually_blocking(|| "the port is reached".into(), connect);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    // The JSON patches of upstream's README.
    for patch in [
        r#"[{"op":"replace","path":"/spec/guest/cpus/use","value":2}]"#,
        r#"[{"op":"replace","path":"/spec/guest/memorySlots/use","value":2}]"#,
        r#"[{"op":"replace","path":"/spec/guest/cpus/use","value":1}]"#,
        r#"[{"op":"replace","path":"/spec/guest/memorySlots/use","value":1}]"#,
    ] {
        let operations = serde_json::from_str(patch).unwrap();
        cluster.client().json_patch(Resource::VM, "echo", &operations).unwrap();
        cluster.becomes("echo", "as patched", |vm| {
            scaled(vm).0 == "Reached" && vm["status"]["observedGeneration"] == vm["metadata"]["generation"]
        });
        writeln!(stream, "{patch}").unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), patch);
    }
    assert_eq!(cluster.vm("echo")["status"]["restartCount"], 0);
    cluster.down();
}
