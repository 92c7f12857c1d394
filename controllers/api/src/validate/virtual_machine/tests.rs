use neonvm_types::MilliCpu;
use serde_json::json;

use super::*;
use crate::virtual_machine::{
    Architecture, ClaimDisk, CpuBounds, CpuScalingMode, EmptyDisk, EnvVar, Guest, GuestSettings, MemorySlots,
    Overcommit, Port, SwapInfo, TmpfsDisk, VirtualMachineStatus,
};

fn spec() -> VirtualMachineSpec {
    let cpus = CpuBounds { min: MilliCpu::new(250), max: MilliCpu::new(1000), r#use: MilliCpu::new(500) };
    VirtualMachineSpec::new(Guest::new(cpus, MemorySlots { min: 1, max: 4, r#use: 2 }, "img:tag"))
}

fn vm(change: impl FnOnce(&mut VirtualMachineSpec)) -> VirtualMachine {
    let mut spec = spec();
    change(&mut spec);
    VirtualMachine::new("vm-a", spec)
}

fn tmpfs(name: &str, mount_path: &str) -> Disk {
    Disk {
        name: name.into(),
        mount_path: mount_path.into(),
        tmpfs: Some(TmpfsDisk { size: "64Mi".parse().unwrap() }),
        ..Disk::default()
    }
}

fn port(name: &str, port: u16) -> Port {
    Port { name: name.into(), port, protocol: PortProtocol::Tcp }
}

fn tls(issuer: &str, expire: &str, renew: &str) -> Option<Tls> {
    Some(Tls {
        certificate_issuer: issuer.into(),
        expire_after: expire.parse().unwrap(),
        renew_before: renew.parse().unwrap(),
        server_name: "a.example".into(),
        mount_path: "/var/tls".into(),
    })
}

#[test]
fn limits_name_a_disk_and_rates_within_bounds() {
    let of = |disk: &str, limits: serde_json::Value| {
        let mut limit = json!({"disk": disk});
        crate::merge_patch::merge(&mut limit, &limits);
        let machine = vm(|spec| {
            let empty = Some(EmptyDisk { size: "1Gi".parse().unwrap(), ..EmptyDisk::default() });
            let data = Disk { tmpfs: None, empty_disk: empty, ..tmpfs("data", "/data") };
            spec.disks = vec![data, tmpfs("tmp", "/scratch")];
            spec.disk_limits = vec![serde_json::from_value(limit).unwrap()];
        });
        let errors: Vec<String> = virtual_machine_create(&machine).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            virtual_machine_update(&machine, &machine).iter().map(ToString::to_string).collect::<Vec<_>>()
        );
        errors
    };
    for disk in ["data", "rootdisk"] {
        let burst = json!({"iops": 2000, "bandwidth": "60Mi", "seconds": 30});
        assert_eq!(of(disk, json!({"iops": 500, "bandwidth": "50Mi", "burst": burst})), [""; 0]);
        assert_eq!(of(disk, json!({"bandwidth": "64Ki"})), [""; 0]);
    }
    for (disk, limits, part) in [
        ("tmp", json!({"iops": 500}), "spec.diskLimits[0].disk: \"tmp\" is no emptyDisk"),
        ("dat", json!({"iops": 500}), "spec.diskLimits[0].disk: \"dat\" is no emptyDisk"),
        ("data", json!({}), "spec.diskLimits[0]: must have iops, bandwidth or both"),
        ("data", json!({"iops": 9}), "spec.diskLimits[0].iops: must be between 10 and 10000000"),
        ("data", json!({"bandwidth": "50"}), "spec.diskLimits[0].bandwidth: must be between 64Ki and 100Gi"),
        ("data", json!({"iops": 50, "burst": {}}), "spec.diskLimits[0].burst: must have iops"),
        ("data", json!({"iops": 50, "burst": {"iops": 50}}), "burst.iops: must be above the limit"),
        ("data", json!({"iops": 50, "burst": {"bandwidth": "1Mi"}}), "burst.bandwidth: must be above"),
        ("data", json!({"iops": 50, "burst": {"iops": 60, "seconds": 0}}), "burst.seconds: must be between"),
    ] {
        let errors = of(disk, limits);
        assert!(errors.len() == 1 && errors[0].contains(part), "{disk} {part}: {errors:?}");
    }
}

type Change = fn(&mut VirtualMachineSpec);

fn check_all(cases: &[(Change, &[&str])], validate: impl Fn(&VirtualMachine) -> Vec<FieldError>) {
    for (index, (change, expected)) in cases.iter().enumerate() {
        let errors: Vec<String> = validate(&vm(change)).iter().map(ToString::to_string).collect();
        assert_eq!(&errors, expected, "case {index}");
    }
}

#[test]
fn sizes() {
    check_all(
        &[
            (|_| {}, &[]),
            (
                |spec| spec.guest.cpus.r#use = MilliCpu::new(100),
                &["spec.guest.cpus.use: 100m is below min 250m; raise use or lower min"],
            ),
            (
                |spec| spec.guest.cpus.r#use = MilliCpu::new(2000),
                &["spec.guest.cpus.use: 2 is above max 1; lower use or raise max"],
            ),
            (
                |spec| spec.guest.cpus = CpuBounds::default(),
                &["spec.guest.cpus.min: must be above 0; the smallest sensible value is 50m"],
            ),
            (
                |spec| spec.guest.memory_slot_size = "12Mi".parse().unwrap(),
                &[
                    "spec.guest.memorySlotSize: 12Mi must be a multiple of 8Mi; write for example 128Mi or 1Gi",
                ],
            ),
            (
                |spec| spec.guest.memory_slot_size = "0".parse().unwrap(),
                &["spec.guest.memorySlotSize: 0 must be a multiple of 8Mi; write for example 128Mi or 1Gi"],
            ),
            (
                |spec| spec.guest.memory_slot_size = "-1Gi".parse().unwrap(),
                &[
                    "spec.guest.memorySlotSize: -1Gi is out of range; it must be between 0 and 18446744073709551615",
                ],
            ),
            (
                |spec| spec.guest.memory_slot_size = "8Ei".parse().unwrap(),
                &["spec.guest.memorySlotSize: 8Ei times memorySlots.max is out of range; lower one of them"],
            ),
            (
                |spec| spec.guest.memory_slots.r#use = 5,
                &["spec.guest.memorySlots.use: 5 is above max 4; lower use or raise max"],
            ),
            (
                |spec| spec.guest.memory_slots.min = 3,
                &["spec.guest.memorySlots.use: 2 is below min 3; raise use or lower min"],
            ),
            (
                |spec| spec.guest.memory_slots = MemorySlots { min: 1, max: 600, r#use: 2 },
                &["spec.guest.memorySlots.max: 600 must be between 1 and 512"],
            ),
        ],
        virtual_machine_create,
    );
}

/// Bounds that cross make `use` wrong whatever it is; the cause is named too.
#[test]
fn crossed_bounds_are_named() {
    let crossed = vm(|spec| spec.guest.memory_slots = MemorySlots { min: 4, max: 2, r#use: 3 });
    let errors: Vec<String> =
        virtual_machine_create(&crossed).iter().map(|error| error.path.clone()).collect();
    assert_eq!(
        errors,
        ["spec.guest.memorySlots.use", "spec.guest.memorySlots.use", "spec.guest.memorySlots.min"]
    );
}

#[test]
fn a_disk_on_a_claim_names_it_or_has_its_template() {
    let claimed = |name: &str, claim: Option<&str>| Disk {
        tmpfs: None,
        persistent_volume_claim: claim.map(|claim| ClaimDisk { claim_name: claim.to_owned() }),
        ..tmpfs(name, "/a")
    };
    let template = |name: &str, size: &str, modes: &[&str]| -> ClaimTemplate {
        let spec = serde_json::json!({"accessModes": modes, "resources": {"requests": {"storage": size}}});
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let faults = |disk: Disk, templates: Vec<ClaimTemplate>| {
        let vm = vm(|spec| (spec.disks, spec.volume_claim_templates) = (vec![disk], templates));
        let faults = virtual_machine_create(&vm);
        faults.iter().map(|fault| fault.path.clone()).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(faults(claimed("data", Some("pg-data")), vec![]), none);
    assert_eq!(faults(claimed("data", None), vec![template("data", "1Gi", &["ReadWriteOnce"])]), none);
    assert_eq!(faults(claimed("data", None), vec![]), ["spec.disks[0]"]);
    assert_eq!(
        faults(claimed("data", Some("Pg")), vec![]),
        ["spec.disks[0].persistentVolumeClaim.claimName"]
    );
    assert_eq!(faults(claimed("a-name-of-17-char", Some("x")), vec![]), ["spec.disks[0].name"]);
    let lonely = vec![template("other", "1Gi", &["ReadWriteOnce"])];
    assert_eq!(
        faults(claimed("data", Some("x")), lonely),
        ["spec.volumeClaimTemplates[0].metadata.name"],
        "no disk has its name"
    );
    for (size, modes, path) in [
        ("0", &["ReadWriteOnce"][..], "spec.resources.requests.storage"),
        ("much", &["ReadWriteOnce"], "spec.resources.requests.storage"),
        ("1Gi", &[], "spec.accessModes"),
    ] {
        let path = format!("spec.volumeClaimTemplates[0].{path}");
        assert_eq!(faults(claimed("data", None), vec![template("data", size, modes)]), [path]);
    }
    let twice = vec![template("data", "1Gi", &["ReadWriteOnce"]); 2];
    assert_eq!(faults(claimed("data", None), twice), ["spec.volumeClaimTemplates[1].metadata.name"]);
}

#[test]
fn disks_and_ports() {
    check_all(
        &[
            (
                |spec| spec.disks = vec![tmpfs("tls", "/a")],
                &["spec.disks[0].name: tls is taken by the runner; choose another"],
            ),
            (
                |spec| spec.disks = vec![tmpfs(&"a".repeat(33), "/a")],
                &["spec.disks[0].name: must not be longer than 32 characters; shorten it"],
            ),
            (
                |spec| {
                    let mut disk = tmpfs(&"a".repeat(17), "/a");
                    disk.tmpfs = None;
                    disk.empty_disk =
                        Some(EmptyDisk { size: "1Gi".parse().unwrap(), ..EmptyDisk::default() });
                    spec.disks = vec![disk];
                },
                &[
                    "spec.disks[0].name: must not be longer than 16 characters for an emptyDisk or a claim; shorten it",
                ],
            ),
            (
                |spec| spec.disks = vec![tmpfs("A_b", "/a")],
                &["spec.disks[0].name: \"A_b\" must be lower-case letters, digits and inner hyphens"],
            ),
            (
                |spec| spec.disks = vec![tmpfs("a", "/a"), tmpfs("a", "/a/")],
                &[
                    "spec.disks[1].name: a is there twice; rename one",
                    "spec.disks[1].mountPath: /a is there twice; mount one elsewhere",
                ],
            ),
            (
                |spec| spec.disks = vec![tmpfs("a", "/a/../etc")],
                &[concat!(
                    "spec.disks[0].mountPath: \"/a/../etc\" must be an absolute path other than /, ",
                    "without . and .. as parts, spaces, quotes, colons and backslashes, of parts of at most 255 bytes; write for ",
                    "example /var/lib/data"
                )],
            ),
            (
                |spec| {
                    spec.disks = vec![Disk { tmpfs: Some(TmpfsDisk::default()), ..tmpfs("a", "/a") }];
                },
                &["spec.disks[0].tmpfs.size: 0 must be above 0; write for example 1Gi"],
            ),
            (
                |spec| spec.guest.ports = vec![port("qmp", 80)],
                &["spec.guest.ports[0].name: qmp is taken by the runner; choose another"],
            ),
            (
                |spec| spec.guest.ports = vec![port("a", 80), port("a", 80), port("", 81), port("", 82)],
                &["spec.guest.ports[1].name: a is there twice; rename one or leave it out"],
            ),
            (|spec| spec.guest.ports = vec![port("a", 80), port("b", 80)], &[]),
            (
                |spec| spec.guest.ports = vec![port("a", 25183)],
                &["spec.guest.ports[0].port: 25183 is spec.runnerPort; choose another for one of them"],
            ),
            (
                |spec| spec.qmp_manual = 20183,
                &["spec.qmpManual: 20183 is qmp too; leave both out to get the defaults"],
            ),
        ],
        virtual_machine_create,
    );
}

#[test]
fn the_rest() {
    check_all(
        &[
            (
                |spec| {
                    let variable = |name: &str| EnvVar { name: name.into(), value: String::new() };
                    spec.guest.env = vec![variable("A"), variable("A"), variable("B=C")];
                },
                &[
                    "spec.guest.env[1].name: A is there twice; remove one",
                    "spec.guest.env[2].name: \"B=C\" must not be empty and not contain = or line ends",
                ],
            ),
            (
                |spec| {
                    spec.tls = tls("", "24h", "8h");
                    spec.tls.as_mut().unwrap().server_name.clear();
                },
                &["spec.tls.serverName: must be set, or leave out spec.tls"],
            ),
            (
                |spec| {
                    spec.tls = tls("", "24h", "8h");
                    spec.tls.as_mut().unwrap().server_name = "Scheduler.neonvm.".into();
                },
                &["spec.tls.serverName: \"Scheduler.neonvm.\" is a name of the services of the cluster; \
                   choose one outside of *.neonvm and *.vm.neon.tech"],
            ),
            (
                |spec| spec.tls = tls("i", "1h", "1h"),
                &["spec.tls.renewBefore: 1h0m0s must be shorter than expireAfter 1h0m0s"],
            ),
            (|spec| spec.tls = tls("i", "0", "-1h"), &["spec.tls.renewBefore: must not be negative"]),
            (
                |spec| spec.guest.root_disk.size = "-1".parse().unwrap(),
                &["spec.guest.rootDisk.size: -1 must not be negative; 0 keeps the image's size"],
            ),
            (
                |spec| {
                    spec.guest.settings =
                        Some(GuestSettings { swap: "-1Gi".parse().ok(), ..GuestSettings::default() });
                },
                &["spec.guest.settings.swap: -1Gi must not be negative"],
            ),
            (
                |spec| {
                    let swap_info = Some(SwapInfo { size: "-1Gi".parse().unwrap(), skip_swapon: None });
                    spec.guest.settings = Some(GuestSettings {
                        swap: "1Gi".parse().ok(),
                        swap_info,
                        ..GuestSettings::default()
                    });
                },
                &[
                    "spec.guest.settings.swapInfo.size: -1Gi must not be negative",
                    "spec.guest.settings.swapInfo: cannot be combined with swap; leave one of them out",
                ],
            ),
            (
                |spec| spec.overcommit = Some(Overcommit { cpu: "0".parse().ok(), memory: None }),
                &["spec.overcommit.cpu: must be above 0; 1 means no overcommit"],
            ),
        ],
        virtual_machine_create,
    );
    let errors = virtual_machine_create(&VirtualMachine::new(&"x".repeat(64), spec()));
    assert_eq!(errors[0].path, "metadata.name");
}

/// Each of upstream's immutable fields but the least CPU, and the slot size, which upstream forgot: they change between two pods.
#[test]
fn what_changes_only_without_a_pod() {
    let cases: [(Change, &str); 17] = [
        (|spec| spec.guest.cpus.max = MilliCpu::new(2000), "spec.guest.cpus.max"),
        (|spec| spec.guest.memory_slots.min = 2, "spec.guest.memorySlots.min"),
        (|spec| spec.guest.memory_slots.max = 5, "spec.guest.memorySlots.max"),
        (|spec| spec.guest.memory_slot_size = "2Gi".parse().unwrap(), "spec.guest.memorySlotSize"),
        (|spec| spec.guest.ports = vec![port("a", 80)], "spec.guest.ports"),
        (|spec| spec.guest.root_disk.image = "other".into(), "spec.guest.rootDisk"),
        (|spec| spec.guest.command = vec!["x".into()], "spec.guest.command"),
        (|spec| spec.guest.args = vec!["x".into()], "spec.guest.args"),
        (|spec| spec.guest.env = vec![EnvVar { name: "A".into(), value: "1".into() }], "spec.guest.env"),
        (|spec| spec.guest.settings = Some(GuestSettings::default()), "spec.guest.settings"),
        (|spec| spec.disks = vec![tmpfs("a", "/a")], "spec.disks"),
        (|spec| spec.pod_resources.limits = Some([].into()), "spec.podResources"),
        (|spec| spec.enable_acceleration = false, "spec.enableAcceleration"),
        (|spec| spec.enable_ssh = false, "spec.enableSSH"),
        (|spec| spec.init_script = "true".into(), "spec.initScript"),
        (|spec| spec.cpu_model = "EPYC-v1".into(), "spec.cpuModel"),
        (|spec| spec.enable_network_monitoring = true, "spec.enableNetworkMonitoring"),
    ];
    for (change, path) in cases {
        let mut old = vm(|_| {});
        assert_eq!(virtual_machine_update(&old, &vm(change)), [], "{path}");
        old.status = Some(VirtualMachineStatus { pod_name: "a-1".into(), ..VirtualMachineStatus::default() });
        let errors = virtual_machine_update(&old, &vm(change));
        assert_eq!(errors, [FieldError { path: path.into(), message: WHILE_OFF.into() }]);
    }
}

#[test]
fn cpu_models_are_names() {
    let with = |name: &str| {
        let name = name.to_owned();
        let mut vm = vm(|_| {});
        vm.spec.cpu_model = name;
        virtual_machine_create(&vm)
    };
    for name in ["", "EPYC-v1", "Haswell-v2", "cortex-a57", "pentium3", &"x".repeat(64)] {
        assert_eq!(with(name), [], "{name}");
    }
    for name in ["host,enforce", "a b", "EPYC=1", "é", &"x".repeat(65)] {
        let errors = with(name);
        assert_eq!(errors.len(), 1, "{name}");
        assert_eq!(errors[0].path, "spec.cpuModel");
    }
}

#[test]
fn what_can_change() {
    let changes: [Change; 7] = [
        |spec| spec.guest.cpus.min = MilliCpu::new(100),
        |spec| spec.guest.cpus.r#use = MilliCpu::new(1000),
        |spec| spec.guest.memory_slots.r#use = 4,
        |spec| spec.guest.memory_slot_size = "1024Mi".parse().unwrap(),
        |spec| spec.cpu_scaling_mode = Some(CpuScalingMode::QmpScaling),
        |spec| spec.target_architecture = Some(Architecture::Arm64),
        |spec| spec.overcommit = Some(Overcommit { cpu: "2".parse().ok(), memory: None }),
    ];
    for change in changes {
        let mut old = vm(|_| {});
        old.status = Some(VirtualMachineStatus { pod_name: "a-1".into(), ..VirtualMachineStatus::default() });
        assert_eq!(virtual_machine_update(&old, &vm(change)), []);
    }
}

#[test]
fn what_can_be_set_once() {
    let set: Change = |spec| {
        spec.cpu_scaling_mode = Some(CpuScalingMode::QmpScaling);
        spec.target_architecture = Some(Architecture::Amd64);
    };
    let text = "can be set once and not changed; put the old value back";
    let other: Change = |spec| {
        spec.cpu_scaling_mode = Some(CpuScalingMode::SysfsScaling);
        spec.target_architecture = Some(Architecture::Arm64);
    };
    for change in [other, |_| {}] {
        let errors: Vec<String> =
            virtual_machine_update(&vm(set), &vm(change)).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [format!("spec.cpuScalingMode: {text}"), format!("spec.targetArchitecture: {text}")]
        );
    }
    assert_eq!(virtual_machine_update(&vm(set), &vm(set)), []);
}

#[test]
fn an_update_checks_sizes_again() {
    let new = vm(|spec| spec.guest.cpus.r#use = MilliCpu::new(3000));
    let errors = virtual_machine_update(&vm(|_| {}), &new);
    assert_eq!(errors[0].to_string(), "spec.guest.cpus.use: 3 is above max 1; lower use or raise max");
}

#[test]
fn a_dead_field_is_a_warning() {
    assert_eq!(virtual_machine_warnings(&vm(|_| {})), []);
    let warned = vm(|spec| spec.guest.root_disk.execute = vec!["x".into()]);
    let text = "spec.guest.rootDisk.execute: has no effect; use spec.guest.command";
    assert_eq!(virtual_machine_warnings(&warned)[0].to_string(), text);
    assert_eq!(virtual_machine_create(&warned), []);
}

#[test]
fn an_annotation_the_agent_cannot_use_is_a_warning() {
    let mut warned = vm(|_| {});
    warned.metadata.namespace = Some("default".into());
    let bounds = r#"{"min":{"cpu":2,"mem":"1Gi"},"max":{"cpu":1,"mem":"4Gi"}}"#;
    warned.metadata.annotations = Some([(annotation::BOUNDS.to_owned(), bounds.to_owned())].into());
    let text = "metadata.annotations: the VM will not be scaled: cpu: min 2 is above max 1";
    assert_eq!(virtual_machine_warnings(&warned)[0].to_string(), text);
    assert_eq!(virtual_machine_create(&warned), []);
}

/// What a path of the guest may be is [`GuestPath`]'s; it is the same for each field that is one.
#[test]
fn the_certificate_is_mounted_where_a_disk_could_be() {
    for path in ["/../config", "/../../etc", "", "x", "/..", "/a\n/b", "/"] {
        let bad = tls("", "2h", "1h").map(|tls| Tls { mount_path: path.to_owned(), ..tls });
        let faults = virtual_machine_create(&vm(|spec| spec.tls = bad));
        assert!(faults.iter().any(|fault| fault.path == "spec.tls.mountPath"), "{path:?}: {faults:?}");
    }
    let twice = vm(|spec| {
        spec.disks = vec![tmpfs("a", "/a")];
        spec.tls = tls("", "2h", "1h").map(|tls| Tls { mount_path: "//a/".to_owned(), ..tls });
    });
    let faults: Vec<String> = virtual_machine_create(&twice).iter().map(ToString::to_string).collect();
    assert_eq!(faults, ["spec.tls.mountPath: /a is where the disk a is; choose another"]);
}

#[test]
fn names_of_services_are_reserved_in_every_spelling() {
    for name in [
        "neonvm",
        "agent.neonvm",
        "*.neonvm",
        "a.b.NeonVM.",
        "vm.neon.tech",
        "uid.vm.neon.tech",
        "*.VM.neon.tech",
    ] {
        assert!(is_reserved(name), "{name}");
    }
    for name in ["", "myneonvm", "neonvm.example", "neon.tech", "avm.neon.tech", "vm.neon.tech.example"] {
        assert!(!is_reserved(name), "{name}");
    }
}
