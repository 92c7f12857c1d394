//! What `kubectl` shows and refuses.

use crate::cluster::{Cluster, possible, until};

#[test]
fn kubectl_behaves_as_documented() {
    if !possible("kubectl") {
        return;
    }
    let cluster = Cluster::start();
    cluster.idle();
    cluster.run("web", &[]);
    // It runs before its size is told.
    cluster.becomes("web", "settled", |vm| {
        vm["status"]["phase"] == "Running"
            && vm["status"]["cpus"] == 1
            && vm["status"]["memorySize"] == "256Mi"
    });
    let wide = cluster.kube(&["get", "neonvm", "-o", "wide"]);
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
            "NODE",
            "IMAGE",
            "CPUSCALINGMODE",
            "TARGETARCHITECTURE",
        ]
    );
    let row = lines.next().unwrap();
    assert_eq!((row[0], row[1], row[2], row[4], row[5]), ("web", "1", "256Mi", "Running", "0"));
    for name in ["vm", "virtualmachines", "neonvm"] {
        assert!(cluster.kube(&["get", name]).contains("web"), "{name}");
    }
    let words = || cluster.kube(&["describe", "neonvm", "web"]);
    for word in ["Phase:", "Running", "Ready", "Created", "the guest answers"] {
        until(|| words().contains(word), || format!("{word} is not in\n{}", words()));
    }
    // Bounds hold, whoever asks.
    let patch = r#"[{"op":"replace","path":"/spec/guest/cpus/use","value":9}]"#;
    let refused = cluster.kubectl(&["patch", "neonvm", "web", "--type=json", "-p", patch]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("cpus.use") && text.contains("above max 2"), "{text}");
    assert_eq!(
        cluster.kube(&["wait", "neonvm/web", "--for=condition=Available", "--timeout=170s"]).trim(),
        "virtualmachine.vm.neon.tech/web condition met"
    );
    cluster.kube(&["delete", "neonvm", "web", "--timeout=170s"]);
    // Its pod has ended by then, and follows it, as all that it owns does.
    cluster.is_emptied();
    // The commands of neonctl about what is not there.
    let (code, text) = cluster.bad(&["vm", "describe", "wbe"]);
    assert!(code == 3 && text.contains("not found in namespace"), "{text}");
    cluster.down();
}
