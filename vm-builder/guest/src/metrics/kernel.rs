//! Metrics from texts of `/proc`.

use std::collections::{BTreeMap, BTreeSet};

use neonvm_types::exposition::{Kind, double};

use super::text::Text;

/// `USER_HZ`: the fraction of a second in which Linux counts processor time on every architecture.
const TICKS: f64 = 100.0;
/// Sectors in `/proc/diskstats` have 512 bytes whatever the device's own sectors are.
const SECTOR: u64 = 512;
/// Size of a page in `/proc/vmstat` on the VMs we run on.
const PAGE: u64 = 4096;
/// Most devices of a kind that get series.
const MOST_DEVICES: usize = 64;

pub(super) fn cpu(stat: &str, present: &str, text: &mut Text) {
    // Columns of /proc/stat: user nice system idle iowait irq softirq steal.
    const MODES: [(&str, usize); 8] = [
        ("idle", 3),
        ("io_wait", 4),
        ("irq", 5),
        ("nice", 1),
        ("softirq", 6),
        ("steal", 7),
        ("system", 2),
        ("user", 0),
    ];
    text.collector("cpu");
    text.family("host_cpu_seconds_total", Kind::Counter, "Seconds each processor spent in each mode.");
    let mut online = 0u64;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")) else { continue };
        if number.parse::<u16>().is_err() {
            continue;
        }
        online += 1;
        let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        for (mode, column) in MODES {
            if let Some(time) = times.get(column) {
                text.sample(&[("cpu", number), ("mode", mode)], double(*time) / TICKS);
            }
        }
    }
    let known = (online > 0).then(|| double(online));
    text.single("host_logical_cpus", Kind::Gauge, "Processors that are online.", known);
    let present = crate::cpu::parse(present).ok().map(|present| double(present.len() as u64));
    let help = "Processors that are there, online or not.";
    text.single("host_physical_cpus", Kind::Gauge, help, present.filter(|number| *number > 0.0));
}

pub(super) fn load(load: &str, text: &mut Text) {
    text.collector("load");
    let mut words = load.split_ascii_whitespace().map(|word| word.parse().ok());
    for (name, help) in [
        ("host_load1", "System load averaged over the last minute."),
        ("host_load5", "System load averaged over the last 5 minutes."),
        ("host_load15", "System load averaged over the last 15 minutes."),
    ] {
        text.single(name, Kind::Gauge, help, words.next().flatten());
    }
}

pub(super) fn host(uptime: &str, stat: &str, text: &mut Text) {
    text.collector("host");
    let uptime = uptime.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    text.single("host_uptime", Kind::Gauge, "Seconds since the kernel started.", uptime);
    let boot = keyed(stat, "btime").map(double);
    text.single("host_boot_time", Kind::Gauge, "When the kernel started, in Unix seconds.", boot);
}

/// The number after `key` at the start of a line.
fn keyed(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix([' ', ':']))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

pub(super) fn memory(memory: &str, vmstat: &str, text: &mut Text) {
    text.collector("memory");
    let bytes = |key: &str| keyed(memory, key)?.checked_mul(1024);
    let mut gauge = |name, help, value: Option<u64>| text.single(name, Kind::Gauge, help, value.map(double));
    let (total, free) = (bytes("MemTotal"), bytes("MemFree"));
    gauge("host_memory_total_bytes", "Memory the kernel can use.", total);
    gauge("host_memory_free_bytes", "Memory used for nothing.", free);
    gauge("host_memory_available_bytes", "Memory that can be had without swapping.", bytes("MemAvailable"));
    gauge("host_memory_active_bytes", "Memory used recently.", bytes("Active"));
    gauge("host_memory_inactive_bytes", "Memory not used recently.", bytes("Inactive"));
    gauge("host_memory_buffers_bytes", "Memory for raw disk blocks.", bytes("Buffers"));
    gauge("host_memory_cached_bytes", "Memory for contents of files.", bytes("Cached"));
    gauge("host_memory_shared_bytes", "Memory shared, including tmpfs.", bytes("Shmem"));
    let used = total.and_then(|total| total.checked_sub(free?));
    gauge("host_memory_used_bytes", "Memory used for anything.", used);
    let (total, free) = (bytes("SwapTotal"), bytes("SwapFree"));
    gauge("host_memory_swap_total_bytes", "Swap space.", total);
    gauge("host_memory_swap_free_bytes", "Swap space not used.", free);
    let used = total.and_then(|total| total.checked_sub(free?));
    gauge("host_memory_swap_used_bytes", "Swap space used.", used);
    let mut counter =
        |name, help, value: Option<u64>| text.single(name, Kind::Counter, help, value.map(double));
    let pages = |key| keyed(vmstat, key)?.checked_mul(PAGE);
    counter("host_memory_swapped_in_bytes_total", "Bytes read back from swap.", pages("pswpin"));
    counter("host_memory_swapped_out_bytes_total", "Bytes written to swap.", pages("pswpout"));
    let help = "Processes killed for want of memory.";
    counter("host_memory_oom_kill_events_total", help, keyed(vmstat, "oom_kill"));
}

pub(super) fn disks(disks: &str, text: &mut Text) {
    // Columns of /proc/diskstats after the name: reads, merged, sectors read, ms, writes, merged, sectors written.
    const FAMILIES: [(&str, &str, usize, u64); 4] = [
        ("host_disk_read_bytes_total", "Bytes read.", 2, SECTOR),
        ("host_disk_reads_completed_total", "Reads completed.", 0, 1),
        ("host_disk_written_bytes_total", "Bytes written.", 6, SECTOR),
        ("host_disk_writes_completed_total", "Writes completed.", 4, 1),
    ];
    let parse = |line: &str| -> Option<(String, Vec<u64>)> {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name =
            words.next().filter(|name| !["loop", "ram", "zram"].iter().any(|p| name.starts_with(p)))?;
        Some((name.to_owned(), words.map_while(|word| word.parse().ok()).collect()))
    };
    let devices: BTreeMap<_, _> = disks.lines().filter_map(parse).take(MOST_DEVICES).collect();
    text.collector("disk");
    for (family, help, column, unit) in FAMILIES {
        text.family(family, Kind::Counter, help);
        for (device, columns) in &devices {
            if let Some(value) = columns.get(column) {
                text.sample(&[("device", device)], double(value.saturating_mul(unit)));
            }
        }
    }
}

pub(super) fn network(network: &str, text: &mut Text) {
    // Columns of /proc/net/dev after the name: receive bytes packets errs drop …, from column 8 transmit likewise.
    const FAMILIES: [(&str, &str, usize); 8] = [
        ("host_network_receive_bytes_total", "Bytes received.", 0),
        ("host_network_receive_errs_total", "Receive errors.", 2),
        ("host_network_receive_packets_total", "Packets received.", 1),
        ("host_network_receive_packets_drop_total", "Packets received and dropped.", 3),
        ("host_network_transmit_bytes_total", "Bytes sent.", 8),
        ("host_network_transmit_errs_total", "Transmit errors.", 10),
        ("host_network_transmit_packets_total", "Packets sent.", 9),
        ("host_network_transmit_packets_drop_total", "Packets to send dropped.", 11),
    ];
    // One end of each container's link: they come and go, and their names are random.
    const PASSING: [&str; 4] = ["veth", "cali", "lxc", "br-"];
    let parse = |line: &str| -> Option<(String, Vec<u64>)> {
        let (name, columns) = line.rsplit_once(':')?;
        let name = name.trim();
        if name.is_empty() || PASSING.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let columns = columns.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        Some((name.to_owned(), columns))
    };
    let devices: BTreeMap<_, _> = network.lines().filter_map(parse).take(MOST_DEVICES).collect();
    text.collector("network");
    for (family, help, column) in FAMILIES {
        text.family(family, Kind::Counter, help);
        for (device, columns) in &devices {
            if let Some(value) = columns.get(column) {
                text.sample(&[("device", device)], double(*value));
            }
        }
    }
}

pub(super) fn pressure([cpu, memory, io]: &[String; 3], text: &mut Text) {
    text.collector("pressure");
    for (name, source, kind, help) in [
        ("host_pressure_cpu_waiting_seconds_total", cpu, "some", "Time a task waited for a processor."),
        ("host_pressure_memory_waiting_seconds_total", memory, "some", "Time a task waited for memory."),
        ("host_pressure_memory_stalled_seconds_total", memory, "full", "Time all tasks waited for memory."),
        ("host_pressure_io_waiting_seconds_total", io, "some", "Time a task waited for input or output."),
        ("host_pressure_io_stalled_seconds_total", io, "full", "Time all tasks waited for input or output."),
    ] {
        let total = pressure_word(source, kind, "total=").and_then(|total| total.parse::<u64>().ok());
        text.single(name, Kind::Counter, help, total.map(|microseconds| double(microseconds) / 1e6));
    }
    for (name, source, help) in [
        (
            "host_pressure_cpu_some_avg10",
            cpu,
            "Share of the last 10 s in which a task waited for a processor, in percent.",
        ),
        (
            "host_pressure_memory_some_avg10",
            memory,
            "Share of the last 10 s in which a task waited for memory, in percent.",
        ),
        (
            "host_pressure_io_some_avg10",
            io,
            "Share of the last 10 s in which a task waited for input or output, in percent.",
        ),
    ] {
        let share = pressure_word(source, "some", "avg10=").and_then(|share| share.parse().ok());
        text.single(name, Kind::Gauge, help, share.filter(|share| (0.0..=100.0).contains(share)));
    }
}

/// What follows `key` in the line `kind` of a pressure file.
fn pressure_word<'a>(source: &'a str, kind: &str, key: &str) -> Option<&'a str> {
    source.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next().filter(|word| *word == kind)?;
        words.find_map(|word| word.strip_prefix(key))
    })
}

/// Keeps each first of what repeats; the format allows a label set once a family.
pub(super) fn first_of_each<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(key(item))).collect()
}
