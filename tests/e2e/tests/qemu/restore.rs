//! A backup of a cluster that runs, restored beside it; and a cluster that starts with fewer nodes than it had.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use neonvm_e2e::client::{KubeClient, Resource};
use neonvm_kit::ca::Authority;
use neonvm_test_support::{need, needs};
use serde_json::Value;

use crate::cluster::{Cluster, possible, until_within};

/// The cluster `copy` of the same user; stopped and removed with its owner.
struct Copy<'a> {
    source: &'a Cluster,
}

impl Copy<'_> {
    fn neonctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.source.neonctl(arguments);
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.source.path(".local/state/neonctl/local/copy/kubeconfig")
    }

    fn good(&self, arguments: &[&str]) -> String {
        let output = self.neonctl(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned() + &errors
    }

    fn vm(&self, name: &str) -> Value {
        KubeClient::new(self.kubeconfig()).get(Resource::VM, name).unwrap()
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        let _ = self.neonctl(&["local", "down", "--name", "copy", "--delete", "--timeout", "5s"]).output();
    }
}

fn is_up(vm: &Value) -> bool {
    let conditions = vm.pointer("/status/conditions").and_then(Value::as_array);
    let available = |found: &&Value| found["type"] == "Available" && found["status"] == "True";
    vm["status"]["phase"] == "Running" && conditions.into_iter().flatten().find(available).is_some()
}

/// What must not be the same in two clusters: addresses, keys and pods of a VM, and the range of a node.
fn identity(kubeconfig: &Path, vm: &str) -> Vec<(&'static str, String)> {
    let client = KubeClient::new(kubeconfig.to_owned());
    let system = KubeClient::new(kubeconfig.to_owned()).in_namespace("neonvm-system");
    let object = client.get(Resource::VM, vm).unwrap();
    let node = client.get(Resource::NODE, "n1").unwrap();
    let authority = system.get(Resource::SECRET, "neonvm-internal-ca").unwrap();
    let ssh = object["status"]["sshSecretName"].as_str().unwrap();
    let ssh = client.get(Resource::SECRET, ssh).unwrap();
    [
        ("pod", &object["status"]["podName"]),
        ("address of the pod", &object["status"]["podIP"]),
        ("address on the overlay", &object["status"]["extraNetIP"]),
        ("range of the node", &node["spec"]["podCIDR"]),
        ("address of the node", &node["status"]["addresses"][0]["address"]),
        ("authority", &authority["data"]["tls.key"]),
        ("SSH key", &ssh["data"]["ssh-privatekey"]),
    ]
    .map(|(what, value)| (what, value.as_str().unwrap_or_default().to_owned()))
    .into()
}

/// What a runner responds to a controller whose certificate is signed by the authority of a cluster; 000: it does not.
fn answer(cluster: &Cluster, authority_of: &Path, runner: &str) -> String {
    let system = KubeClient::new(authority_of.to_owned()).in_namespace("neonvm-system");
    let secret = system.get(Resource::SECRET, "neonvm-internal-ca").unwrap();
    let pem = |key: &str| {
        let text = secret["data"][key].as_str().unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
    };
    let authority = Authority::from_pem(&pem("tls.crt"), &pem("tls.key")).unwrap();
    let client = authority.client("neonvm-vm-controller", &["neonvm:controllers"]).unwrap();
    let place = cluster.write("client.pem", client.certificate + &client.key);
    let url = format!("https://{runner}:25183/v1/status");
    let arguments = ["-s", "-k", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}", "--cert", &place, &url];
    let output = Command::new("curl").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";

#[test]
fn a_cluster_restored_beside_its_source_is_a_new_one() {
    need!(possible());
    need!(needs::program("curl"));
    let cluster = Cluster::start();
    cluster.idle();
    cluster.apply(
        "apiVersion: vm.neon.tech/v1\nkind: VirtualMachine\nmetadata: { name: web }\nspec:\n\
         \x20 enableSSH: true\n  extraNetwork: { enable: true }\n  guest:\n\
         \x20   cpus: { min: 1, use: 1, max: 2 }\n    memorySlotSize: 256Mi\n\
         \x20   memorySlots: { min: 1, max: 2, use: 1 }\n    rootDisk: { image: idle:1 }\n",
    );
    cluster.becomes("web", "runs", is_up);
    let boot = cluster.inside("web", BOOT);
    cluster.good(&["local", "backup", "-O", "state.backup"]);
    let before = (cluster.vm("web"), identity(&cluster.kubeconfig(), "web"));

    let copy = Copy { source: &cluster };
    let restored = copy.good(&["local", "restore", "--name", "copy", "state.backup"]);
    assert!(restored.contains("is a new cluster"), "{restored}");
    copy.good(&["local", "up", "--name", "copy", "--accel", "tcg", "--cpus", "2", "--timeout", "120s"]);
    // Not what the source was: nothing of it is waited for.
    until_within(Duration::from_secs(170), || is_up(&copy.vm("web")), || copy.vm("web").to_string());
    let theirs = identity(&copy.kubeconfig(), "web");
    for ((what, own), (_, other)) in before.1.iter().zip(&theirs) {
        assert!(!own.is_empty() && !other.is_empty() && own != other, "{what}: {own:?}, {other:?}");
    }
    // `vm ssh` reaches the guest of its own cluster.
    let inside = copy.good(&["vm", "ssh", "web", "--", BOOT]);
    assert_ne!(inside.trim(), boot.trim());
    // The source refuses the administrator of the copy.
    let kubeconfig = std::fs::read_to_string(copy.kubeconfig()).unwrap();
    let port = |client: &str| {
        let config: Value = serde_json::from_str(client).unwrap();
        config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
    };
    let own = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let crossed = cluster.write("crossed", kubeconfig.replace(&port(&kubeconfig), &port(&own)));
    let refused = cluster.neonctl(&["vm", "list", "--kubeconfig", &crossed]).output().unwrap();
    assert!(!refused.status.success(), "the source takes the keys of the copy");
    // So do its runners.
    let runner = before.0["status"]["podIP"].as_str().unwrap();
    assert_eq!(answer(&cluster, &cluster.kubeconfig(), runner), "200");
    assert_ne!(answer(&cluster, &copy.kubeconfig(), runner), "200");
    // What is done in the copy is not done in the source.
    copy.good(&["vm", "scale", "web", "--cpu", "2", "--timeout", "120s"]);
    copy.good(&["vm", "delete", "web"]);
    drop(copy);
    let after = cluster.vm("web");
    for field in ["podName", "podIP", "extraNetIP", "restartCount", "cpus", "phase"] {
        assert_eq!(after["status"][field], before.0["status"][field], "{field}");
    }
    assert_eq!(cluster.inside("web", BOOT), boot);
    cluster.down();
}

#[test]
fn a_cluster_with_fewer_nodes_runs_the_vms_of_those_that_are_gone_elsewhere() {
    need!(possible());
    let cluster = Cluster::with(&["--nodes", "2"]);
    cluster.idle();
    cluster.cordon("n1");
    cluster.run("far", &["--cpu", "1", "--restart", "Always"]);
    cluster.uncordon("n1");
    let before = cluster.vm("far");
    assert_eq!(before["status"]["node"], "n2");
    cluster.run("still", &["--cpu", "1", "--restart", "Always"]);
    cluster.good(&["vm", "pause", "still"]);
    cluster.good(&["local", "down", "--timeout", "120s"]);
    cluster.good(&["local", "up", "--nodes", "1", "--accel", "tcg", "--cpus", "4", "--timeout", "120s"]);
    let nodes = cluster.list(Resource::NODE);
    assert!(nodes.iter().all(|node| node["metadata"]["name"] == "n1"), "{nodes:?}");
    let after = cluster.becomes("far", "runs on n1", |vm| is_up(vm) && vm["status"]["node"] == "n1");
    assert_ne!(after["status"]["podName"], before["status"]["podName"]);
    // A VM that is paused has its size after a start, too.
    let paused = cluster.becomes("still", "is paused again", |vm| vm["status"]["powerState"] == "Paused");
    assert_eq!(paused["status"]["cpus"], 1, "{}", paused["status"]);
    assert_eq!(paused["status"]["memorySize"], "256Mi", "{}", paused["status"]);
    cluster.down();
}
