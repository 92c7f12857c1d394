//! What others break is repaired, whether the API server is there or not; what was made can be removed.

use neonvm_test_support::need;
use std::time::Duration;

use crate::lab::{Lab, network, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_drifts_is_repaired_also_without_the_api_server() {
    need!(network());
    let lab = Lab::start(&[1, 2]).await;
    let _controllers = [lab.controller(1), lab.controller(2)];
    let b = lab.add_guest("b", 2, "10.100.128.1").await;
    let wanted = ["* n2".to_owned(), format!("{b} n2")];
    lab.until_entries(1, &wanted).await;
    lab.add_guest("a", 1, "10.100.128.0").await;
    lab.until_reached("a", "10.100.128.1", 64).await;
    for broken in [
        "bridge fdb del 00:00:00:00:00:00 dev neon-vxlan0 dst 10.90.0.2 self",
        &format!("bridge fdb del {b} dev neon-vxlan0 master"),
        "bridge link set dev neon-vxlan0 flood on hairpin on",
        "ip link set neon-br0 address 02:00:00:00:00:99",
        "ip link set neon-vxlan0 down",
        "ip link set neon-vxlan0 nomaster",
        "ip link set neon-vxlan0 mtu 1000",
        "ip link set neon-br0 down",
        "ip link del neon-vxlan0",
    ] {
        lab.inside("n1", broken);
        lab.until_entries(1, &wanted).await;
        lab.until_reached("a", "10.100.128.1", 1422).await;
    }
    // A tunnel of another number is none of ours. The controller may be quicker than the process that creates it.
    lab.server.stop();
    let tunnel = "ip link add neon-vxlan0 type vxlan id 7 local 10.90.0.1 dstport 4789 learning";
    until("put in its place", || {
        let _ = lab.try_inside("n1", "ip link del neon-vxlan0");
        lab.try_inside("n1", tunnel).is_ok()
    })
    .await;
    until("ours again", || {
        let shown = lab.try_inside("n1", "ip -d link show neon-vxlan0");
        shown.is_ok_and(|shown| shown.contains("vxlan id 100 "))
    })
    .await;
    lab.until_entries(1, &wanted).await;
    lab.until_reached("a", "10.100.128.1", 64).await;
    // The rules against translation are there, in a separate table.
    let rules = lab.inside("n1", "nft list table ip neonvm_vxlan");
    assert!(rules.contains("ip saddr 10.100.0.0/16 ip daddr 10.100.0.0/16 notrack"), "{rules}");
}

/// W-25: upstream's `-delete` left its chain behind.
#[tokio::test(flavor = "multi_thread")]
async fn w25_delete_leaves_nothing() {
    need!(network());
    let lab = Lab::start(&[1, 2]).await;
    let before = lab.inside("n1", "ip -o link show");
    {
        let _controller = lab.controller(1);
        lab.until_entries(1, &["* n2".into()]).await;
        until("its table", || lab.try_inside("n1", "nft list table ip neonvm_vxlan").is_ok()).await;
    }
    // A comparison that was under way when its controller was stopped may still end.
    let config = lab.config(1);
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split(": ").nth(1)?.to_owned())).collect()
    };
    until("as before", || {
        neonvm_vxlan_controller::delete(&config).unwrap();
        names(&lab.inside("n1", "ip -o link show")) == names(&before)
            && lab.inside("n1", "nft list ruleset").trim().is_empty()
    })
    .await;
    neonvm_vxlan_controller::delete(&config).unwrap();
}

/// Invalid settings are reported, and nothing is created.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_are_refused() {
    need!(network());
    let lab = Lab::start(&[1]).await;
    let mut config = lab.config(1);
    config.vni = 1 << 24;
    let error = neonvm_vxlan_controller::run(config, std::future::pending()).await;
    assert!(error.unwrap_err().to_string().contains("VNI 16777216"));
    let mut config = lab.config(1);
    config.namespace = Some("/run/netns/there-is-none".into());
    config.namespace_wait = Duration::from_millis(100);
    let error = neonvm_vxlan_controller::run(config, std::future::pending()).await;
    assert!(error.unwrap_err().to_string().contains("network namespace"));
}
