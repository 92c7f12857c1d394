//! Whether a VM is in use: counters of the kernel in the network namespace of the pod, where only this VM is.

use std::path::Path;

use neonvm_types::node_protocol::{OVERLAY_TAP, TAP};

/// Where the kernel reports them.
const DIRECTORY: &str = "/proc/self/net";

/// Counters of the pod's network.
#[derive(Debug)]
pub(crate) struct Counters;

impl Counters {
    /// Packets that have passed between the guest and others than this process: those that the kernel has forwarded, and what the guest has
    /// sent on the overlay. Connections of this process into the guest are not forwarded, and do not count.
    pub(crate) fn packets() -> u64 {
        packets(Path::new(DIRECTORY))
    }
}

fn packets(directory: &Path) -> u64 {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let overlay = device(&read("dev"), OVERLAY_TAP).map_or(0, |(received, _)| received);
    forwarded(&read("snmp")) + forwarded_v6(&read("snmp6")) + overlay
}

/// Frames that were given to the guest's devices: one, or also that of the overlay. `None`: not known.
pub(super) fn delivered(devices: usize) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new(DIRECTORY).join("dev")).ok()?;
    let sent = |name: &str| device(&text, name).map(|(_, sent)| sent);
    let overlay = if devices > 1 { sent(OVERLAY_TAP)? } else { 0 };
    Some(sent(TAP)? + overlay)
}

/// Packets of a device in `/proc/net/dev` that the kernel has received from it and sent to it.
fn device(text: &str, name: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
    Some((numbers.nth(1)??, numbers.nth(7)??))
}

/// `ForwDatagrams` in `/proc/net/snmp`, where a line of names precedes that of the numbers.
fn forwarded(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let mut both = names.split(' ').zip(numbers.split(' '));
    both.find(|(name, _)| *name == "ForwDatagrams").and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// The same of IPv6, in `/proc/net/snmp6`.
fn forwarded_v6(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
    lines.next().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1030770    6519    0    0    0     0          0         0  1030770    6519    0    0    0     0       0          0
tap-def: 10  11 0 0 0 0 0 0 20 22 0 0 0 0 0 0
tap-overlay: 30  33 0 0 0 0 0 0 40 44 0 0 0 0 0 0
";

    #[test]
    fn reports_of_the_kernel_are_read() {
        assert_eq!(device(DEVICES, TAP), Some((11, 22)));
        assert_eq!(device(DEVICES, OVERLAY_TAP), Some((33, 44)));
        assert_eq!(device(DEVICES, "eth0"), None);
        let text =
            "Ip: Forwarding DefaultTTL InReceives ForwDatagrams InDelivers\nIp: 1 64 100 77 23\nIcmp: a\n";
        assert_eq!(forwarded(text), 77);
        assert_eq!(
            forwarded_v6("Ip6InReceives                   \t3\nIp6OutForwDatagrams             \t5\n"),
            5
        );
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(packets(directory.path()), 0, "a kernel that reports nothing");
        std::fs::write(directory.path().join("dev"), DEVICES).unwrap();
        std::fs::write(directory.path().join("snmp"), text).unwrap();
        assert_eq!(packets(directory.path()), 77 + 33);
    }
}
