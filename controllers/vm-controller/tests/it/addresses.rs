//! Addresses on the overlay network, from the pools to the runner.

use neonvm_test_support::eventually;
use std::time::Duration;

use base64::Engine as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use neonvm_api::IPPool;
use neonvm_api::virtual_machine::Phase;
use neonvm_core_overlay::Settings;
use neonvm_vm_controller::AddressSource;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Cluster, condition};

fn pools(cluster: &Cluster) -> Api<IPPool> {
    Api::namespaced(cluster.client.clone(), "neonvm-system")
}

/// The allocated addresses and their owners: `<pool> <offset> <id>`.
async fn given(cluster: &Cluster) -> Vec<String> {
    let list = pools(cluster).list(&ListParams::default()).await.unwrap().items;
    let of = |pool: IPPool| {
        let name = pool.metadata.name.unwrap();
        pool.spec.allocations.into_iter().map(move |(offset, held)| format!("{name} {offset} {}", held.id))
    };
    list.into_iter().flat_map(of).collect()
}

async fn until_given(cluster: &Cluster, wanted: &[&str]) {
    eventually(&format!("{wanted:?}"), async || {
        let have = given(cluster).await;
        if have == wanted { Ok(()) } else { Err(format!("{have:?}")) }
    })
    .await;
}

async fn gone(cluster: &Cluster, name: &str) {
    cluster.vms().delete(name, &DeleteParams::default()).await.unwrap();
    eventually(&format!("the end of {name}"), async || cluster.vms().get_opt(name).await.unwrap().is_none())
        .await;
}

fn overlay() -> Value {
    json!({"extraNetwork": {"enable": true}})
}

/// vm-extra-network: the address is there before the pod, stays through restarts, and is given back at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_has_one_address_for_life() {
    let mut cluster = Cluster::start().await;
    cluster.config.settings.network_attachment = Some("neonvm-system/neonvm-overlay-for-vms".to_owned());
    let controller = cluster.controller();
    cluster.create("db", overlay()).await;
    cluster.create("plain", json!({"extraNetwork": {"enable": false}})).await;
    let vm = cluster.until_settled("db").await;
    let status = vm.status.unwrap();
    assert_eq!(
        (status.extra_net_ip.as_str(), status.extra_net_mask.as_str()),
        ("10.100.128.0", "255.255.0.0")
    );
    let pod = cluster.pods().get(&status.pod_name).await.unwrap();
    let networks = &pod.metadata.annotations.unwrap()["k8s.v1.cni.cncf.io/networks"];
    assert_eq!(networks, "neonvm-system/neonvm-overlay-for-vms@net1");
    let secret = serde_json::to_value(cluster.secrets().get(&status.pod_name).await.unwrap()).unwrap();
    let texts = secret["data"].as_object().unwrap().values().map(|text| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let texts = texts.collect::<String>();
    assert!(
        texts.contains("10.100.128.0") && texts.contains("255.255.0.0") && texts.contains("net1"),
        "{texts}"
    );
    let db = "neonvm-10.100.128.0-24 0 default/db";
    assert_eq!(given(&cluster).await, [db]);
    assert_eq!(cluster.until_settled("plain").await.status.unwrap().extra_net_ip, "");

    // Another controller, another pod: the same address.
    drop(controller);
    let _controller = cluster.controller();
    cluster.pods().delete(&status.pod_name, &DeleteParams::default()).await.unwrap();
    let again =
        |vm: &neonvm_api::VirtualMachine| vm.status.as_ref().is_some_and(|status| status.restart_count == 1);
    cluster.until("db", "restarted", again).await;
    assert_eq!(cluster.until_settled("db").await.status.unwrap().extra_net_ip, "10.100.128.0");
    assert_eq!(given(&cluster).await, [db]);
    cluster.server.until_quiet().await;

    gone(&cluster, "db").await;
    gone(&cluster, "plain").await;
    assert_eq!(given(&cluster).await, [""; 0]);
    // It rests: the next one gets another.
    cluster.create("next", overlay()).await;
    assert_eq!(cluster.until_settled("next").await.status.unwrap().extra_net_ip, "10.100.128.1");
}

/// What is given to machines that are no more is found; upstream's single pool is read, and objects of others are not.
#[tokio::test(flavor = "multi_thread")]
async fn leaked_addresses_are_swept() {
    let cluster = Cluster::start().await;
    {
        // Makes the namespace.
        let _controller = cluster.controller();
        cluster.create("db", overlay()).await;
        cluster.until_settled("db").await;
    }
    let put = |name: &str, range: &str, allocations: Value| {
        let pool = json!({"apiVersion": "vm.neon.tech/v1", "kind": "IPPool", "metadata": {"name": name},
            "spec": {"range": range, "allocations": allocations}});
        serde_json::from_value::<IPPool>(pool).unwrap()
    };
    let old = json!({"32780": {"id": "default/gone"}, "32781": {"id": "default/elsewhere"}, "40000": {"id": "other/gone"}});
    let stranger = json!({"7": {"id": "default/gone"}});
    for pool in [
        put("neonvm-10.100.0.0-16", "10.100.0.0/16", old),
        put("stranger-10.0.0.0-16", "10.0.0.0/16", stranger),
    ] {
        pools(&cluster).create(&PostParams::default(), &pool).await.unwrap();
    }
    // A VM that upstream's controller has given an address.
    cluster.create("elsewhere", overlay()).await;
    let status = json!({"status": {"extraNetIP": "10.100.128.13", "extraNetMask": "255.255.0.0"}});
    cluster.vms().patch_status("elsewhere", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let _controller = cluster.controller();
    let wanted = [
        "neonvm-10.100.0.0-16 32781 default/elsewhere",
        "neonvm-10.100.128.0-24 0 default/db",
        "stranger-10.0.0.0-16 7 default/gone",
    ];
    until_given(&cluster, &wanted).await;
    assert_eq!(cluster.until_settled("elsewhere").await.status.unwrap().extra_net_ip, "10.100.128.13");
    assert_eq!(given(&cluster).await, wanted);
    // The finalizer is removed by force: the VM does not release its address, and it is released all the same.
    let free = json!({"metadata": {"finalizers": null}});
    cluster.vms().patch("elsewhere", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    cluster.vms().delete("elsewhere", &DeleteParams::default()).await.unwrap();
    until_given(&cluster, &["neonvm-10.100.128.0-24 0 default/db", "stranger-10.0.0.0-16 7 default/gone"])
        .await;
}

/// Without an address there is no pod, and the status has the reason; with one there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_for_an_address() {
    let mut cluster = Cluster::start().await;
    let settings = Settings::parse(r#"{"network_name": "small", "range": "10.7.0.0/30"}"#).unwrap();
    cluster.config.addresses.source = AddressSource::Settings(Box::new(settings));
    cluster.config.addresses.quarantine = Duration::ZERO;
    let _controller = cluster.controller();
    for name in ["a", "b"] {
        cluster.create(name, overlay()).await;
        cluster.until_settled(name).await;
    }
    cluster.create("c", overlay()).await;
    let vm = cluster.until("c", "refused", |vm| condition(vm, "Degraded").1 == "AddressFailed").await;
    let text = "no address is free in 10.7.0.1 to 10.7.0.2: 2 are held, 0 rest after use";
    assert_eq!(condition(&vm, "Degraded").2, text);
    assert!(cluster.pods_of("c").await.is_empty());
    assert_eq!(vm.status.unwrap().phase, Some(Phase::Pending));
    gone(&cluster, "a").await;
    let status = cluster.until_settled("c").await.status.unwrap();
    assert_eq!(
        (status.extra_net_ip.as_str(), status.extra_net_mask.as_str()),
        ("10.7.0.1", "255.255.255.252")
    );
}

/// Missing settings are reported, and VMs without an overlay are not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn missing_settings_hold_up_only_those_who_need_them() {
    let mut cluster = Cluster::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ipam.json");
    cluster.config.addresses.source = AddressSource::File(path.clone());
    let _controller = cluster.controller();
    cluster.create("plain", json!({})).await;
    cluster.create("db", overlay()).await;
    cluster.until_settled("plain").await;
    let waits = |vm: &neonvm_api::VirtualMachine| {
        condition(vm, "Available").2.contains("an address on the overlay")
            && condition(vm, "Degraded").2.contains("ipam.json: No such file")
    };
    cluster.until("db", "waiting", waits).await;
    cluster.create("doomed", overlay()).await;
    cluster.until("doomed", "waiting", waits).await;
    gone(&cluster, "doomed").await;
    assert!(cluster.pods_of("db").await.is_empty());
    let text = r#"{"ipam": {"network_name": "late", "ipRanges": [{"range": "10.9.0.0/24", "range_start": "10.9.0.77"}]}}"#;
    std::fs::write(&path, text).unwrap();
    assert_eq!(cluster.until_settled("db").await.status.unwrap().extra_net_ip, "10.9.0.77");
}

/// Many at a time, while another client writes the same pools: each gets a different address, and pools are written
/// less often than addresses are allocated.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_machines_with_conflicts() {
    const COUNT: usize = 120;
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    let disturbing = tokio::spawn({
        let api = pools(&cluster);
        async move {
            for number in 0..100 {
                let note = json!({"metadata": {"annotations": {"other": number.to_string()}}});
                let _ =
                    api.patch("neonvm-10.100.128.0-24", &PatchParams::default(), &Patch::Merge(&note)).await;
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
    for number in 0..COUNT {
        cluster.create(&format!("vm-{number}"), overlay()).await;
    }
    let mut all = std::collections::BTreeSet::new();
    for number in 0..COUNT {
        let has = |vm: &neonvm_api::VirtualMachine| {
            vm.status.as_ref().is_some_and(|status| !status.extra_net_ip.is_empty())
        };
        let vm = cluster.until(&format!("vm-{number}"), "given an address", has).await;
        all.insert(vm.status.unwrap().extra_net_ip);
    }
    disturbing.abort();
    assert_eq!(all.len(), COUNT);
    assert_eq!(given(&cluster).await.len(), COUNT);
}

/// A pool that is deleted or edited is written again from the VMs, at once, and no address is given to a second VM.
#[tokio::test(flavor = "multi_thread")]
async fn pools_that_others_change_are_rebuilt() {
    let cluster = Cluster::start().await;
    let _controller = cluster.controller();
    for name in ["a", "b"] {
        cluster.create(name, overlay()).await;
        cluster.until_settled(name).await;
    }
    let both = ["neonvm-10.100.128.0-24 0 default/a", "neonvm-10.100.128.0-24 1 default/b"];
    until_given(&cluster, &both).await;
    pools(&cluster).delete("neonvm-10.100.128.0-24", &DeleteParams::default()).await.unwrap();
    until_given(&cluster, &both).await;
    let edit = json!({"spec": {"allocations": {"0": {"id": "default/b"}, "1": null}}});
    let name = "neonvm-10.100.128.0-24";
    pools(&cluster).patch(name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    until_given(&cluster, &both).await;
    // Without a pause: the pool is gone when the next VM wants an address.
    pools(&cluster).delete(name, &DeleteParams::default()).await.unwrap();
    cluster.create("c", overlay()).await;
    assert_eq!(cluster.until_settled("c").await.status.unwrap().extra_net_ip, "10.100.128.2");
    let three = [both[0], both[1], "neonvm-10.100.128.0-24 2 default/c"];
    until_given(&cluster, &three).await;
}

/// Two VMs that have one address, for whatever reason: one keeps it, the other reports it, and a metric counts it.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_two_vms_is_reported() {
    let cluster = Cluster::start().await;
    {
        let _controller = cluster.controller();
        for name in ["a", "b"] {
            cluster.create(name, overlay()).await;
            cluster.until_settled(name).await;
        }
    }
    let status = json!({"status": {"extraNetIP": "10.100.128.0"}});
    cluster.vms().patch_status("b", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let _controller = cluster.controller();
    let is_named = |vm: &neonvm_api::VirtualMachine| {
        let (status, _, message) = condition(vm, "Degraded");
        status == "True" && message.contains("10.100.128.0 is the address of default/a")
    };
    cluster.until("b", "Degraded", is_named).await;
}
