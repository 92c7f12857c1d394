use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use neonvm_types::Bytes;
use proptest::prelude::*;

use super::*;
use crate::accelerator::Accelerator;
use crate::plan::{BaseFormat, CpuPlan, DiskImage, DiskPlan, Forward, MOST_DISKS, MemoryPlan};

fn small() -> MachinePlan {
    MachinePlan {
        name: "default/a".into(),
        uuid: "6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11".into(),
        architecture: Architecture::Amd64,
        accelerator: Accelerator::Tcg,
        machine_type: "pc-q35-7.2".into(),
        cpu_model: None,
        cpu_features_off: vec![],
        network_features_off: &[],
        firmware: Firmware::Qboot,
        kernel: "/vm/kernel/vmlinux".into(),
        initramfs: None,
        command_line: "console=ttyS0 a=1,2".into(),
        cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 4 },
        memory: MemoryPlan { min: Bytes::gib(1), start: Bytes::gib(2), max: Bytes::gib(4), exact: false },
        disks: vec![],
        disk_queues: None,
        interfaces: vec![],
        direct_io: false,
        incoming: false,
    }
}

fn large() -> MachinePlan {
    let overlay = DiskImage::Overlay { file: "/o".into(), base: "/b".into(), base_format: BaseFormat::Qcow2 };
    let disk =
        |name: &str, image, read_only, discard| DiskPlan { name: name.into(), image, read_only, discard };
    MachinePlan {
        initramfs: Some("/i".into()),
        cpu: CpuPlan { mode: CpuMode::Qmp, boot: 2, max: 4 },
        memory: MemoryPlan { min: Bytes::gib(1), start: Bytes::gib(1), max: Bytes::gib(1), exact: false },
        disks: vec![
            disk("rootdisk", overlay, false, true),
            disk("vmruntime", DiskImage::Raw("/r".into()), true, false),
            disk("data,with=commas and a long name", DiskImage::Qcow2("/d".into()), false, false),
        ],
        interfaces: vec![
            InterfacePlan { mac: [2, 0, 0, 0, 0, 0xAB], mtu: Some(1450), backend: Backend::Tap },
            InterfacePlan { mac: [2, 0, 0, 0, 1, 1], mtu: None, backend: Backend::Tap },
            InterfacePlan {
                mac: [2, 0, 0, 0, 2, 2],
                mtu: None,
                backend: Backend::User {
                    forwards: vec![
                        Forward {
                            protocol: Protocol::Tcp,
                            address: Ipv4Addr::LOCALHOST,
                            port: 7022,
                            guest_port: 22,
                        },
                        Forward {
                            protocol: Protocol::Udp,
                            address: Ipv4Addr::LOCALHOST,
                            port: 7053,
                            guest_port: 53,
                        },
                    ],
                },
            },
        ],
        network_features_off: &["queue_reset", "host_uso"],
        direct_io: true,
        firmware: Firmware::Default,
        accelerator: Accelerator::Kvm,
        ..small()
    }
}

fn descriptors(plan: &MachinePlan) -> Descriptors {
    let disk =
        |index: usize| DiskDescriptors { file: 30 + index as i32 * 2, base: Some(31 + index as i32 * 2) };
    Descriptors {
        monitor: 10,
        console: 11,
        log: 12,
        report: 13,
        kernel: 14,
        initramfs: plan.initramfs.as_ref().map(|_| 15),
        table_of_cpus: Some(16),
        disks: (0..plan.disks.len()).map(disk).collect(),
        interfaces: vec![
            TapDescriptors { queues: vec![20], vhosts: vec![] },
            TapDescriptors { queues: vec![21, 22], vhosts: vec![23, 24] },
        ],
        memory: None,
    }
}

/// One option with its value a line.
fn text(plan: &MachinePlan) -> String {
    let words = arguments(plan, &descriptors(plan)).unwrap();
    let mut text = String::new();
    for word in words {
        text.push(if word.starts_with('-') { '\n' } else { ' ' });
        text.push_str(&word);
    }
    text.trim_start().to_owned()
}

const COMMON: &str = "\
-nodefaults
-no-user-config
-only-migratable
-display none
-S
-action reboot=shutdown,shutdown=poweroff,panic=exit-failure
-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
-machine pc-q35-7.2,vmport=off
";

const PORTS: &str = "\
-object rng-random,id=rng0,filename=/dev/urandom
-device virtio-rng-pci,id=random,rng=rng0,addr=0x3
-device pvpanic-pci,id=panic,addr=0x5
-chardev socket,id=monitor,fd=10
-chardev socket,id=console,fd=11
-chardev socket,id=log,fd=12
-chardev socket,id=report,fd=13
-mon chardev=monitor,mode=control
-serial chardev:console
-device virtio-serial-pci,id=ports,max_ports=8,addr=0x2
-device virtserialport,id=log-port,bus=ports.0,nr=1,chardev=log,name=tech.neon.log.0
-device virtserialport,id=report-port,bus=ports.0,nr=2,chardev=report,name=tech.neon.report.0
";

#[test]
fn a_small_machine() {
    let cpu = Accelerator::Tcg.cpu_option(Architecture::Amd64);
    let expected = format!(
        "-name guest=default/a,debug-threads=on
-uuid 6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11
{COMMON}-accel tcg,thread=multi,tb-size=128
-cpu {cpu}
-bios qboot.rom
-smp cpus=4,maxcpus=4,sockets=1,cores=4,threads=1
-m size=1073741824b,slots=1,maxmem=4294967296b
-object memory-backend-ram,id=vmem0,size=3221225472b,reserve=off
-device virtio-mem-pci,id=vm0,memdev=vmem0,block-size=2097152,requested-size=1073741824,addr=0x4
{PORTS}-kernel /dev/fd/14
-append console=ttyS0 a=1,2"
    );
    assert_eq!(text(&small()), expected);
}

#[test]
fn a_machine_with_everything() {
    let expected = format!(
        r#"-name guest=default/a,debug-threads=on
-uuid 6f1c9f0e-4f1f-4c39-9f1f-0c9a4b0a5d11
{COMMON}-accel kvm
-cpu host
-smp cpus=2,maxcpus=4,sockets=1,cores=4,threads=1
-m size=1073741824b
{PORTS}-add-fd fd=31,set=2
-blockdev {{"driver":"file","filename":"/dev/fdset/2","node-name":"disk0-base-file","read-only":true}}
-blockdev {{"backing":null,"driver":"qcow2","file":"disk0-base-file","node-name":"disk0-base","read-only":true}}
-add-fd fd=30,set=1
-blockdev {{"cache":{{"direct":true}},"discard":"unmap","driver":"file","filename":"/dev/fdset/1","node-name":"disk0-file","read-only":false}}
-blockdev {{"backing":"disk0-base","discard":"unmap","driver":"qcow2","file":"disk0-file","node-name":"disk0","read-only":false}}
-device virtio-blk-pci,id=disk0-front,drive=disk0,serial=rootdisk,addr=0x10.0x0,multifunction=on,werror=enospc,rerror=report
-add-fd fd=32,set=3
-blockdev {{"driver":"file","filename":"/dev/fdset/3","node-name":"disk1-file","read-only":true}}
-blockdev {{"driver":"raw","file":"disk1-file","node-name":"disk1","read-only":true}}
-device virtio-blk-pci,id=disk1-front,drive=disk1,serial=vmruntime,addr=0x10.0x1
-add-fd fd=34,set=5
-blockdev {{"cache":{{"direct":true}},"discard":"ignore","driver":"file","filename":"/dev/fdset/5","node-name":"disk2-file","read-only":false}}
-blockdev {{"backing":null,"discard":"ignore","driver":"qcow2","file":"disk2-file","node-name":"disk2","read-only":false}}
-device virtio-blk-pci,id=disk2-front,drive=disk2,serial=data,,with=commas and,addr=0x10.0x2,werror=enospc,rerror=report
-netdev tap,id=net0,fd=20,vhost=off
-device virtio-net-pci,id=eth0,netdev=net0,mac=02:00:00:00:00:ab,romfile=,addr=0x8,host_mtu=1450,queue_reset=off,host_uso=off
-netdev tap,id=net1,fds=21:22,vhost=on,vhostfds=23:24
-device virtio-net-pci,id=eth1,netdev=net1,mac=02:00:00:00:01:01,romfile=,addr=0x9,mq=on,vectors=6,queue_reset=off,host_uso=off
-netdev user,id=net2,hostfwd=tcp:127.0.0.1:7022-:22,hostfwd=udp:127.0.0.1:7053-:53
-device virtio-net-pci,id=eth2,netdev=net2,mac=02:00:00:00:02:02,romfile=,addr=0xa,queue_reset=off,host_uso=off
-kernel /dev/fd/14
-initrd /dev/fd/15
-append console=ttyS0 a=1,2"#
    );
    assert_eq!(text(&large()), expected);
}

#[test]
fn another_architecture() {
    let arm = MachinePlan {
        architecture: Architecture::Arm64,
        machine_type: "virt-7.2".into(),
        firmware: Firmware::File("/fw/QEMU_EFI,1.fd".into()),
        ..small()
    };
    let text = text(&arm);
    assert!(text.contains("\n-machine virt-7.2,gic-version=max\n"), "{text}");
    assert!(text.contains("\n-bios /fw/QEMU_EFI,1.fd\n"), "{text}");
}

/// QEMU 10.0 aborted as the source of a migration otherwise.
#[test]
fn the_larger_memory_of_an_emulated_guest_comes_first() {
    let order = |accelerator, min: u32, max: u32| {
        let memory =
            MemoryPlan { min: Bytes::mib(min), start: Bytes::mib(min), max: Bytes::mib(max), exact: false };
        let text = text(&MachinePlan { accelerator, memory, ..small() });
        let objects = text.lines().filter_map(|line| line.strip_prefix("-object memory-backend-ram,id="));
        let names: Vec<String> = objects.filter_map(|one| Some(one.split_once(',')?.0.to_owned())).collect();
        assert_eq!(text.contains("-machine pc-q35-7.2,vmport=off,memory-backend=pc.ram\n"), names.len() == 2);
        names
    };
    let (kvm, tcg) = (Accelerator::Kvm, Accelerator::Tcg);
    assert_eq!(order(tcg, 2048, 3072), ["pc.ram", "vmem0"]);
    assert_eq!(order(tcg, 600, 1000), ["pc.ram", "vmem0"]);
    assert_eq!(order(tcg, 1024, 2048), ["vmem0"]);
    assert_eq!(order(tcg, 1024, 4096), ["vmem0"]);
    assert_eq!(order(kvm, 2048, 3072), ["vmem0"]);
    assert!(order(tcg, 1024, 1024).is_empty());
}

#[test]
fn disks_have_as_many_queues_as_where_the_vm_booted() {
    let fronts = |disk_queues| {
        let text = text(&MachinePlan { disk_queues, ..large() });
        text.lines().filter(|line| line.contains("virtio-blk-pci")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(fronts(None).iter().all(|front| !front.contains("num-queues")));
    let three = fronts(Some(3));
    assert!(three.len() == 3 && three.iter().all(|front| front.ends_with(",num-queues=3")), "{three:?}");
}

/// With KVM Linux knows that it is a guest, and the board of arm64 has another table.
#[test]
fn cpus_to_come_are_listed_for_an_emulated_guest() {
    let mode = |mode| CpuPlan { mode, boot: 1, max: 4 };
    let plan = MachinePlan { cpu: mode(CpuMode::Qmp), ..small() };
    assert!(text(&plan).contains("\n-acpitable sig=APIC,rev=1,data=/dev/fd/16"), "{}", text(&plan));
    let without = Descriptors { table_of_cpus: None, ..descriptors(&plan) };
    assert!(matches!(arguments(&plan, &without), Err(PlanError::Descriptor { what: "table of CPUs", .. })));
    for other in [
        MachinePlan { cpu: mode(CpuMode::Sysfs), ..plan.clone() },
        MachinePlan { accelerator: Accelerator::Kvm, ..plan.clone() },
        MachinePlan { architecture: Architecture::Arm64, ..plan },
    ] {
        assert!(!text(&other).contains("acpitable"));
    }
}

#[test]
fn a_cpu_model_with_a_name() {
    let cpu = |accelerator, architecture, name: Option<&str>, off: &[&str]| {
        let cpu_model = name.map(str::to_owned);
        let cpu_features_off = off.iter().map(|one| (*one).to_owned()).collect();
        let plan = MachinePlan { accelerator, architecture, cpu_model, cpu_features_off, ..small() };
        let text = text(&plan);
        text.lines().find_map(|line| line.strip_prefix("-cpu ")).unwrap().to_owned()
    };
    let (kvm, tcg) = (Accelerator::Kvm, Accelerator::Tcg);
    let (amd64, arm64) = (Architecture::Amd64, Architecture::Arm64);
    assert_eq!(cpu(kvm, amd64, Some("EPYC-v1"), &[]), "EPYC-v1,enforce");
    assert_eq!(cpu(tcg, amd64, Some("EPYC-v1"), &["sha-ni"]), "EPYC-v1,erms=off,fsrm=off,sha-ni=off");
    assert_eq!(cpu(tcg, arm64, Some("cortex-a57"), &[]), "cortex-a57");
    assert_eq!(cpu(kvm, amd64, None, &["avx512f", "amx-tile"]), "host,avx512f=off,amx-tile=off");
    for name in ["", "a,b", "a b", "a=b", "ä", &"x".repeat(65)] {
        let plan = MachinePlan { cpu_model: Some(name.to_owned()), ..small() };
        let error = arguments(&plan, &descriptors(&plan)).unwrap_err().to_string();
        assert!(error.starts_with("CPU model: ") && error.contains("letters, digits"), "{error}");
        let plan = MachinePlan { cpu_features_off: vec![name.to_owned()], ..small() };
        assert!(arguments(&plan, &descriptors(&plan)).is_err());
    }
}

#[test]
fn the_size_at_the_start_changes_only_what_it_must() {
    let (one, mut other) = (small(), small());
    other.cpu.boot = 3;
    other.memory.start = Bytes::gib(3);
    let (one, other) = (text(&one), text(&other));
    let differs: Vec<_> = one.lines().zip(other.lines()).filter(|(one, other)| one != other).collect();
    assert_eq!(differs.len(), 1, "{differs:?}");
    assert!(differs[0].0.starts_with("-device virtio-mem-pci"), "{differs:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: fn(&mut MachinePlan), expected: &str| {
        let mut plan = large();
        change(&mut plan);
        let error = arguments(&plan, &descriptors(&plan)).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    refused(|plan| plan.cpu.boot = 5, "CPUs at the start: 5 is not within 1 to 4");
    refused(|plan| plan.cpu.max = 256, "maximum of CPUs: 256 is not within 1 to 255");
    refused(
        |plan| plan.memory.start = Bytes::gib(5),
        "memory at the start: 5368709120 is not within 1073741824 to 1073741824",
    );
    refused(
        |plan| plan.memory.max = Bytes::new((1 << 30) + 1),
        "maximum of memory: 1073741825 bytes are not a multiple of 2097152",
    );
    refused(
        |plan| plan.command_line = "x".repeat(2048),
        "bytes of the kernel's arguments: 2048 is not within 0 to 2047",
    );
    refused(|plan| plan.command_line = "\0".into(), "the kernel's arguments holds a NUL byte");
    refused(|plan| plan.disks[0].name = "\0".into(), "the name of a disk holds a NUL byte");
    refused(
        |plan| plan.interfaces = vec![InterfacePlan { mac: [0; 6], mtu: None, backend: Backend::Tap }; 3],
        "network interface 2 has no descriptor",
    );
}

/// Options of one word as QEMU splits it: two commas are one that belongs to the value.
#[test]
fn a_volume_is_a_raw_disk_on_a_file_or_on_a_block_device() {
    for (device, driver) in [(false, "file"), (true, "host_device")] {
        let mut plan = small();
        let image = DiskImage::Volume { path: "/v".into(), device, shared: false };
        plan.disks = vec![DiskPlan { name: "data".into(), image, read_only: false, discard: true }];
        let words = arguments(&plan, &descriptors(&plan)).unwrap();
        let nodes = words.windows(2).filter(|pair| pair[0] == "-blockdev");
        let nodes: Vec<serde_json::Value> =
            nodes.map(|pair| serde_json::from_str(&pair[1]).unwrap()).collect();
        let drivers: Vec<&str> = nodes.iter().map(|node| node["driver"].as_str().unwrap()).collect();
        assert_eq!(drivers, [driver, "raw"]);
        assert!(nodes.iter().all(|node| node["discard"] == "unmap"), "{nodes:?}");
    }
}

fn split(word: &str) -> Vec<String> {
    word.replace(",,", "\u{0}").split(',').map(|part| part.replace('\u{0}', ",")).collect()
}

proptest! {
    #[test]
    fn names_stay_within_their_options(name in "[^\0]{0,40}", uuid in "[a-f0-9-]{36}", disk in "[^\0]{0,40}", kind in "[^\0]{1,20}") {
        let mut plan = small();
        plan.name = name.clone();
        plan.uuid = uuid;
        plan.machine_type = kind.clone();
        let image = DiskImage::Raw("/d".into());
        plan.disks = vec![DiskPlan { name: disk.clone(), image, read_only: true, discard: false }];
        let words = arguments(&plan, &descriptors(&plan)).unwrap();
        let after = |option: &str, start: &str| {
            let place = words.windows(2).find(|pair| pair[0] == option && pair[1].starts_with(start));
            split(&place.unwrap()[1])
        };
        prop_assert_eq!(after("-name", ""), [format!("guest={name}"), "debug-threads=on".to_owned()]);
        prop_assert_eq!(after("-machine", ""), [kind, "vmport=off".to_owned()]);
        let front = after("-device", "virtio-blk-pci");
        prop_assert_eq!(front.len(), if disk.is_empty() { 5 } else { 6 });
        prop_assert!(disk.is_empty() || disk.starts_with(front[3].strip_prefix("serial=").unwrap()));
    }

    #[test]
    fn no_two_devices_share_an_address(disks in 0..=MOST_DISKS, interfaces in 0usize..=8) {
        let mut plan = small();
        let disk = DiskPlan { name: "d".into(), image: DiskImage::Raw("/d".into()), read_only: false, discard: true };
        plan.disks = vec![disk; disks];
        let backend = Backend::User { forwards: vec![] };
        plan.interfaces = vec![InterfacePlan { mac: [0; 6], mtu: None, backend }; interfaces];
        let words = arguments(&plan, &descriptors(&plan)).unwrap();
        let devices: Vec<&String> = words.windows(2).filter(|pair| pair[0] == "-device" && pair[1].contains("-pci")).map(|pair| &pair[1]).collect();
        let mut seen = BTreeSet::new();
        for device in &devices {
            let address = device.split(',').find_map(|part| part.strip_prefix("addr="));
            let address = address.unwrap();
            let (slot, function) = address.split_once('.').unwrap_or((address, "0x0"));
            let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
            let (slot, function) = (number(slot), number(function));
            prop_assert!((1..0x1f).contains(&slot) && function < 8, "{}", device);
            prop_assert!(seen.insert((slot, function)), "{}", device);
            prop_assert!(function == 0 || seen.contains(&(slot, 0)));
        }
        prop_assert_eq!(devices.len(), 4 + disks + interfaces);
    }
}

/// The name is that which the memory had when it was stored, and the order of memories as well.
#[test]
fn memory_can_be_a_file() {
    let objects = |min: u32, max: u32| {
        let memory =
            MemoryPlan { min: Bytes::mib(min), start: Bytes::mib(min), max: Bytes::mib(max), exact: false };
        let plan = MachinePlan { memory, ..small() };
        let file = MemoryFile { path: "/proc/self/fd/9/woken".into(), offset: 2 << 20 };
        let words = arguments(&plan, &Descriptors { memory: Some(file), ..descriptors(&plan) }).unwrap();
        assert!(words.contains(&"pc-q35-7.2,vmport=off,memory-backend=pc.ram".to_owned()));
        words.into_iter().filter(|word| word.starts_with("memory-backend")).collect::<Vec<_>>()
    };
    let file = "memory-backend-file,id=pc.ram,size=2147483648b,mem-path=/proc/self/fd/9/woken,offset=2097152,\
                share=off,readonly=on,rom=off";
    assert_eq!(objects(2048, 2048), [file]);
    let device = |bytes: u64| format!("memory-backend-ram,id=vmem0,size={bytes}b,reserve=off");
    assert_eq!(objects(2048, 3072), [file.to_owned(), device(1 << 30)]);
    assert_eq!(objects(2048, 4096), [device(2 << 30), file.to_owned()]);
}
