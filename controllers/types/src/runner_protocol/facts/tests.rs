use proptest::prelude::*;

use super::super::machine::DEVICES;
use super::*;

/// A host, and the VM that is born on it.
#[derive(Clone, Debug)]
struct Host {
    kvm: bool,
    vhost: bool,
    tap: bool,
    qemu: &'static str,
    kernel: &'static str,
    cgroup: u8,
    vendor: &'static str,
    features: &'static [&'static str],
    /// Its runner is of 0.2.0.
    old: bool,
}

const QEMUS: [&str; 4] = ["7.2.22", "8.2.2", "9.2.4", "10.0.13"];
const CPUS: [(&str, &[&str]); 4] = [
    ("GenuineIntel", &["avx", "avx2"]),
    ("GenuineIntel", &["avx", "avx2", "avx512f"]),
    ("AuthenticAMD", &["avx", "avx2", "sse4a"]),
    ("AuthenticAMD", &["avx", "avx2", "avx512f", "sse4a"]),
];

fn hosts() -> Vec<Host> {
    let mut all = Vec::new();
    for (kvm, vhost, tap) in
        [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        for qemu in QEMUS {
            for (vendor, features) in CPUS {
                for (kernel, cgroup, old) in [("6.1.0", 1, false), ("6.12.5", 2, false), ("6.1.0", 2, true)] {
                    all.push(Host { kvm, vhost, tap, qemu, kernel, cgroup, vendor, features, old });
                }
            }
        }
    }
    all
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Emulated guests have the same CPU everywhere.
fn cpu(host: &Host) -> (String, BTreeSet<String>) {
    match (host.old, host.kvm) {
        (true, _) => Default::default(),
        (_, true) => (host.vendor.to_owned(), set(host.features)),
        (_, false) => ("AuthenticAMD".to_owned(), set(&["avx", "mpx"])),
    }
}

fn born(host: &Host) -> MachineInfo {
    let (cpu_vendor, cpu_features) = cpu(host);
    let version: Vec<&str> = host.qemu.split('.').take(2).collect();
    MachineInfo {
        accelerator: if host.kvm { "kvm" } else { "tcg" }.into(),
        machine_type: format!("pc-q35-{}", version.join(".")),
        cpu_model: if host.kvm { "host" } else { "max" }.into(),
        cpu_vendor,
        cpu_features,
        qemu_version: host.qemu.into(),
        network: match (host.tap, host.old && host.vhost) {
            (true, true) => "tap, vhost",
            (true, false) => "tap",
            (false, _) => "user",
        }
        .into(),
        vhost: host.vhost && !host.old,
        devices: if host.old { 0 } else { DEVICES },
        ..MachineInfo::default()
    }
}

fn offered(host: &Host) -> HostFacts {
    let (cpu_vendor, cpu_features) = cpu(host);
    HostFacts {
        accelerator: if host.kvm { "kvm" } else { "tcg" }.into(),
        qemu_version: host.qemu.into(),
        network: if host.tap { "tap" } else { "user" }.into(),
        cpu_vendor,
        cpu_features,
        devices: (!host.old).then_some(DEVICES),
    }
}

/// The same rules, written for hosts instead of facts.
fn expected(from: &Host, to: &Host) -> Option<Fact> {
    let number = |version: &str| version.split('.').next().unwrap().parse::<u32>().unwrap();
    let cpus_are_known = !from.old && !to.old && from.kvm == to.kvm;
    if from.kvm && !to.kvm {
        Some(Fact::Accelerator)
    } else if number(from.qemu) > number(to.qemu) {
        Some(Fact::MachineType)
    } else if cpus_are_known && from.kvm && from.vendor != to.vendor {
        Some(Fact::CpuVendor)
    } else if cpus_are_known && from.kvm && !from.features.iter().all(|one| to.features.contains(one)) {
        Some(Fact::CpuFeatures)
    } else if from.tap != to.tap {
        Some(Fact::Network)
    } else {
        None
    }
}

#[test]
fn every_pair_of_hosts() {
    let all = hosts();
    let mut seen = BTreeSet::new();
    let mut between_kernels = 0;
    for from in &all {
        for to in &all {
            let found = obstacle(&born(from), &offered(to));
            assert_eq!(found.as_ref().map(|one| one.fact), expected(from, to), "{from:?} {to:?}");
            if found.is_none() && from.kernel != to.kernel && from.cgroup != to.cgroup {
                between_kernels += 1;
            }
            if let Some(one) = found {
                assert!(!one.to_string().is_empty());
                seen.insert(one.fact);
            }
        }
    }
    let all = [Fact::Accelerator, Fact::MachineType, Fact::CpuVendor, Fact::CpuFeatures, Fact::Network];
    assert_eq!(seen, all.into());
    assert!(between_kernels > 100, "{between_kernels}");
}

#[test]
fn each_fact_has_one_rule() {
    let facts: BTreeSet<Fact> = RULES.iter().map(|(fact, _)| *fact).collect();
    assert_eq!(facts.len(), RULES.len());
}

#[test]
fn what_does_not_reach_the_guest_may_differ() {
    let host = hosts().into_iter().find(|host| host.kvm && host.vhost && !host.old).unwrap();
    for other in [
        Host { vhost: false, ..host.clone() },
        Host { kernel: "6.12.5", cgroup: 2, ..host.clone() },
        Host { qemu: "10.0.13", ..host.clone() },
    ] {
        assert_eq!(obstacle(&born(&host), &offered(&other)), None, "{other:?}");
    }
}

#[test]
fn obstacles_are_named() {
    let vm = |json: &str| serde_json::from_str::<MachineInfo>(json).unwrap();
    let host = |json: &str| serde_json::from_str::<HostFacts>(json).unwrap();
    let why = |one: &str, other: &str| obstacle(&vm(one), &host(other)).unwrap().to_string();
    assert_eq!(why(r#"{"accelerator":"kvm"}"#, r#"{"accelerator":"tcg"}"#), "has no kvm, which runs the VM");
    assert_eq!(
        why(r#"{"devices":2}"#, r#"{"devices":1}"#),
        "has runners for devices up to revision 1, and those of the VM are of revision 2"
    );
    assert_eq!(
        why(r#"{"network":"tap, vhost"}"#, r#"{"network":"user"}"#),
        "connects guests by user, and the VM is connected by tap"
    );
    assert_eq!(
        why(
            r#"{"accelerator":"kvm","cpuModel":"host","cpuVendor":"GenuineIntel"}"#,
            r#"{"accelerator":"kvm","cpuVendor":"AuthenticAMD"}"#
        ),
        "has a CPU of AuthenticAMD, and the VM's is of GenuineIntel"
    );
    let features = r#"["a","b","c","d","e","f","g","h","i","j"]"#;
    assert_eq!(
        why(
            &format!(r#"{{"accelerator":"kvm","cpuModel":"host","cpuFeatures":{features}}}"#),
            r#"{"accelerator":"kvm","cpuFeatures":["j"]}"#
        ),
        "lacks features of the VM's CPU host: a, b, c, d, e, f, g, h and 1 more"
    );
    // A model with a name has its vendor on any processor.
    let named =
        r#"{"accelerator":"kvm","cpuModel":"EPYC-v1","cpuVendor":"AuthenticAMD","cpuFeatures":["avx"]}"#;
    let intel = r#"{"accelerator":"kvm","cpuVendor":"GenuineIntel","cpuFeatures":["avx","avx2"]}"#;
    assert_eq!(obstacle(&vm(named), &host(intel)), None);
    // A guest that is emulated does not need what the processor has.
    assert_eq!(
        obstacle(
            &vm(r#"{"accelerator":"tcg","cpuVendor":"AuthenticAMD","cpuFeatures":["mpx"]}"#),
            &host(r#"{"accelerator":"kvm","cpuVendor":"GenuineIntel","cpuFeatures":["avx"]}"#)
        ),
        None
    );
}

#[test]
fn what_is_new_at_the_target_is_hidden_there() {
    let mut vm = MachineInfo::default();
    let here = set(&["avx", "avx512f", "sse4a"]);
    assert_eq!(surplus(&vm, &here), None);
    vm.cpu_features = set(&["avx", "mpx"]);
    assert_eq!(surplus(&vm, &here), Some(vec!["avx512f", "sse4a"]));
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9, .-]{0,12}"]
}

prop_compose! {
    fn any_vm()(words in prop::collection::vec(word(), 6), features in prop::collection::btree_set(word(), 0..4), vhost: bool, devices: u32) -> MachineInfo {
        let [accelerator, machine_type, cpu_model, cpu_vendor, qemu_version, network] = words.try_into().unwrap();
        MachineInfo { accelerator, machine_type, cpu_model, cpu_vendor, cpu_features: features, qemu_version, network, vhost, devices, ..MachineInfo::default() }
    }
}

proptest! {
    #[test]
    fn a_host_of_which_nothing_is_known_is_no_obstacle(vm in any_vm()) {
        prop_assert_eq!(obstacle(&vm, &HostFacts::default()), None);
    }

    #[test]
    fn each_obstacle_has_a_text(vm in any_vm(), other in any_vm(), devices: Option<u32>) {
        let host = HostFacts {
            accelerator: other.accelerator, qemu_version: other.qemu_version, network: other.network,
            cpu_vendor: other.cpu_vendor, cpu_features: other.cpu_features, devices,
        };
        if let Some(found) = obstacle(&vm, &host) {
            prop_assert!(!found.to_string().is_empty());
        }
    }
}
