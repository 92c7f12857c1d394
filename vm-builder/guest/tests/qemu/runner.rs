//! Boots as the two kinds of runners request them: with shell files on a plain volume, and with one JSON document.

use neonvm_test_support::{Need, need, needs};
use std::path::{Path, PathBuf};
use std::process::Command;

use neonvm_types::guest::{Console, ImageConfig, Process, ReportKind};

use crate::lab::{lab, run};
use crate::machine::{Disk, Machine, Plan};

const SSH: u16 = 22;
const DAEMON: u16 = 25183;

pub(crate) fn key(directory: &Path) -> Need<(PathBuf, String)> {
    needs::programs(&["ssh", "ssh-keygen"])?;
    let path = directory.join("key");
    run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path)).unwrap();
    let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    Ok((path, public))
}

fn image(cmd: &[&str]) -> ImageConfig {
    let cmd = cmd.iter().map(|word| (*word).to_owned()).collect();
    let process = Process { cmd, stop_signal: "SIGINT".into(), ..Process::default() };
    ImageConfig { process, ..ImageConfig::default() }
}

/// Runs a command that must succeed.
pub(crate) fn ok(machine: &mut Machine, key: &Path, text: &str) -> String {
    let (output, status) = machine.ssh(key, text);
    assert_eq!(status, 0, "{text}: {output}");
    output
}

fn no_failures(machine: &Machine) {
    let failed = |kind: &ReportKind| matches!(kind, ReportKind::Failure { .. });
    let failures: Vec<_> = machine.reports().into_iter().filter(|report| failed(&report.kind)).collect();
    assert!(failures.is_empty(), "{failures:?}");
}

const MOUNTS: &str = "\
set -euo pipefail
/neonvm/bin/mkdir -p /mnt/ssh
/neonvm/bin/mount  -t iso9660 -o ro,mode=0644 $(/neonvm/bin/blkid -L ssh-authorized-keys) /mnt/ssh
/neonvm/bin/sh /neonvm/runtime/resize-swap-internal.sh 16777216
/neonvm/bin/mkdir -p /var/db
/neonvm/bin/mount  $(/neonvm/bin/blkid -L data) /var/db
/neonvm/bin/chmod 0777 /var/db
/neonvm/bin/mkdir -p /var/limited
tune2fs -Q prjquota $(/neonvm/bin/blkid -L limited)
tune2fs -E mount_opts=prjquota $(/neonvm/bin/blkid -L limited)
/neonvm/bin/mount -o discard $(/neonvm/bin/blkid -L limited) /var/limited
/neonvm/bin/chmod 0777 /var/limited
/neonvm/bin/mkdir -p /etc/settings
/neonvm/bin/mount -t iso9660 -o ro,mode=0644 $(/neonvm/bin/blkid -L settings) /etc/settings
/neonvm/bin/mkdir -p /cache
/neonvm/bin/chmod 0777 /cache
/neonvm/bin/mount -t tmpfs -o size=1048576 settings /cache
/neonvm/bin/mount -o remount,size=8388608 /dev/shm
";

#[test]
fn the_contract_of_older_runners_is_kept() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = need!(key(directory.path()));
    let runtime = vec![
        ("command.sh", b"/workload".to_vec()),
        ("args.sh", b"serve 'two words'".to_vec()),
        ("env.sh", b"export GREETING='it'\\''s me'\nexport EMPTY=\n".to_vec()),
        ("sysctl.conf", b"kernel.core_pattern=core\nkernel.core_uses_pid=1\nvm.swappiness=7".to_vec()),
        ("mounts.sh", MOUNTS.into()),
        ("resize-swap-internal.sh", b"#!/neonvm/bin/sh\n".to_vec()),
    ];
    let quota: &[&str] = &["-O", "quota,project", "-E", "quotatype=prjquota"];
    let mut plan = Plan {
        image: image(&["/workload", "exit", "1"]),
        command_line: "rw loglevel=6 init=/neonvm/bin/init hostname=vm-pod ip=10.100.128.3:::255.255.0.0:pod:eth1:off",
        disks: vec![
            Disk::Files("vmruntime", runtime),
            Disk::Files("ssh-authorized-keys", vec![("authorized_keys", public.into_bytes())]),
            Disk::Swap("swapdisk"),
            Disk::Empty("data", &[]),
            Disk::Empty("limited", quota),
            Disk::Files("settings", vec![("my_config.yaml", b"a: 1\n".to_vec())]),
        ],
        second_interface: true,
        ports: vec![SSH, DAEMON],
        ..Plan::default()
    };
    plan.image.process.user = "1000:1000".into();
    let mut machine = Machine::start(lab, &plan);
    machine.wait_text("log", "workload serves");
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    no_failures(&machine);
    assert_eq!(ok(&mut machine, &key, "hostname"), "vm-pod\n");
    assert!(ok(&mut machine, &key, "ip").contains("10.100.128.3"));
    assert_eq!(
        ok(&mut machine, &key, "cat /proc/sys/vm/swappiness /etc/settings/my_config.yaml"),
        "7\na: 1\n"
    );
    let mounts = ok(&mut machine, &key, "cat /proc/mounts");
    for expected in [
        " /mnt/ssh iso9660 ro",
        " /etc/settings iso9660 ro",
        " /var/db ext4 rw",
        " /cache tmpfs rw,nosuid,nodev,relatime,size=1024k",
        " /dev/shm tmpfs rw,nosuid,nodev,relatime,size=8192k",
    ] {
        assert!(mounts.contains(expected), "{expected}: {mounts}");
    }
    let limited = mounts.lines().find(|line| line.contains("/var/limited")).unwrap();
    assert!(limited.contains("discard") && limited.contains("prjquota"), "{limited}");
    let pid = machine.reports().iter().find_map(|report| match report.kind {
        ReportKind::WorkloadStarted { pid, .. } => Some(pid),
        _ => None,
    });
    let pid = pid.unwrap();
    let environment = ok(&mut machine, &key, &format!("cat /proc/{pid}/environ /proc/{pid}/cmdline"));
    assert!(
        environment.contains("GREETING=it's me\0") && environment.ends_with("serve\0two words\0"),
        "{environment:?}"
    );
    swap_and_quota(&mut machine, &key, pid);
    machine.ssh_to_end(&key, "/neonvm/bin/reboot");
    let (log, reports, console) = machine.wait_end();
    assert!(log.contains("workload stops"), "{log}");
    let rebooted = |kind: &ReportKind| matches!(kind, ReportKind::ShuttingDown { reason } if reason == "reboot requested");
    assert!(reports.iter().any(|report| rebooted(&report.kind)), "{reports:?}");
    assert!(!console.contains("neonvm: unmount"), "{console}");
}

fn swap_and_quota(machine: &mut Machine, key: &Path, pid: u32) {
    assert!(ok(machine, key, "cat /proc/swaps").contains("16380"));
    let used = ok(machine, key, "/neonvm/bin/resize-swap 8388608 && cat /proc/swaps");
    assert!(used.contains("8188"), "{used}");
    let used = ok(machine, key, "/neonvm/bin/resize-swap 0 && cat /proc/swaps");
    assert_eq!(used.lines().count(), 1, "{used}");
    assert_ne!(machine.ssh(key, "/neonvm/bin/resize-swap 999999999999").1, 0);
    let once = "/neonvm/bin/resize-swap --once 16777216 && /neonvm/bin/resize-swap 0";
    assert_eq!(machine.ssh(key, once).1, 127, "the command must be gone");
    // Limits are not for root: the workload, which is not, tries.
    ok(machine, key, &format!("/neonvm/bin/set-disk-quota 1024 /var/limited && kill -USR2 {pid}"));
    machine.wait_text("log", " KiB: Disk quota exceeded");
    ok(machine, key, &format!("/neonvm/bin/set-disk-quota 0 /var/limited && kill -USR2 {pid}"));
    machine.wait_text("log", "wrote 2048 KiB: Success");
    let (text, status) = machine.ssh(key, "/neonvm/bin/set-disk-quota 1024 /var/db");
    assert!(status != 0 && text.contains("enableQuotas"), "{text}");
}

#[test]
fn a_document_of_the_runner_is_followed_and_processors_come_and_go() {
    let lab = need!(lab());
    let directory = tempfile::tempdir().unwrap();
    let (key, public) = need!(key(directory.path()));
    let document = serde_json::json!({
        "command": ["/workload"], "args": ["serve"], "env": ["GREETING=hello"],
        "restartPolicy": "OnFailure",
        "mounts": [
            {"path": "/data", "kind": "disk", "label": "data"},
            {"path": "/limited", "kind": "disk", "label": "limited", "quota": true},
            {"path": "/etc/settings", "kind": "files", "label": "settings"},
            {"path": "/cache", "kind": "tmpfs", "size": 1_048_576},
            {"path": "/var/tls", "kind": "directory"},
        ],
        "swap": {"label": "swap-1", "size": 16_777_216},
        "sharedMemory": 8_388_608,
        "sshAuthorizedKeys": [public],
        "synchronisedPaths": ["/var/tls"],
    });
    let mut image = image(&["/workload", "exit", "1"]);
    image.console = Some(Console { device: "ttyS1".into() });
    let plan = Plan {
        image,
        command_line: "rw quiet maxcpus=1",
        runtime: vec![("neonvm.json", serde_json::to_vec(&document).unwrap())],
        disks: vec![
            Disk::Empty("data", &[]),
            Disk::Empty("limited", &["-O", "quota,project", "-E", "quotatype=prjquota"]),
            Disk::Files("settings", vec![("a", b"1".to_vec())]),
            Disk::Blank("swap-1"),
        ],
        processors: 4,
        ports: vec![SSH, DAEMON],
        ..Plan::default()
    };
    let mut machine = Machine::start(lab, &plan);
    machine.wait_report("the daemon", |kind| *kind == ReportKind::Ready);
    let workload = |machine: &mut Machine| {
        let (status, text) = machine.http("GET", "/status", "");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["workload"].clone()
    };
    // Nothing starts before the files are there.
    assert_eq!(workload(&mut machine)["state"], "waiting");
    assert_eq!(ok(&mut machine, &key, "hostname"), "vm\n");
    let put = machine.http("PUT", "/files/var/tls", r#"{"tls.crt":{"data":"Y2VydA=="}}"#);
    assert_eq!(put.0, 200, "{}", put.1);
    machine.wait_text("log", "workload serves");
    assert_eq!(ok(&mut machine, &key, "cat /var/tls/tls.crt /etc/settings/a"), "cert1");
    assert!(ok(&mut machine, &key, "cat /proc/swaps").contains("16380"));
    no_failures(&machine);
    processors(&mut machine, &key);
    out_of_memory(&mut machine, &key, workload);
    machine.type_until("\rhostname; echo seen-$HOME\r", "seen-/root");
    machine.ssh_to_end(&key, "/neonvm/bin/poweroff");
    let (log, reports, _) = machine.wait_end();
    assert!(log.contains("workload stops"), "{log}");
    let reason = |kind: &ReportKind| matches!(kind, ReportKind::ShuttingDown { reason } if reason == "power-off requested");
    assert!(reports.iter().any(|report| reason(&report.kind)), "{reports:?}");
}

fn processors(machine: &mut Machine, key: &Path) {
    let online = |machine: &mut Machine| ok(machine, key, "cat /sys/devices/system/cpu/online");
    assert_eq!(machine.http("GET", "/cpu", ""), (200, "1000".into()));
    for (asked, seen, list) in [("3000", "3000", "0-2\n"), ("1500", "2000", "0-1\n"), ("250", "1000", "0\n")]
    {
        assert_eq!(machine.http("PUT", "/cpu", asked).0, 200);
        assert_eq!(machine.http("GET", "/cpu", "").1, seen);
        assert_eq!(online(machine), list);
    }
    assert_eq!(machine.http("PUT", "/cpu", "64000").0, 500);
}

/// The workload takes more memory than its group may have.
fn out_of_memory(machine: &mut Machine, key: &Path, workload: impl Fn(&mut Machine) -> serde_json::Value) {
    let before = workload(machine);
    assert_eq!((before["state"].as_str(), before["restarts"].as_u64()), (Some("running"), Some(0)));
    let group = "/sys/fs/cgroup/workload";
    ok(machine, key, &format!("echo 0 > {group}/memory.swap.max; echo 16777216 > {group}/memory.max"));
    ok(machine, key, &format!("kill -USR1 {}", before["pid"]));
    let killed = ReportKind::WorkloadExited { code: None, signal: Some(9), out_of_memory: true };
    machine.wait_report("the end of the workload", |kind| *kind == killed);
    machine
        .wait_report("its restart", |kind| matches!(kind, ReportKind::WorkloadStarted { restarts: 1, .. }));
    let after = machine.wait("the status", |machine| {
        Some(workload(machine)).filter(|status| status["state"] == "running" && status["restarts"] == 1)
    });
    assert_eq!(after["lastExit"], serde_json::json!({"signal": 9, "outOfMemory": true}));
    assert_ne!(after["pid"], before["pid"]);
}
