//! Stopping, changing, starting and restarting a VM by `neonctl`; files and ports; workloads that do not run.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::Stdio;

use neonvm_test_support::need;

use crate::cluster::{Cluster, kill, possible, until};

/// One VM through its whole life, with a change for each way in which one takes effect.
#[test]
fn a_vm_is_stopped_changed_and_started() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    cluster.good(&[
        "vm", "create", "web", "--image", "idle:1", "--cpu", "0.5..1", "--memory", "256Mi", "--wait",
    ]);
    let first = cluster.pod("web");
    let text = cluster.good(&["vm", "set", "web", "--cpu", "0.25..2", "--env", "A=1"]);
    assert!(text.contains("now: guest.cpus.min; at the next start: guest.cpus.max, guest.env"), "{text}");
    let described = || cluster.good(&["vm", "describe", "web"]);
    until(|| described().contains("ChangePending True (AtNextStart)"), described);
    let (code, text) = cluster.bad(&["vm", "set", "web", "--remove-disk", "none"]);
    assert!(code == 3 && text.contains("no disks"), "{text}");
    // Stopped, it has no pod, and everything changes at once; what waited is still to come.
    cluster.good(&["vm", "stop", "web"]);
    assert!(cluster.good(&["vm", "list"]).contains("Stopped"));
    assert!(cluster.pods_of("web").is_empty());
    // How it went off, by the console's last lines.
    let text = cluster.good(&["vm", "logs", "web", "--previous"]);
    for part in [
        "Stopped in pod ",
        "neonvm: shutting down: power button",
        "neonvm: workload ended by signal 15",
        "Power down",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let text = cluster.good(&["vm", "set", "web", "--disk", "data=16Mi:/data"]);
    assert!(text.contains("now: ") && text.contains("disks"), "{text}");
    cluster.good(&["vm", "start", "web"]);
    let vm = cluster.vm("web");
    assert_eq!(vm["spec"]["guest"]["cpus"]["max"], 2, "{}", vm["spec"]);
    assert_eq!(
        (&vm["status"]["restartCount"], &vm["metadata"]["annotations"]["vm.neon.tech/at-next-start"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert_ne!(cluster.pod("web"), first);
    assert!(cluster.inside("web", "grep ' /data ' /proc/mounts").contains("/data"));
    // A restart without a change, and one that brings a change about.
    let second = cluster.pod("web");
    cluster.good(&["vm", "restart", "web"]);
    assert_ne!(cluster.pod("web"), second);
    cluster.good(&["vm", "set", "web", "--remove-disk", "data", "--restart-now"]);
    assert_eq!(cluster.inside("web", "grep -c ' /data ' /proc/mounts || true").trim(), "0");
    files_and_ports(&cluster);
    cluster.good(&["vm", "delete", "web"]);
    cluster.down();
}

fn files_and_ports(cluster: &Cluster) {
    let file = cluster.write("a:b.txt", "content");
    cluster.good(&["vm", "cp", &file, "web:/tmp/there"]);
    assert_eq!(cluster.inside("web", "cat /tmp/there"), "content");
    // As rsync calls it.
    let text = cluster.good(&[
        "vm",
        "ssh",
        "-l",
        "root",
        "web",
        "echo",
        "--server",
        "-vlogDtpre.iLsfxCIvu",
        ".",
        "/a",
    ]);
    assert_eq!(text, "--server -vlogDtpre.iLsfxCIvu . /a\n");
    let back = cluster.path("back");
    cluster.good(&["vm", "cp", "web:/tmp/there", &back.display().to_string()]);
    assert_eq!(std::fs::read_to_string(back).unwrap(), "content");
    let mut forward =
        cluster.neonctl(&["vm", "port-forward", "web", ":22"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("Forwarding from ").unwrap().split(' ').next().unwrap().to_owned();
    let mut greeting = [0; 4];
    TcpStream::connect(address).unwrap().read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"SSH-");
    kill(i32::try_from(forward.id()).unwrap(), rustix::process::Signal::INT);
    assert!(forward.wait().unwrap().success());
}

/// A command that does not exist fails the creation; one that is killed for want of memory is seen in the list.
#[test]
fn a_workload_that_does_not_run_is_reported() {
    need!(possible());
    let cluster = Cluster::start();
    cluster.idle();
    let create = ["--image", "idle:1", "--cpu", "1", "--memory", "256Mi", "--wait", "--"];
    let line = |name: &'static str, command: &[&'static str]| -> Vec<&'static str> {
        ["vm", "create", name].into_iter().chain(create).chain(command.iter().copied()).collect()
    };
    let (code, text) = cluster.bad(&line("absent", &["/bin/nosuch"]));
    assert!(code == 5 && text.contains("its workload does not") && text.contains("/bin/nosuch"), "{text}");
    assert!(cluster.good(&["vm", "list"]).contains("NotStarted"));
    let _ = cluster.neonctl(&line("hungry", &["/bin/sh", "-c", "sleep 2; tail /dev/zero"])).output().unwrap();
    let listed = || cluster.good(&["vm", "list"]);
    until(|| listed().contains("OutOfMemory"), listed);
    let vm = cluster.becomes("hungry", "counts restarts of its workload", |vm| {
        vm["status"]["workload"]["restarts"].as_u64() > Some(0)
    });
    assert_eq!(vm["status"]["workload"]["outOfMemory"], true, "{}", vm["status"]);
    let events = || cluster.good(&["vm", "history", "hungry"]);
    until(|| events().contains("WorkloadOutOfMemory"), events);
    cluster.good(&["vm", "delete", "absent", "hungry", "-y"]);
    cluster.down();
}
