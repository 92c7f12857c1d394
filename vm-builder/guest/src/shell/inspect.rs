//! Commands of the shell that inspect the VM.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;

/// Longest record of the kernel's log.
const LONGEST_RECORD: usize = 8192;

pub(super) fn ps(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{:>7} {:>7} S {:>9} COMMAND", "PID", "PPID", "RSS/KiB")?;
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        // A process may end while it is read.
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()).unwrap_or("0").to_owned()
        };
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let command = words.join(" ");
        let command = if command.trim().is_empty() { format!("[{}]", field("Name")) } else { command };
        let (parent, state, memory) = (field("PPid"), field("State"), field("VmRSS"));
        writeln!(output, "{pid:>7} {parent:>7} {state} {memory:>9} {}", command.trim_end())?;
    }
    Ok(())
}

pub(super) fn df(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{:<20} {:>12} {:>12} {:>12} MOUNTED ON", "DEVICE", "KIB", "USED", "FREE")?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mut seen = BTreeSet::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(place)) = (words.next(), words.next()) else { continue };
        let Ok(stat) = rustix::fs::statvfs(place) else { continue };
        let kibibytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize) / 1024;
        let (total, free) = (kibibytes(stat.f_blocks), kibibytes(stat.f_bfree));
        if total > 0 && seen.insert(place.to_owned()) {
            let used = total.saturating_sub(free);
            writeln!(output, "{device:<20} {total:>12} {used:>12} {:>12} {place}", kibibytes(stat.f_bavail))?;
        }
    }
    Ok(())
}

pub(super) fn free(output: &mut dyn Write) -> io::Result<()> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    let wanted = ["MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree"];
    let lines = memory.lines().filter(|line| wanted.iter().any(|name| line.split(':').next() == Some(name)));
    lines.into_iter().try_for_each(|line| writeln!(output, "{line}"))
}

pub(super) fn dmesg(output: &mut dyn Write) -> io::Result<()> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
    let mut record = vec![0; LONGEST_RECORD];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default()).into_owned();
                // `priority,number,microseconds,flags;text`, then lines of properties.
                let (head, text) = text.split_once(';').unwrap_or(("", &text));
                let time: u64 = head.split(',').nth(2).and_then(|time| time.parse().ok()).unwrap_or(0);
                let text = text.lines().next().unwrap_or_default();
                writeln!(output, "[{:>6}.{:06}] {text}", time / 1_000_000, time % 1_000_000)?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // Records were overwritten before they were read; the next read continues behind them.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Local addresses, from the kernel's routing tables, and the links with their traffic.
pub(super) fn addresses(output: &mut dyn Write) -> io::Result<()> {
    for line in fs::read_to_string("/proc/net/dev")?.lines().skip(2) {
        let Some((name, columns)) = line.split_once(':') else { continue };
        let columns: Vec<_> = columns.split_whitespace().collect();
        let (received, sent) = (columns.first().unwrap_or(&"0"), columns.get(8).unwrap_or(&"0"));
        let name = name.trim();
        let read =
            |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default();
        let (state, hardware) = (read("operstate"), read("address"));
        let (state, hardware) = (state.trim(), hardware.trim());
        writeln!(output, "{name}: {state} {hardware} received {received} sent {sent} bytes")?;
    }
    let tree = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut local = BTreeSet::new();
    let mut last = "";
    for line in tree.lines() {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            last = address;
        } else if line.contains("/32 host LOCAL") {
            local.insert(last);
        }
    }
    local.into_iter().try_for_each(|address| writeln!(output, "inet {address}"))?;
    for line in fs::read_to_string("/proc/net/if_inet6").unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let bits = words.next().and_then(|digits| u128::from_str_radix(digits, 16).ok());
        if let (Some(bits), Some(name)) = (bits, words.last()) {
            writeln!(output, "inet6 {} {name}", std::net::Ipv6Addr::from(bits))?;
        }
    }
    Ok(())
}
