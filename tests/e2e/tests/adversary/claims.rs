//! What an author writes into objects that services read: annotations, sizes, paths, names of images, the configuration of a runner.

use std::collections::BTreeMap;

use http::Method;
use k8s_openapi::ByteString;
use kube::Client;
use neonvm_api::runner_pod::CONFIG_FILE;
use neonvm_test_support::{eventually, need};
use serde_json::{Value, json};

use crate::attacker::{VMS, client, post, send};
use crate::authority::vm;
use crate::cluster::Cluster;
use crate::home::Home;
use crate::runners::{build_idle, kernel};
use crate::tenant::{NAMESPACE, tenant};

const MERGE: &str = "application/merge-patch+json";

fn vms(name: &str) -> String {
    format!("/apis/vm.neon.tech/v1/namespaces/{NAMESPACE}/virtualmachines{name}")
}

async fn get(who: &Client, path: &str) -> Result<Value, String> {
    send(who, Method::GET, path, "", None).await.map_err(|error| error.to_string())
}

/// The pod of a VM once it has one.
async fn pod_of(who: &Client, vm: &str) -> Value {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=vm.neon.tech/name%3D{vm}");
    eventually(&format!("a pod of {vm}"), async || {
        let all = get(who, &path).await?;
        all["items"][0].is_object().then(|| all["items"][0].clone()).ok_or_else(|| "none yet".to_owned())
    })
    .await
}

/// Findings 2, 5 and 10: a file of the node as an image, a Secret over the runner's files, orders to network plugins and runtimes.
#[tokio::test(flavor = "multi_thread")]
async fn paths_names_and_metadata_of_an_author_go_nowhere_else() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let tenant = tenant(&cluster, &admin).await;
    for image in ["file:///etc/shadow", "FILE:///etc/shadow", "file:/etc/shadow", "file://./state.redb"] {
        let mut evil = vm("evil", &json!({}));
        for pointer in ["/spec/guest/rootDisk/image", "/spec/guest/kernelImage"] {
            evil["spec"]["guest"]["kernelImage"] = json!("k:1");
            *evil.pointer_mut(pointer).unwrap() = json!(image);
            let refused = post(&tenant, &vms(""), &evil).await.unwrap_err().to_string();
            assert!(refused.contains("allow.vm.neon.tech/node-files=true"), "{image}: {refused}");
        }
    }
    for path in ["/../config", "/../../etc", "x", "/..", "/a\n/b", "/", "/var/../../run", "/./a"] {
        let tls = json!({"tls": {"serverName": "db.example", "mountPath": path}});
        let disk = json!({"disks": [{"name": "d", "mountPath": path, "secret": {"secretName": "s"}}]});
        for (spec, field) in [(tls, "spec.tls.mountPath"), (disk, "spec.disks[0].mountPath")] {
            let refused = post(&tenant, &vms(""), &vm("evil", &spec)).await.unwrap_err().to_string();
            assert!(refused.contains(field), "{path:?}: {refused}");
        }
    }
    let orders = [
        "v1.multus-cni.io/default-network",
        "k8s.v1.cni.cncf.io/networks",
        "container.apparmor.security.beta.kubernetes.io/neonvm-runner",
        "cni.projectcalico.org/ipAddrsNoIpam",
        "ovn.kubernetes.io/logical_switch",
        "io.kubernetes.cri-o.Devices",
        "vm.neon.tech/overcommit",
        "vm.neon.tech/runner-version",
    ];
    let all: BTreeMap<&str, &str> = orders.iter().map(|key| (*key, "x")).collect();
    let mut marked = vm("marked", &json!({}));
    marked["metadata"]["annotations"] = json!(all);
    marked["metadata"]["labels"] = json!(all);
    marked["metadata"]["labels"]["team"] = json!("a");
    post(&tenant, &vms(""), &marked).await.unwrap();
    let meta = pod_of(&admin, "marked").await["metadata"].clone();
    assert_eq!(meta["labels"]["team"], "a");
    for key in orders {
        assert!(meta["labels"][key].is_null() && meta["annotations"][key].is_null(), "{key}: {meta}");
    }
}

/// Finding 6: annotations with permits, an upper bound that is never used, and a size that the pod cannot get: none takes room on
/// the node from another tenant, before or after the scheduler starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_not_filled_with_claims() {
    let cluster = Cluster::start(1);
    let admin = client(&cluster).await;
    let tenant = tenant(&cluster, &admin).await;
    let much = r#"{"vCPUs":1000,"mem":"1000Gi"}"#;
    let guest = |max: u32| {
        json!({"guest": {"cpus": {"min": "250m", "max": max, "use": "250m"}, "memorySlotSize": "128Mi",
            "memorySlots": {"min": 1, "max": 400, "use": 1}, "rootDisk": {"image": "127.0.0.1:1/none/such:1"}}})
    };
    let mut noted = vm("noted", &json!({}));
    noted["metadata"]["labels"] = json!({"autoscaling.neon.tech/enabled": "true"});
    noted["metadata"]["annotations"] = json!({
        "internal.autoscaling.neon.tech/resources-approved": much,
        "internal.autoscaling.neon.tech/resources-requested": much,
        "autoscaling.neon.tech/scaling-unit": r#"{"vCPUs":"250m","mem":"1Gi"}"#,
        "vm.neon.tech/usage": r#"{"cpu":"1000","memory":"1000Gi"}"#,
        "vm.neon.tech/overhead": r#"{"cpu":"1000","memory":"1000Gi"}"#,
    });
    let mut large = vm("large", &guest(64));
    large["metadata"]["labels"] = json!({"autoscaling.neon.tech/enabled": "true"});
    for object in [&noted, &large, &vm("wants", &guest(64))] {
        post(&tenant, &vms(""), object).await.unwrap();
    }
    for name in ["noted", "large", "wants"] {
        pod_of(&admin, name).await;
    }
    let change = json!({"spec": {"guest": {"cpus": {"use": 64}, "memorySlots": {"use": 400}}}});
    send(&tenant, Method::PATCH, &vms("/wants"), MERGE, Some(&change)).await.unwrap();
    let placed = async |name: &str| {
        let all = json!({"guest": {"cpus": {"min": 1, "max": 1, "use": 1}, "memorySlotSize": "128Mi",
            "memorySlots": {"min": 1, "max": 2, "use": 1}, "rootDisk": {"image": "127.0.0.1:1/none/such:1"}}});
        post(&admin, VMS, &vm(name, &all)).await.unwrap();
        eventually(&format!("the neighbour {name} on its node"), async || {
            let vm = get(&admin, &format!("{VMS}/{name}")).await?;
            if vm["status"]["node"] == "n1" { Ok(()) } else { Err(vm["status"].to_string()) }
        })
        .await;
    };
    placed("before").await;
    let scheduler = cluster.process("scheduler").pid;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(scheduler).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    // Another one places it: that one is gone.
    placed("after").await;
}

/// Finding 3: a user who can write Secrets gives a VM the address of another one, before its runner reads the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_refuses_a_forged_configuration() {
    let kernel = need!(kernel());
    let cluster = Cluster::in_home(Home::with_kernel(&kernel), 1);
    let admin = client(&cluster).await;
    let mut late = vm("late", &json!({"enableSSH": false, "restartPolicy": "Never"}));
    late["spec"]["guest"]["rootDisk"]["image"] = json!("idle:1");
    post(&admin, VMS, &late).await.unwrap();
    let pod = eventually("a pod that waits for its image", async || {
        let vm = get(&admin, &format!("{VMS}/late")).await?;
        vm["status"]["podName"].as_str().map(str::to_owned).ok_or_else(|| vm["status"].to_string())
    })
    .await;
    let path = format!("/api/v1/namespaces/default/secrets/{pod}");
    let secret = eventually("its configuration", async || get(&admin, &path).await).await;
    let text: ByteString = serde_json::from_value(secret["data"][CONFIG_FILE].clone()).unwrap();
    let mut config: Value = serde_json::from_slice(&text.0).unwrap();
    config["extraNet"] = json!({"interface": "net1", "ip": "10.40.0.1", "mask": "255.255.0.0"});
    config["settings"]["nodeAccess"] = json!(true);
    config["spec"]["initScript"] = json!("touch /tmp/forged");
    let change = json!({"data": {CONFIG_FILE: ByteString(config.to_string().into_bytes())}});
    send(&admin, Method::PATCH, &path, MERGE, Some(&change)).await.unwrap();
    build_idle(&cluster);
    eventually("the refusal, with both digests", async || {
        let vm = get(&admin, &format!("{VMS}/late")).await?;
        let text = vm["status"]["lastExit"]["message"].as_str().unwrap_or_default().to_owned();
        let named = text.contains("is not the configuration with which this pod was made");
        if named { Ok(()) } else { Err(vm["status"].to_string()) }
    })
    .await;
}
