//! What `kubectl` shows, does and refuses.
//!
//! Versions 1.28 and later are accepted: they validate files with OpenAPI v3 (since 1.27) and evict with `policy/v1` (since 1.22),
//! which are what the API server serves. That of Debian 12 is 1.20. `kubectl exec` needs 1.31, the first version that uses
//! WebSockets; nodes serve no SPDY.

use std::process::{Command, Stdio};

use neonvm_test_support::{need, needs};

use crate::cluster::{Cluster, possible, until};
use crate::draining;
use crate::machine;
use crate::observe::node;

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.path(""));
    command.stdin(Stdio::null());
    command
}

/// Standard output of `kubectl`, which must succeed.
fn good(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = kubectl(cluster, arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}\n{}", cluster.logs());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn kubectl_behaves_as_documented() {
    need!(possible());
    need!(needs::kubectl(28));
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("web", &[]);
    // It runs before its size is reported.
    cluster.becomes("web", "settled", |vm| {
        vm["status"]["phase"] == "Running"
            && vm["status"]["cpus"] == 1
            && vm["status"]["memorySize"] == "256Mi"
    });
    let wide = good(&cluster, &["get", "neonvm", "-o", "wide"]);
    let mut lines = wide.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(
        head,
        [
            "NAME",
            "CPUS",
            "MEMORY",
            "POD",
            "EXTRAIP",
            "STATUS",
            "RESTARTS",
            "AGE",
            "REASON",
            "NODE",
            "IMAGE",
            "CPUSCALINGMODE",
            "TARGETARCHITECTURE",
        ]
    );
    let row = lines.next().unwrap();
    assert_eq!((row[0], row[1], row[2], row[4], row[5]), ("web", "1", "256Mi", "Running", "0"));
    for name in ["vm", "virtualmachines", "neonvm"] {
        assert!(good(&cluster, &["get", name]).contains("web"), "{name}");
    }
    let words = || good(&cluster, &["describe", "neonvm", "web"]);
    for word in ["Phase:", "Running", "Ready", "Created", "the guest answers"] {
        until(|| words().contains(word), || format!("{word} is not in\n{}", words()));
    }
    // Bounds hold for every client.
    let patch = r#"[{"op":"replace","path":"/spec/guest/cpus/use","value":9}]"#;
    let refused =
        kubectl(&cluster, &["patch", "neonvm", "web", "--type=json", "-p", patch]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("cpus.use") && text.contains("above max 2"), "{text}");
    assert_eq!(
        good(&cluster, &["wait", "neonvm/web", "--for=condition=Available", "--timeout=170s"]).trim(),
        "virtualmachine.vm.neon.tech/web condition met"
    );
    let pod = cluster.pod("web");
    until(|| good(&cluster, &["logs", &pod]).contains("guest| up"), || good(&cluster, &["logs", &pod]));
    good(&cluster, &["delete", "neonvm", "web", "--timeout=170s"]);
    // Its pod has ended by then, and follows it, as all that it owns does.
    cluster.is_emptied();
    // The commands of neonctl about what is not there.
    let (code, text) = cluster.bad(&["vm", "describe", "wbe"]);
    assert!(code == 3 && text.contains("not found in namespace"), "{text}");
    cluster.down();
}

#[test]
fn kubectl_runs_commands_in_the_container() {
    need!(possible());
    need!(needs::kubectl(31));
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("web", &[]);
    let pod = cluster.pod("web");
    assert_eq!(
        good(&cluster, &["exec", &pod, "--", "ssh", "guest-vm", "echo in the guest"]),
        "in the guest\n"
    );
    let failed = kubectl(&cluster, &["exec", &pod, "--", "sh", "-c", "exit 3"]).status().unwrap();
    assert_eq!(failed.code(), Some(3));
    cluster.down();
}

#[test]
fn kubectl_drains_a_node_with_a_vm() {
    need!(possible());
    need!(needs::kubectl(28));
    let (cluster, before) = draining::prepare(&["m".to_owned()]);
    let drain = ["drain", "n1", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=600s"];
    let output = kubectl(&cluster, &drain).output().unwrap();
    let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{words}\n{}", cluster.logs());
    assert!(words.contains("will retry") && words.contains("moves the VM of pod"), "{words}");
    draining::are_on_the_second_node(&cluster, &before);
    assert_eq!(node(&cluster, "m"), "n2");
    cluster.down();
}

#[test]
fn kubectl_applies_samples_once() {
    need!(possible());
    need!(needs::kubectl(28));
    let cluster = Cluster::with(&["--nodes", "0"]);
    let samples = machine::repository().join("examples/podautoscaler").display().to_string();
    let created = good(&cluster, &["apply", "-f", &samples]);
    let all_are =
        |text: &str, end: &str| text.lines().count() > 5 && text.lines().all(|line| line.ends_with(end));
    assert!(all_are(&created, " created"), "{created}");
    // The same once more is no change, however numbers are spelled.
    let again = good(&cluster, &["apply", "-f", &samples]);
    assert_eq!(again.lines().count(), created.lines().count(), "{again}");
    let generations =
        good(&cluster, &["get", "podautoscalers", "-o", "jsonpath={.items[*].metadata.generation}"]);
    assert!(generations.split_whitespace().all(|generation| generation == "1"), "{generations}");
    good(&cluster, &["delete", "-f", &samples, "--timeout=170s"]);
    cluster.down();
}
