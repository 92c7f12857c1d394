//! The scenarios that upstream tests a cluster with, as far as they concern one VM.

use std::io::{Read as _, Write as _};

use neonvm_e2e::client::Resource;
use neonvm_test_support::{need, needs};
use serde_json::{Value, json};

use crate::cluster::{Cluster, possible, until};

fn is_true(vm: &Value, condition: &str) -> bool {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == "True")
}

fn is_up(vm: &Value, restarts: u64) -> bool {
    vm["status"]["phase"] == "Running"
        && is_true(vm, "Available")
        && vm["status"]["restartCount"] == restarts
        && vm["status"]["cpus"] == "500m"
        && vm["status"]["memorySize"] == "256Mi"
}

/// default-values, runner-pod and restart-counted with one VM.
#[test]
fn a_vm_has_defaults_one_pod_and_counts_its_restarts() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    // As in every manifest of upstream: CPUs as numbers with a point.
    cluster.apply(
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: small, labels: { team: a } }\n\
         spec:\n  guest:\n    cpus: { min: 0.5, use: 0.5, max: 0.5 }\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: idle:1, size: 2Gi }\n",
    );
    let vm = cluster.becomes("small", "defaults", |vm| vm["spec"].get("cpuScalingMode").is_some());
    assert_eq!(vm["spec"]["cpuScalingMode"], "SysfsScaling");
    assert_eq!(vm["spec"]["guest"]["cpus"], json!({ "min": "500m", "max": "500m", "use": "500m" }));
    let vm = cluster.becomes("small", "up", |vm| is_up(vm, 0));
    let pods = cluster.pods_of("small");
    assert_eq!(pods.len(), 1);
    let (meta, uid) = (&pods[0]["metadata"], &vm["metadata"]["uid"]);
    assert_eq!(meta["name"], vm["status"]["podName"]);
    assert_eq!(
        (&meta["labels"]["app.kubernetes.io/name"], &meta["labels"]["team"]),
        (&json!("NeonVM"), &json!("a"))
    );
    let owner = &meta["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"], &owner["blockOwnerDeletion"]),
        (uid, &json!(true), &json!(true))
    );
    assert_eq!(meta["annotations"]["vm.neon.tech/usage"], r#"{"cpu":"500m","memory":"256Mi"}"#);
    assert!(cluster.inside("small", "df -m /").contains("/dev/"), "the root disk has grown and is mounted");
    // One that measures how fast its processor counts is wrong on a busy host, and its clock runs wild.
    let measured =
        cluster.inside("small", "dmesg | grep 'tsc: .* calibration' | grep -vE 'Refined|Fast' || true");
    assert_eq!(measured, "");

    cluster.client().delete(Resource::POD, meta["name"].as_str().unwrap(), None).unwrap();
    let again = cluster.becomes("small", "up again", |vm| is_up(vm, 1));
    assert_ne!(again["status"]["podName"], vm["status"]["podName"]);

    // A graceful end that only the guest's owner requested.
    let pod = cluster.pod("small");
    // Its own end may come too late to be reported: the pod goes with the VM.
    drop(cluster.client().exec(&pod, &["neond", "runner", "power-off"]));
    let ended = cluster.becomes("small", "restart counted", |vm| is_up(vm, 2));
    assert_eq!(ended["status"]["lastExit"]["reason"], "Stopped");
    cluster.down();
}

/// vm-ssh and vm-neonvmd.
#[test]
fn the_guest_is_reached_from_the_container_and_from_outside() {
    need!(possible());
    need!(needs::program("curl"));
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("s", &[]);
    let vm = cluster.vm("s");
    let name = vm["status"]["sshSecretName"].as_str().unwrap();
    assert!(name.starts_with("ssh-neonvm-s-"), "{name}");
    let secret = cluster.get(Resource::SECRET, name);
    assert_eq!((&secret["type"], &secret["immutable"]), (&json!("kubernetes.io/ssh-auth"), &json!(true)));
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], vm["metadata"]["uid"]);
    let pod = cluster.pod("s");
    cluster.exec(&pod, &["ssh", "guest-vm", "true"]);
    // A command in the container has files of its own, not those of the host.
    let copy = "echo hello > /tmp/letter && scp -q /tmp/letter guest-vm:/tmp/letter.txt";
    cluster.exec(&pod, &["sh", "-c", copy]);
    assert_eq!(cluster.inside("s", "cat /tmp/letter.txt"), "hello\n");
    let processes = cluster.inside("s", "ps");
    assert_eq!(processes.matches("neonvm-guest daemon").count(), 1, "{processes}");
    assert_eq!(cluster.neonctl(&["vm", "ssh", "s", "--", "exit 3"]).status().unwrap().code(), Some(3));
    let (code, text) = cluster.bad(&["vm", "ssh", "s", "-l", "no-such-user", "--", "true"]);
    assert!(code == 255 && text.contains("Permission denied") && !text.contains("Permanently"), "{text}");
    let quiet = cluster.inside_output("s", "echo out; echo err >&2");
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "err\n", "ssh itself prints nothing");
    // Logs of every source, and those of the pod.
    let output = || cluster.good(&["vm", "logs", "s", "--source", "guest"]);
    until(|| !output().is_empty(), || cluster.logs());
    assert_eq!(output(), "up\n");
    assert!(cluster.good(&["vm", "logs", "s", "--source", "serial"]).contains("Linux version"));
    assert!(cluster.client().logs(&pod).unwrap().contains("guest| up"));
    let events = || cluster.good(&["vm", "history", "s"]);
    for reason in ["Created", "Started", "Ready", "Scheduled"] {
        until(|| events().contains(reason), events);
    }
    let words = cluster.good(&["vm", "describe", "s"]);
    for word in ["Running", "pc-q35-", "range 1.00..2.00 CPU", "Available True (Ready)"] {
        assert!(words.contains(word), "{word} is not in\n{words}");
    }
    // The runner's interface is closed to those without a certificate, but for readiness.
    let address = vm["status"]["podIP"].as_str().unwrap();
    let ask = |path: &str| {
        let url = format!("https://{address}:25183{path}");
        let output = std::process::Command::new("curl")
            .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .output();
        output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(
        (ask("/ready"), ask("/v1/status"), ask("/cpu_current")),
        ("200".into(), "403".into(), "403".into())
    );
    cluster.down();
}

/// vm-secret-sync and vm-tls.
#[test]
fn secrets_and_certificates_reach_the_guest_and_are_kept_in_step() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.image(
        "files:1",
        &["/bin/sh", "-c", "cat /var/sync/example/Key.Name /var/tls/tls.crt; exec sleep 1000000"],
    );
    cluster.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "example" },
            "stringData": { "Key.Name": "one" } })
        .to_string(),
    );
    cluster.apply(
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "plain" },
            "data": { "My.Config.YAML": "a: b" } })
        .to_string(),
    );
    let manifest = cluster.write(
        "files.yaml",
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: files }\nspec:\n\
         \x20 tls: { serverName: files.example, expireAfter: 24h, renewBefore: 1h }\n  disks:\n\
         \x20 - { name: sync, mountPath: /var/sync/example, watch: true, secret: { secretName: example } }\n\
         \x20 - { name: conf, mountPath: /conf, configMap: { name: plain, items: [{ key: My.Config.YAML, path: deep/My.Config.YAML, mode: 416 }] } }\n\
         \x20 guest:\n    cpus: { min: 1, use: 1, max: 1 }\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: files:1 }\n",
    );
    cluster.good(&["vm", "create", "-f", &manifest, "--wait", "--timeout", "170s"]);
    let vm = cluster.vm("files");
    let secret = cluster.get(Resource::SECRET, vm["status"]["tlsSecretName"].as_str().unwrap());
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], vm["metadata"]["uid"]);
    // The workload did not start before its files were there; it has begun when the guest answers, perhaps not more than that.
    let output = || cluster.good(&["vm", "logs", "files", "--source", "guest"]);
    until(|| output().contains("END CERTIFICATE"), output);
    let first = output();
    assert!(first.starts_with("one") && first.contains("BEGIN CERTIFICATE"), "{first}");
    let listing =
        cluster.inside("files", "stat -c '%a %n' /conf/deep/My.Config.YAML; cat /conf/deep/My.Config.YAML");
    assert_eq!(listing.trim(), "640 /conf/deep/My.Config.YAML\na: b");
    let changed = json!({ "stringData": { "Key.Name": "two" } });
    cluster.client().merge(Resource::SECRET, "example", &changed).unwrap();
    let read = || cluster.neonctl(&["vm", "ssh", "files", "--", "grep two /var/sync/example/Key.Name"]);
    cluster.succeeds(read);
    cluster.down();
}

/// What a VM's author adds to its pod: a script, a container that runs before, a UDP port, counters of its traffic.
#[test]
fn additions_of_the_author_meet_a_guest() {
    need!(possible());
    need!(needs::root());
    need!(needs::program("curl"));
    let cluster = Cluster::start();
    cluster.idle();
    let allowed = json!({ "metadata": { "labels": {
        "allow.vm.neon.tech/init-script": "true", "allow.vm.neon.tech/init-containers": "true" } } });
    cluster.client().merge(Resource::NAMESPACE, "default", &allowed).unwrap();
    let manifest = |name: &str, script: &str| {
        json!({ "apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "metadata": { "name": name },
            "spec": {
                "initScript": script,
                "enableNetworkMonitoring": true,
                "extraInitContainers": [
                    { "name": "before", "image": "any", "command": ["neond", "runner", "--help"] }],
                "guest": {
                    "cpus": { "min": 1, "use": 1, "max": 1 }, "memorySlotSize": "256Mi",
                    "memorySlots": { "min": 1, "use": 1, "max": 1 }, "rootDisk": { "image": "idle:1" },
                    // The same port for both protocols, and one of them twice: as upstream, forwarded once.
                    "ports": [{ "name": "a", "port": 53, "protocol": "UDP" }, { "name": "b", "port": 53 },
                        { "name": "c", "port": 53, "protocol": "UDP" }] } } })
        .to_string()
    };
    cluster.apply(manifest("wrong", "echo the disk is missing >&2; exit 3"));
    let failed = cluster.becomes("wrong", "the script fails", |vm| !vm["status"]["lastExit"].is_null());
    let message = failed["status"]["lastExit"]["message"].as_str().unwrap();
    assert!(message.contains("spec.initScript: exit status: 3: the disk is missing"), "{message}");
    cluster.delete(Resource::VM, "wrong");

    cluster.apply(manifest("right", "test $(id -u) != 0"));
    let vm = cluster.becomes("right", "up", |vm| is_true(vm, "Available"));
    let pod = cluster.get(Resource::POD, &cluster.pod("right"));
    let before = pod["status"]["initContainerStatuses"].as_array().unwrap();
    let before = before.iter().find(|status| status["name"] == "before").unwrap();
    assert_eq!(before["state"]["terminated"]["exitCode"], 0, "{before}");

    let address = vm["status"]["podIP"].as_str().unwrap();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing listens there in the guest, whose kernel counts each datagram.
    let count = "awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp";
    let counted = || cluster.inside("right", count).trim().parse::<u64>().unwrap();
    let first = counted();
    until(
        || {
            // An earlier answer, that the port is closed, makes a later call fail.
            let _ = socket.send_to(b"question", (address, 53));
            counted() > first
        },
        || "no datagram has reached the guest".to_owned(),
    );
    // All of its traffic was with addresses of this host, which are private.
    assert_eq!(counters(address), [0, 0, 0]);
    let (sent, received) = (5000, 3000);
    let beyond = Beyond::add();
    let answered = beyond.answer(sent, received);
    let script = format!("head -c {sent} /dev/zero | nc {} {} | wc -c", Beyond::ADDRESS, beyond.port);
    assert_eq!(cluster.inside("right", &script).trim(), received.to_string());
    answered.join().unwrap();
    // The runner reads the kernel's counters at most once a second.
    let grown = || counters(address)[0] > received;
    until(grown, || format!("{:?} are counted", counters(address)));
    let [ingress, egress, errors] = counters(address);
    // What headers take of a few packets comes on top.
    assert!((received..received + 2000).contains(&ingress), "{ingress}");
    assert!((sent..sent + 2000).contains(&egress), "{egress}");
    assert_eq!(errors, 0);
    cluster.down();
}

/// Bytes to a guest and from it, and how often they could not be read, as its runner reports them.
fn counters(address: &str) -> [u64; 3] {
    let url = format!("https://{address}:25183/metrics");
    let output = std::process::Command::new("curl").args(["-sk", &url]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    ["ingress_bytes", "egress_bytes", "network_fetch_errors"].map(|name| {
        let name = format!("runner_vm_{name}_total ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
    })
}

/// A server at an address of this host that is in no private network; the address goes when this is dropped.
struct Beyond {
    listener: std::net::TcpListener,
    port: u16,
}

impl Beyond {
    /// Of a range for documentation, which is used nowhere.
    const ADDRESS: &str = "198.51.100.7";

    fn add() -> Self {
        Self::ip("replace");
        let listener = std::net::TcpListener::bind((Self::ADDRESS, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    fn ip(action: &str) {
        let address = format!("{}/32", Self::ADDRESS);
        let _ = std::process::Command::new("ip").args(["address", action, &address, "dev", "lo"]).status();
    }

    /// Reads so many bytes of one client, and answers with so many.
    fn answer(&self, sent: u64, received: u64) -> std::thread::JoinHandle<()> {
        let listener = self.listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut read = vec![0; usize::try_from(sent).unwrap()];
            client.read_exact(&mut read).unwrap();
            client.write_all(&vec![0; usize::try_from(received).unwrap()]).unwrap();
        })
    }
}

impl Drop for Beyond {
    fn drop(&mut self) {
        Self::ip("delete");
    }
}

/// A VM with a kernel of its own: built from source, stored as an image, booted without an initramfs.
#[test]
fn a_kernel_from_an_image_boots() {
    need!(possible());
    let kernel = need!(needs::built_kernel());
    let cluster = Cluster::start();
    cluster.idle();
    let kernels = cluster.path(".local/share/neonvm/kernels");
    std::os::unix::fs::symlink(kernel, kernels.join("own")).unwrap();
    cluster.good(&["kernel", "image", "own", "--tag", "kernel:own"]);
    let words = ["vm", "create", "own", "--image", "idle:1", "--kernel", "kernel:own", "--no-autoscale"];
    cluster.good(&[&words[..], &["--cpu", "1", "--memory", "256Mi", "--wait", "--timeout", "170s"]].concat());
    assert_eq!(cluster.vm("own")["spec"]["guest"]["kernelImage"], "kernel:own");
    let line = cluster.inside("own", "uname -r; cat /proc/version");
    assert!(line.contains("-neonvm"), "{line}");
    cluster.down();
}

/// swap and disk-quota.
#[test]
fn swap_and_quotas_can_be_changed_from_inside() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let manifest = cluster.write(
        "swap.yaml",
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: swap }\nspec:\n  disks:\n\
         \x20 - { name: data, mountPath: /data, emptyDisk: { size: 2Gi, discard: true, enableQuotas: true } }\n\
         \x20 guest:\n    settings: { swap: 1Gi }\n    cpus: { min: 1, use: 1, max: 1 }\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: idle:1 }\n",
    );
    cluster.good(&["vm", "create", "-f", &manifest, "--wait", "--timeout", "170s"]);
    let total = |vm: &str, wanted: u64| {
        let line = cluster.inside(vm, "grep SwapTotal /proc/meminfo");
        let number: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(number, wanted, "{line}");
    };
    total("swap", (1 << 20) - 4);
    cluster.inside("swap", "/neonvm/bin/resize-swap 536870912");
    total("swap", (512 << 10) - 4);
    cluster.inside("swap", "/neonvm/bin/set-disk-quota 65536 /data");
    cluster.inside("swap", "dd if=/dev/zero of=/data/a bs=1M count=32 && sync");
    // Quotas are for those who are not root.
    let as_user = "echo u:x:1000:1000::/:/bin/sh >> /etc/passwd; chmod 777 /data; start-stop-daemon -S -c 1000:1000 -x /bin/dd -- if=/dev/zero of=/data/b bs=1M count=64";
    let full = cluster.inside_output("swap", as_user);
    assert!(!full.status.success(), "more than the quota was written");
    cluster.inside("swap", "/neonvm/bin/set-disk-quota 1048576 /data");
    cluster.inside("swap", &as_user.replace("/data/b", "/data/c"));
    // swap-skipswapon: the disk is there, and is used once it is resized. Here with a command and its arguments, too.
    let later = cluster.write(
        "later.yaml",
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: later }\nspec:\n  guest:\n\
         \x20   settings: { swapInfo: { size: 1Gi, skipSwapon: true } }\n    cpus: { min: 1, use: 1, max: 1 }\n\
         \x20   memorySlotSize: 256Mi\n    memorySlots: { min: 1, max: 1, use: 1 }\n    rootDisk: { image: idle:1 }\n\
         \x20   command: [/bin/sh]\n    args: [-c, \"echo given > /run/argument; exec sleep 9999\"]\n",
    );
    cluster.good(&["vm", "create", "-f", &later, "--wait", "--timeout", "170s"]);
    total("later", 0);
    assert_eq!(cluster.inside("later", "cat /run/argument").trim(), "given");
    cluster.inside("later", "/neonvm/bin/resize-swap 536870912");
    total("later", (512 << 10) - 4);
    cluster.down();
}
