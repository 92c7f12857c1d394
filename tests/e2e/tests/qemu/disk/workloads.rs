//! Disks that boot.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use neonvm_test_support::{Need, need, needs};
use serde_json::{Value, json};

use super::guest::Guest;
use super::registry::{Registry, layout};
use crate::machine::{self, FIXTURE_TOOLS, Machine, busybox, promtool};

/// What is needed to boot disks; the name of the kernel.
fn bootable() -> Need<String> {
    needs::qemu()?;
    needs::programs(&["qemu-img"])?;
    needs::programs(&FIXTURE_TOOLS)?;
    machine::kernel()
}

fn built(machine: &Machine, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["vm", "build", "-o", "json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&machine.good(&all)).unwrap()
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    Command::new("cmp").arg(a).arg(b).status().unwrap().success()
}

#[test]
fn a_small_disk_is_reproducible_and_reports_how_its_workload_ended() {
    let kernel = need!(bootable());
    let machine = Machine::new();
    let root = busybox().display().to_string();
    let workload = "trap 'echo asked to stop; exit 0' TERM; echo \"hello from $(id -u):$PWD:$A\"; while :; do sleep 1 & wait $!; done";
    let arguments = |out: &str| {
        [
            "--from",
            &root,
            "--owner",
            "root",
            "-O",
            out,
            "--env",
            "A=x y;$z",
            "--workdir",
            "/srv/it",
            "--user",
            "nobody",
            "--",
            "/bin/sh",
            "-c",
            workload,
        ]
        .map(str::to_owned)
    };
    let build = |out: &str| {
        let arguments = arguments(out);
        built(&machine, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (first, second) = (build("a.qcow2"), build("b.qcow2"));
    assert_eq!(first["digest"], second["digest"]);
    assert!(same_bytes(&machine.path("a.qcow2"), &machine.path("b.qcow2")));
    let check = Command::new("qemu-img").args(["check", "-q"]).arg(machine.path("a.qcow2")).status().unwrap();
    assert!(check.success());
    machine.good(&["image", "inspect", "a.qcow2", "--verify"]);
    let guest = Guest::boot(&machine, "a.qcow2", &kernel, &[9100, 25183], &[]);
    guest.prints("hello from 65534:/srv/it:x y;$z");
    guest.until("CPU", || {
        guest.http(25183, "/cpu").and_then(|text| if text == "2000" { Ok(()) } else { Err(text) })
    });
    guest.press_power_button();
    let console = guest.ends();
    assert!(console.contains("asked to stop"), "{console}");
    // Reading the disk changed nothing in it.
    assert!(same_bytes(&machine.path("a.qcow2"), &machine.path("b.qcow2")));
}

#[test]
fn fragments_are_carried_out_by_buildah() {
    need!(needs::root());
    need!(needs::programs(&["buildah", "crun", "debugfs"]));
    need!(needs::programs(&FIXTURE_TOOLS));
    let machine = Machine::new();
    machine.write("here/motd", "welcome\n");
    let spec = "commands:\n  - {name: c, user: root, sysvInitAction: once, shell: 'true'}\n\
                files:\n  - {filename: motd, hostPath: motd}\n  - {filename: made, content: abc}\n\
                merge: |\n  ARG WHO\n  COPY motd made /etc/\n  RUN echo \"made for $WHO\" > /etc/who && chown 12:34 /etc/who\n  ENV B=2\n  CMD [\"/bin/sleep\", \"9\"]\n";
    machine.write("here/image.yaml", spec);
    let root = busybox().display().to_string();
    let arguments = [
        "--from",
        &root,
        "-f",
        "here/image.yaml",
        "--build-arg",
        "WHO=you",
        "-O",
        "a.raw",
        "--format",
        "raw",
    ];
    let first = built(&machine, &arguments);
    let second = built(&machine, &arguments);
    assert_eq!(first["digest"], second["digest"]);
    let inspected: Value =
        serde_json::from_str(&machine.good(&["image", "inspect", "a.raw", "-o", "json"])).unwrap();
    assert_eq!(inspected["config"]["process"]["cmd"], json!(["/bin/sleep", "9"]));
    assert!(inspected["config"]["process"]["env"].as_array().unwrap().contains(&json!("B=2")));
    let read = |path: &str| {
        let output =
            Command::new("debugfs").args(["-R", &format!("cat {path}")]).arg(machine.path("a.raw")).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(
        (read("/etc/motd"), read("/etc/made"), read("/etc/who")),
        ("welcome\n".into(), "abc".into(), "made for you\n".into())
    );
    machine.write("here/bad.yaml", "merge: |\n  RUN echo because; exit 7\n");
    let (code, text) = machine.bad(&["vm", "build", "--from", &root, "-f", "here/bad.yaml", "-O", "b.raw"]);
    assert!(code == 1 && text.contains("buildah build failed") && text.contains("exit 7"), "{text}");
    assert_eq!(machine.files(), ["a.raw", "here"]);
}

#[test]
fn a_dockerfile_is_built_by_buildah() {
    need!(needs::root());
    need!(needs::programs(&["buildah", "crun", "debugfs"]));
    need!(needs::programs(&FIXTURE_TOOLS));
    let machine = Machine::new();
    let root = busybox().display().to_string();
    let copied = Command::new("cp").args(["-a", &root]).arg(machine.path("root")).status().unwrap();
    assert!(copied.success());
    machine.write(
        "Dockerfile",
        "FROM scratch AS base\nCOPY root/ /\nFROM base\nARG WHO=me\nUSER 12:34\nWORKDIR /tmp\n\
         RUN echo \"made for $WHO\" > /tmp/who\nENV B=2\nEXPOSE 80\nCMD [\"/bin/sleep\", \"9\"]\n",
    );
    let arguments = ["--from", "Dockerfile", "--build-arg", "WHO=you", "-O", "a.raw", "--format", "raw"];
    let first = built(&machine, &arguments);
    assert_eq!(first["digest"], built(&machine, &arguments)["digest"]);
    let inspected: Value =
        serde_json::from_str(&machine.good(&["image", "inspect", "a.raw", "-o", "json"])).unwrap();
    let process = &inspected["config"]["process"];
    assert_eq!((&process["cmd"], &process["user"]), (&json!(["/bin/sleep", "9"]), &json!("12:34")));
    let output = Command::new("debugfs").args(["-R", "cat /tmp/who"]).arg(machine.path("a.raw")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "made for you\n");
    machine.write("bad/Dockerfile", "FROM scratch\nCOPY missing /\n");
    let (code, text) = machine.bad(&["vm", "build", "--from", "bad", "-O", "b.raw"]);
    assert!(code == 1 && text.contains("Dockerfile: buildah build failed"), "{text}");
    assert_eq!(machine.files(), ["Dockerfile", "a.raw", "bad", "root"]);
}

/// PostgreSQL in a registry, as an image like any other.
struct Database {
    registry: Registry,
    layout: PathBuf,
    _files: tempfile::TempDir,
}

fn database() -> Need<Database> {
    needs::root()?;
    needs::programs(&machine::POSTGRES_TOOLS)?;
    needs::programs(&["docker-registry", "skopeo", "ssh", "ssh-keygen"])?;
    let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let layout_path = files.path().join("layout");
    let config = json!({
        "User": "postgres", "StopSignal": "SIGINT", "WorkingDir": "/var/lib/postgresql",
        "Env": ["PATH=/usr/lib/postgresql/17/bin:/usr/local/bin:/usr/bin:/bin", "GREETING=it's \"$HOME\""],
        "Entrypoint": ["postgres"],
        "Cmd": ["-D", "/var/lib/postgresql/17/main", "-c", "config_file=/etc/postgresql/17/main/postgresql.conf"],
    });
    layout(&machine::postgres(), "amd64", &config, &layout_path);
    let registry = Registry::start();
    registry.receive(&layout_path, "library/postgres:17");
    Ok(Database { registry, layout: layout_path, _files: files })
}

#[test]
fn postgres_goes_from_a_registry_into_a_vm_and_back() {
    let kernel = need!(bootable());
    let database = need!(database());
    let machine = Machine::new();
    let key = machine.path("key");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    let spec = machine::repository().join("examples/postgres/image.yaml").display().to_string();
    let from = database.registry.name("library/postgres:17");
    let name = database.registry.name("vm/postgres:17");
    let first = built(
        &machine,
        &["--from", &from, "-f", &spec, "-O", "pg.qcow2", "--ssh-key", "key.pub", "--sbom", "sbom.json"],
    );
    let second = built(
        &machine,
        &["--from", &from, "-f", &spec, "-O", "pg2.qcow2", "--ssh-key", "key.pub", "-t", &name, "--push"],
    );
    assert_eq!(first["digest"], second["digest"]);
    assert!(same_bytes(&machine.path("pg.qcow2"), &machine.path("pg2.qcow2")));
    let sbom: Value = serde_json::from_slice(&std::fs::read(machine.path("sbom.json")).unwrap()).unwrap();
    let packages = sbom["packages"].as_array().unwrap();
    assert!(packages.iter().any(|package| package["name"] == "postgresql-17"));
    // Back from the registry, by us and by a tool that is not ours.
    let other = Machine::new();
    other.good(&["image", "export", &name, "-O", "back.qcow2"]);
    assert!(same_bytes(&machine.path("pg.qcow2"), &other.path("back.qcow2")));
    let inspected = Command::new("skopeo")
        .args(["inspect", "--tls-verify=false"])
        .arg(format!("docker://{name}"))
        .output()
        .unwrap();
    let inspected: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(Some(inspected["Digest"].as_str().unwrap()), second["imageDigest"].as_str());
    // Without the registry, the cache is enough; from the layout the disk is the same but for the name of its source.
    drop(database.registry);
    let digest = first["source"].as_str().unwrap();
    built(&machine, &["--from", digest, "-f", &spec, "-O", "cached.qcow2", "--ssh-key", "key.pub"]);
    let layout = format!("oci:{}:image", database.layout.display());
    assert_eq!(
        built(&machine, &["--from", &layout, "-O", "other.qcow2"])["size"].as_u64(),
        first["size"].as_u64()
    );
    serves(&machine, &kernel, &key);
}

/// Boots the disk and uses everything in it.
fn serves(machine: &Machine, kernel: &str, key: &Path) {
    let guest = Guest::boot(machine, "pg.qcow2", kernel, &[22, 5432, 9100, 25183], &[]);
    let port = guest.port(5432).to_string();
    let sql = |query: &str| {
        let output = Command::new("psql")
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-Atc", query])
            .env("PGCONNECT_TIMEOUT", "60")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    assert_eq!(guest.until("a query", || sql("select 6 * 7")), "42");
    sql("create table t as select generate_series(1, 1000) as n").unwrap();
    let ssh_port = guest.port(22).to_string();
    let ssh = |command: &str| {
        let output = Command::new("ssh")
            .args([
                "-p",
                &ssh_port,
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "BatchMode=yes",
            ])
            .args(["-o", "LogLevel=ERROR", "-i"])
            .arg(key)
            .args(["root@127.0.0.1", command])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, out, err) = guest.until("ssh", || {
        match ssh("id -un; tr '\\0' '\\n' < /proc/$(pgrep -o -x postgres)/environ | grep GREETING; exit 7") {
            answer @ (Some(7), ..) => Ok(answer),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!((code, out.as_str()), (Some(7), "root\nGREETING=it's \"$HOME\""), "{err}");
    check_metrics(&guest);
    assert_eq!(guest.until("CPU", || guest.http(25183, "/cpu")), "2000");
    guest.press_power_button();
    let console = guest.ends();
    let order = [
        "database system is ready to accept connections",
        "received fast shutdown request",
        "database system is shut down",
    ];
    let places: Vec<Option<usize>> = order.iter().map(|text| console.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in\n{console}");
}

/// Metrics under the names that the agent reads, in a form that Prometheus' own parser takes.
fn check_metrics(guest: &Guest) {
    let metrics = guest.until("metrics", || guest.http(9100, "/metrics"));
    for name in
        ["host_cpu_seconds_total", "host_load1", "host_memory_total_bytes", "host_memory_available_bytes"]
    {
        assert!(metrics.contains(name), "no {name} in\n{metrics}");
    }
    let mut tool = Command::new(promtool())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let judged = tool.wait_with_output().unwrap();
    // 3: it reads them all and would name some otherwise; 1: it cannot read them.
    assert!(matches!(judged.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&judged.stderr));
}

#[test]
fn the_flags_of_the_older_tool_make_an_image_that_its_init_container_can_use() {
    need!(needs::root());
    need!(needs::programs(&FIXTURE_TOOLS));
    let machine = Machine::new();
    let from = format!("dir:{}", busybox().display());
    let output = Command::new(machine::programs().join("vm-builder"))
        .args(["-src", &from, "-dst", "registry.example/vm:1", "-size", "256M", "-file", "x.qcow2", "-quiet"])
        .args(["-target-arch", "linux/amd64", "-daemon-image", "unused"])
        .env_clear()
        .env("HOME", machine.path("."))
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(machine.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"registry.example/vm:1\n");
    let list: Value = serde_json::from_str(&machine.good(&["image", "list", "-o", "json"])).unwrap();
    assert_eq!(list["items"][0]["reference"], "registry.example/vm:1");
    machine.good(&["image", "export", "registry.example/vm:1", "-O", "y.qcow2"]);
    assert!(same_bytes(&machine.path("x.qcow2"), &machine.path("y.qcow2")));
    // What the older system's init container runs in the image, with nothing but the image.
    let blobs = machine.path(".local/share/neonvm/images/blobs/sha256");
    let sizes = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path());
    let layer = sizes.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let root = machine.path("root");
    std::fs::create_dir_all(root.join("vm/images")).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&layer).arg("-C").arg(&root).status().unwrap().success());
    let script = "mv /disk.qcow2 /vm/images/rootdisk.qcow2 && chown 36:34 /vm/images/rootdisk.qcow2";
    let moved = Command::new("chroot")
        .arg(&root)
        .args(["sh", "-c", script])
        .env("PATH", "/bin:/usr/sbin:/usr/bin")
        .status();
    assert!(moved.unwrap().success());
    let there = std::fs::metadata(root.join("vm/images/rootdisk.qcow2")).unwrap();
    assert_eq!(
        (std::os::unix::fs::MetadataExt::uid(&there), std::os::unix::fs::MetadataExt::gid(&there)),
        (36, 34)
    );
    machine.good(&["image", "remove", "registry.example/vm:1"]);
    machine.good(&["image", "prune"]);
    assert_eq!(std::fs::read_dir(&blobs).unwrap().count(), 0);
}

#[test]
fn commands_run_in_their_order_and_what_runs_once_may_leave_a_daemon() {
    let kernel = need!(bootable());
    let machine = Machine::new();
    let command = |name: &str, action: &str, shell: &str| {
        format!("  - {{name: {name}, user: root, sysvInitAction: {action}, shell: '{shell}'}}\n")
    };
    let mut spec = "commands:\n".to_owned();
    for turn in 1..=6 {
        spec.push_str(&command(&format!("s{turn}"), "sysinit", &format!("printf {turn} >> /tmp/order")));
    }
    spec.push_str(&command("w", "wait", "sleep 1; printf w >> /tmp/order"));
    spec.push_str(&command("o", "once", "(while :; do touch /tmp/alive; sleep 1; done) & exit 0"));
    machine.write("image.yaml", spec);
    let root = busybox().display().to_string();
    let workload = "echo order $(cat /tmp/order); sleep 3; rm -f /tmp/alive; while ! [ -e /tmp/alive ]; do sleep 1; done; echo still alive; sleep 1000";
    let arguments = [
        "--from",
        &root,
        "--owner",
        "root",
        "-f",
        "image.yaml",
        "-O",
        "a.qcow2",
        "--",
        "/bin/sh",
        "-c",
        workload,
    ];
    built(&machine, &arguments);
    let guest = Guest::boot(&machine, "a.qcow2", &kernel, &[], &[]);
    guest.prints("order 123456w");
    guest.prints("still alive");
}
