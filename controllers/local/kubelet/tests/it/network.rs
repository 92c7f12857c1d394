//! Nodes and pods in network namespaces. Needs root.

use neonvm_test_support::{need, needs};
use std::process::Command;

use neonvm_kubelet::Network;
use serde_json::json;

use crate::support::{Cluster, content, eventually};

fn words(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Everything on the host that carries the cluster's name.
fn traces(id: &str) -> Vec<String> {
    let hash = neonvm_kubelet::naming::cluster_hash(id);
    let all = [
        words("ip", &["netns"]),
        words("ip", &["-o", "link"]),
        words("nft", &["list", "tables"]),
        words("ip", &["route"]),
    ];
    let mut found: Vec<String> = all
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains(&hash))
        .map(str::to_owned)
        .collect();
    let groups = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    found.extend(
        groups
            .iter()
            .map(|root| format!("{root}/neonvm-{hash}"))
            .filter(|path| std::path::Path::new(path).exists()),
    );
    found
}

const IDLE: &str =
    "trap 'exit 0' TERM; cat /etc/hosts > $NEONVM_ROOT/out/hosts; while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_two_nodes_reach_each_other_and_leave_nothing() {
    need!(needs::network_namespaces());
    let mut cluster = Cluster::start().await;
    for index in 1..=2_u8 {
        let network = Network::Namespaces(cluster.addresses(index));
        cluster.add_node(cluster.config(&format!("n{index}"), network)).await;
    }
    let one = cluster.create("n1", "one", IDLE, &json!({})).await;
    // Answers each connection with a greeting.
    let script = "exec python3 -c 'import socket\ns=socket.create_server((\"0.0.0.0\",7777))\nwhile True:\n c,a=s.accept(); c.sendall(a[0].encode()); c.close()'";
    cluster.create("n2", "two", script, &json!({})).await;
    let (first, second) = (cluster.ready("one").await, cluster.ready("two").await);
    let ip = |pod: &serde_json::Value| pod["status"]["podIP"].as_str().unwrap().to_owned();
    let (from, to) = (ip(&first), ip(&second));
    let hosts = content(&cluster.out("n1", &one).join("hosts"), |text| text.contains("guest-vm")).await;
    assert!(
        hosts.contains(&format!("{from}\tone")) && hosts.contains("169.254.254.254\tguest-vm"),
        "{hosts}"
    );
    let pods = cluster.pods();
    let exec = async |script: String| {
        let parameters = kube::api::AttachParams::default().stderr(false);
        let mut process = pods.exec("one", ["sh", "-c", &script], &parameters).await.ok()?;
        let mut output = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut process.stdout().unwrap(), &mut output).await.unwrap();
        Some(output)
    };
    let ask = format!(
        "python3 -c 'import socket; print(socket.create_connection((\"{to}\",7777),3).recv(99).decode())' 2>&1"
    );
    let answer = eventually("the answer of the other node", || async {
        exec(ask.clone()).await.filter(|text| text.trim() == from)
    });
    answer.await;
    let ssh = exec("cat /etc/ssh/ssh_config".into()).await.unwrap();
    assert!(ssh.contains("Host guest-vm") && ssh.contains("IdentityFile /mnt/ssh/id_ed25519"), "{ssh}");
    assert!(exec("cat /etc/hosts".into()).await.unwrap().contains("guest-vm"));
    // The host reaches pods as well, and ports are forwarded into the pod's namespace.
    let mut forwarder = cluster.pods().portforward("two", &[7777]).await.unwrap();
    let mut text = String::new();
    let mut stream = forwarder.take_stream(7777).unwrap();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text).await.unwrap();
    assert_eq!(text, "127.0.0.1");

    // A node that was killed finds its pod; what a killed set-up left behind is swept.
    let hash = neonvm_kubelet::naming::pod_namespace_prefix(&cluster.id, "n1");
    words("ip", &["netns", "add", &format!("{hash}deadbeef")]);
    cluster.kill_node("n1");
    let network = Network::Namespaces(cluster.addresses(1));
    cluster.add_node(cluster.config("n1", network)).await;
    eventually("the sweep", || async { (!words("ip", &["netns"]).contains("deadbeef")).then_some(()) }).await;
    eventually("the answer after the restart", || async {
        exec(ask.clone()).await.filter(|text| text.trim() == from)
    })
    .await;
    cluster.delete("one").await;
    let own = neonvm_kubelet::naming::pod_namespace(&cluster.id, "n1", one.metadata.uid.as_deref().unwrap());
    assert!(!words("ip", &["netns"]).contains(&own));
    let id = cluster.id.clone();
    assert!(!traces(&id).is_empty());
    drop(cluster);
    assert_eq!(traces(&id), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_use_are_refused() {
    need!(needs::network_namespaces());
    let cluster = Cluster::start().await;
    let mut network = cluster.addresses(1);
    network.underlay = "127.0.0.0/24".parse().unwrap();
    network.address = "127.0.0.5".parse().unwrap();
    let config = cluster.config("n1", Network::Namespaces(network));
    let error = neonvm_kubelet::run(config, std::future::pending()).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.0/24 are in use"), "{error}");
    assert_eq!(traces(&cluster.id), Vec::<String>::new());
}

/// A pod gets the interface that Multus would make, on the overlay's bridge of its node; another network is refused by name.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_joined_to_the_overlay() {
    need!(needs::network_namespaces());
    let mut cluster = Cluster::start().await;
    let network = Network::Namespaces(cluster.addresses(1));
    cluster.add_node(cluster.config("n1", network)).await;
    let with =
        |value: &str| json!({ "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": value } } });
    let pod = cluster.create("n1", "on", IDLE, &with("neonvm-system/neonvm-overlay-for-vms@net1")).await;
    cluster.create("n1", "off", IDLE, &with("default/other@net1")).await;
    cluster.wait("on", "the start", |pod| pod["status"]["phase"] == "Running").await;
    cluster.wait("off", "the refusal", |pod| pod.to_string().contains("neonvm-overlay-for-vms only")).await;
    let own = neonvm_kubelet::naming::node_namespace(&cluster.id, "n1");
    let inner =
        neonvm_kubelet::naming::pod_namespace(&cluster.id, "n1", pod.metadata.uid.as_deref().unwrap());
    let link = words("ip", &["-n", &inner, "-o", "link", "show", "dev", "net1"]);
    assert!(link.contains("mtu 1450") && link.contains("LOWER_UP"), "{link}");
    let ports = || words("ip", &["-n", &own, "-o", "link", "show", "master", "neon-br0"]);
    assert_eq!(ports().lines().count(), 1, "{}", ports());
    cluster.delete("on").await;
    assert_eq!(ports(), "");
}
