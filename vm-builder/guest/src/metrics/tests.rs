use std::collections::{BTreeMap, BTreeSet};

use prometheus_parse::{Scrape, Value};
use proptest::prelude::*;

use super::*;

const STAT: &str = "cpu  100 0 50 1000 5 1 2 3 0 0\ncpu0 60 1 30 500 2 1 1 2 0 0\ncpu2 40 0 20 500 3 0 1 1 0 0\n\
    intr 1 2 3\nctxt 5\nbtime 1700000000\nprocesses 9\n";
const MEMORY: &str = "MemTotal:        1000000 kB\nMemFree:          200000 kB\nMemAvailable:     600000 kB\n\
    Buffers:           10000 kB\nCached:           300000 kB\nSwapCached:            0 kB\nActive:           100000 kB\n\
    Inactive:         250000 kB\nActive(anon):      50000 kB\nShmem:              4000 kB\nSwapTotal:          2000 kB\n\
    SwapFree:           1500 kB\n";
const DISKS: &str =
    " 254       0 vda 10 1 20 5 30 2 40 6 0 7 8 0 0 0 0 9 9\n   7       0 loop0 1 0 2 0 0 0 0 0 0 0 0\n";
const NETWORK: &str = "Inter-|   Receive                                                |  Transmit\n \
    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier \
    compressed\n    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     \
    0       0          0\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nveth1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
const PRESSURE: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=500000\n";

fn sources() -> Sources {
    let mounted =
        Mounted { device: "/dev/vda".into(), mountpoint: "/a \"b\"\\".into(), filesystem: "ext4".into() };
    Sources {
        hostname: "vm-1\n".into(),
        stat: STAT.into(),
        cores: "0-3\n".into(),
        load: "0.50 1.25 2.00 1/100 4242\n".into(),
        uptime: "12.34 45.67\n".into(),
        memory: MEMORY.into(),
        vmstat: "pswpin 3\npswpout 4\noom_kill 1\n".into(),
        disks: DISKS.into(),
        network: NETWORK.into(),
        pressure: [PRESSURE.into(), PRESSURE.into(), PRESSURE.into()],
        filesystems: vec![(
            mounted,
            Usage { total: 1000, free: 500, available: 400, inodes: 10, inodes_free: 4 },
        )],
        serials: vec![("/dev/vda".into(), "data".into())],
        groups: vec![Group {
            name: "workload".into(),
            cpu: "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n".into(),
            memory: "4096\n".into(),
            memory_stat: "anon 1000\nfile 2000\nanon_thp 5\n".into(),
        }],
    }
}

fn parse(page: &str) -> Scrape {
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

/// Values by name and labels other than `collector` and `host`.
fn values(page: &str) -> BTreeMap<String, f64> {
    let sample = |sample: prometheus_parse::Sample| {
        let labels: BTreeMap<_, _> = sample
            .labels
            .iter()
            .filter(|(name, _)| !["collector", "host"].contains(&name.as_str()))
            .collect();
        let value = match sample.value {
            Value::Counter(value) | Value::Gauge(value) => value,
            other => panic!("{}: {other:?}", sample.metric),
        };
        let labels: Vec<_> = labels.into_values().map(String::as_str).collect();
        (format!("{}{{{}}}", sample.metric, labels.join(",")), value)
    };
    parse(page).samples.into_iter().map(sample).collect()
}

#[test]
fn values_are_those_of_the_kernel() {
    let values = values(&render(&sources()));
    for (name, value) in [
        ("host_cpu_seconds_total{0,idle}", 5.0),
        ("host_cpu_seconds_total{2,io_wait}", 0.03),
        ("host_logical_cpus{}", 2.0),
        ("host_physical_cpus{}", 4.0),
        ("host_load1{}", 0.5),
        ("host_load5{}", 1.25),
        ("host_load15{}", 2.0),
        ("host_uptime{}", 12.34),
        ("host_boot_time{}", 1_700_000_000.0),
        ("host_memory_total_bytes{}", 1_024_000_000.0),
        ("host_memory_available_bytes{}", 614_400_000.0),
        ("host_memory_cached_bytes{}", 307_200_000.0),
        ("host_memory_active_bytes{}", 102_400_000.0),
        ("host_memory_used_bytes{}", 819_200_000.0),
        ("host_memory_swap_used_bytes{}", 512_000.0),
        ("host_memory_swapped_out_bytes_total{}", 16_384.0),
        ("host_memory_oom_kill_events_total{}", 1.0),
        ("host_disk_read_bytes_total{vda}", 10_240.0),
        ("host_disk_writes_completed_total{vda}", 30.0),
        ("host_network_receive_packets_total{eth0}", 2.0),
        ("host_network_transmit_packets_drop_total{eth0}", 12.0),
        // The parser leaves escapes as they are.
        (r#"host_filesystem_used_bytes{/dev/vda,ext4,/a \"b\"\\}"#, 500.0),
        (r#"host_filesystem_free_bytes{/dev/vda,ext4,/a \"b\"\\}"#, 400.0),
        (r#"host_filesystem_files{/dev/vda,ext4,/a \"b\"\\}"#, 10.0),
        (r#"host_filesystem_files_free{/dev/vda,ext4,/a \"b\"\\}"#, 4.0),
        ("neonvm_guest_disk_info{/dev/vda,data}", 1.0),
        ("host_cgroup_cpu_usage_seconds_total{workload}", 3.0),
        ("host_cgroup_memory_current_bytes{workload}", 4096.0),
        ("host_cgroup_memory_anon_bytes{workload}", 1000.0),
        ("host_pressure_cpu_waiting_seconds_total{}", 2.5),
        ("host_pressure_io_stalled_seconds_total{}", 0.5),
        (&format!("neonvm_guest_info{{{}}}", env!("CARGO_PKG_VERSION")), 1.0),
    ] {
        assert_eq!(values.get(name), Some(&value), "{name} in {values:#?}");
    }
    assert!(!values.keys().any(|name| name.contains("loop0") || name.contains("veth1")));
}

/// The agent refuses a page in which one of these is no gauge or has not exactly one sample.
/// Agents refuse a scrape in which one of these is missing, of another type or there twice.
#[test]
fn what_the_agent_reads_is_a_single_gauge() {
    let samples = parse(&render(&sources())).samples;
    for name in [
        "host_load1",
        "host_load5",
        "host_memory_total_bytes",
        "host_memory_available_bytes",
        "host_memory_cached_bytes",
        "host_pressure_cpu_some_avg10",
        "host_pressure_memory_some_avg10",
        "host_pressure_io_some_avg10",
    ] {
        let found: Vec<_> = samples.iter().filter(|sample| sample.metric == name).collect();
        assert!(
            matches!(found[..], [sample] if matches!(sample.value, Value::Gauge(_))),
            "{name}: {found:?}"
        );
        assert_eq!(found[0].labels.get("host"), Some("vm-1"));
    }
}

#[test]
fn unknown_values_are_left_out() {
    assert_eq!(values(&render(&Sources::default())).len(), 1);
}

#[test]
fn this_machine_is_described() {
    let values = values(&collect(Path::new("/")));
    assert!(values["host_memory_total_bytes{}"] > 1e6);
    assert!(values["host_logical_cpus{}"] >= 1.0);
    assert!(values.keys().any(|name| name.starts_with("host_filesystem_total_bytes")));
    assert!(!values.keys().any(|name| name.contains("binfmt")));
}

#[test]
fn groups_are_limited_in_depth_and_number() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("cgroup.controllers"), "").unwrap();
    std::fs::create_dir_all(root.path().join("a/b/c/d")).unwrap();
    let names: Vec<_> = cgroup::collect(root.path()).into_iter().map(|group| group.name).collect();
    assert_eq!(names, ["/", "a", "a/b"]);
    for number in 0..100 {
        std::fs::create_dir(root.path().join(format!("a/{number}"))).unwrap();
    }
    assert_eq!(cgroup::collect(root.path()).len(), 32);
}

/// Every line is a comment or a sample, every family comes once with its type before its samples.
fn check(page: &str) {
    let mut families = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut family = String::new();
    for line in page.split_terminator('\n') {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} twice");
        } else if !line.starts_with("# HELP ") {
            assert!(line.starts_with(&family), "{line}");
            let (labels, value) = line.rsplit_once(' ').unwrap();
            assert!(series.insert(labels.to_owned()), "{labels} twice");
            assert!(value.parse::<f64>().unwrap().is_finite());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_make_a_well_formed_page(
        bytes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 12),
        cut in any::<prop::sample::Index>(),
    ) {
        let noise = |n: usize| String::from_utf8_lossy(&bytes[n]).into_owned();
        let whole = sources();
        let mixed = |text: &str, n: usize| {
            let at = cut.index(text.len() + 1);
            format!("{}{}{}", &text[..at], noise(n), &text[at..])
        };
        let sources = Sources {
            hostname: noise(0),
            stat: mixed(STAT, 1),
            cores: noise(2),
            load: mixed(&whole.load, 3),
            uptime: mixed(&whole.uptime, 4),
            memory: mixed(MEMORY, 5),
            vmstat: mixed(&whole.vmstat, 6),
            disks: mixed(DISKS, 7),
            network: mixed(NETWORK, 8),
            pressure: [mixed(PRESSURE, 9), noise(10), noise(11)],
            filesystems: vec![(Mounted { mountpoint: noise(3), ..Mounted::default() }, Usage::default())],
            serials: vec![(noise(1), noise(2))],
            groups: vec![Group { name: noise(4), cpu: noise(5), memory: noise(6), memory_stat: noise(7) }],
        };
        let page = render(&sources);
        check(&page);
        parse(&page);
    }

    #[test]
    fn any_table_of_mounts_is_read(text in "[ \\\\0-9a-z/\n]{0,200}") {
        filesystem::parse(&text);
    }
}
