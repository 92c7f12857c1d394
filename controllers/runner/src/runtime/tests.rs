use neonvm_api::merge_patch::merge;
use neonvm_api::virtual_machine::{CpuScalingMode, VirtualMachineSpec};
use serde_json::json;

use super::*;

const OWN: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 254, 253));

pub(crate) fn runner(spec: &serde_json::Value) -> RunnerConfig {
    let mut whole = json!({ "guest": { "cpus": { "min": 1, "max": 4, "use": 2 },
        "memorySlots": { "min": 1, "max": 8, "use": 2 }, "rootDisk": { "image": "img:1" } } });
    merge(&mut whole, spec);
    let spec: VirtualMachineSpec = serde_json::from_value(whole).unwrap();
    RunnerConfig {
        claims: std::collections::BTreeMap::new(),
        namespace: "default".into(),
        name: "vm".into(),
        uid: "5f0c2f3a-7d3e-4f0e-9b1c-5f3d2a1b0c9d".into(),
        pod: "vm-abcde".into(),
        spec,
        cpu_scaling_mode: CpuScalingMode::SysfsScaling,
        extra_net: None,
        receive: None,
        settings: neonvm_api::runner_pod::RunnerSettings::default(),
    }
}

fn network() -> Network {
    Network {
        address: [169, 254, 254, 254].into(),
        prefix: 30,
        gateway: [169, 254, 254, 253].into(),
        name_servers: vec![[10, 96, 0, 10].into()],
        search: vec!["default.svc.cluster.local".into()],
        mtu: Some(1450),
    }
}

fn config(runner: &RunnerConfig, keys: &str, own: IpAddr) -> RuntimeConfig {
    super::config(runner, keys, own, network())
}

#[test]
fn every_field_of_the_machine_reaches_the_guest() {
    let runner = runner(&json!({
        "restartPolicy": "OnFailure",
        "guest": { "command": ["a b", "'c'"], "args": ["d"], "env": [{ "name": "X", "value": "1 2" }],
            "settings": { "sysctl": ["vm.x=1"], "swap": "1Gi" } },
        "disks": [
            { "name": "data", "mountPath": "/data", "emptyDisk": { "size": "1Gi", "discard": true, "enableQuotas": true } },
            { "name": "conf", "mountPath": "/conf", "configMap": { "name": "c" } },
            { "name": "live", "mountPath": "/live", "secret": { "secretName": "s" }, "watch": true },
            { "name": "tmp", "mountPath": "/tmp", "tmpfs": { "size": "64Mi" } },
        ],
        "tls": { "serverName": "x" },
    }));
    let config = config(&runner, "ssh-ed25519 AAAA\n\n", OWN);
    assert_eq!(config.command.as_deref(), Some(["a b".to_owned(), "'c'".into()].as_slice()));
    assert_eq!(config.env, ["X=1 2"]);
    assert_eq!(config.sysctl, ["kernel.core_pattern=core", "kernel.core_uses_pid=1", "vm.x=1"]);
    assert_eq!(config.restart_policy, GuestRestartPolicy::OnFailure);
    assert_eq!(config.swap, Some(Swap { label: "swapdisk".into(), size: Bytes::gib(1), skip_swapon: false }));
    let mut later = runner.clone();
    later.spec.guest.settings =
        serde_json::from_value(json!({ "swapInfo": { "size": "1Gi", "skipSwapon": true } })).ok();
    let later = super::config(&later, "", OWN, network());
    assert_eq!(later.swap, Some(Swap { label: "swapdisk".into(), size: Bytes::gib(1), skip_swapon: true }));
    assert_eq!(config.shared_memory, Some(Bytes::gib(1)), "more swap than half of the least memory");
    assert_eq!(config.synchronised_paths, ["/live", "/var/tls"]);
    assert_eq!(config.ssh_authorized_keys, ["ssh-ed25519 AAAA"]);
    // Limits follow the maximum of eight slots; the network is there before the workload.
    assert_eq!((config.maximum_memory, config.network), (Some(Bytes::gib(8)), Some(network())));
    let kinds: Vec<(&str, &MountKind)> = config.mounts.iter().map(|m| (m.path.as_str(), &m.kind)).collect();
    assert_eq!(
        kinds,
        [
            (
                "/data",
                &MountKind::Disk { label: "data".into(), discard: true, quota: true, persistent: false }
            ),
            ("/conf", &MountKind::Files { label: "conf".into() }),
            ("/live", &MountKind::Directory),
            ("/tmp", &MountKind::Tmpfs { size: Bytes::mib(64) }),
            ("/var/tls", &MountKind::Directory),
        ]
    );
}

#[test]
fn what_is_not_set_is_left_to_the_image() {
    let config = config(&runner(&json!({})), "", OWN);
    assert_eq!((config.command, config.args, config.swap, config.shared_memory), (None, None, None, None));
    assert!(config.mounts.is_empty() && config.ssh_authorized_keys.is_empty());
}

/// The daemon of the guest is root: only the runner calls it.
#[test]
fn the_guest_gets_the_address_that_may_call_it() {
    let closed = config(&runner(&json!({})), "", OWN);
    assert_eq!((closed.peers, closed.monitor_peers), (vec![OWN], vec![OWN]));
    // The author declares the monitor's port, for agents of upstream's releases.
    let open = config(&runner(&json!({"guest": {"ports": [{"port": 10301}]}})), "", OWN);
    assert_eq!((open.peers, open.monitor_peers), (vec![OWN], Vec::new()));
    let other = config(&runner(&json!({"guest": {"ports": [{"port": 10301, "protocol": "UDP"}]}})), "", OWN);
    assert_eq!(other.monitor_peers, vec![OWN]);
}
