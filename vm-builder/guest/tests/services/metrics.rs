//! A scrape of this machine.

use std::collections::BTreeSet;
use std::path::Path;

use crate::process::{Daemon, request, wait_until};

#[test]
fn this_machine_is_scraped() {
    let daemon = Daemon::start(Path::new("/"), &[]);
    let (status, page) = request(daemon.metrics, "GET", "/metrics", b"");
    assert_eq!(status, 200);
    let scrape = prometheus_parse::Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let names: BTreeSet<&str> = scrape.samples.iter().map(|sample| sample.metric.as_str()).collect();
    for name in [
        "host_cpu_seconds_total",
        "host_load1",
        "host_load5",
        "host_load15",
        "host_memory_total_bytes",
        "host_memory_available_bytes",
        "host_memory_cached_bytes",
        "host_filesystem_total_bytes",
        "host_network_receive_bytes_total",
        "host_uptime",
        "host_boot_time",
        "neonvm_guest_info",
    ] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    assert_eq!(request(daemon.metrics, "GET", "/", b"").0, 404);
    assert_eq!(request(daemon.metrics, "POST", "/metrics", b"").0, 404);
}

/// The daemon is in every VM: what it holds is watched. Debug builds are larger, hence the room.
#[test]
fn an_idle_daemon_is_small() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(Path::new("/"), &[]);
    for _ in 0..20 {
        assert_eq!(request(daemon.metrics, "GET", "/metrics", b"").0, 200);
    }
    // What an upload needs is given back.
    let body = format!(r#"{{"large":{{"data":"{}"}}}}"#, "A".repeat(12 << 20));
    let path = format!("/files{}", directory.path().display());
    for _ in 0..2 {
        assert_eq!(daemon.request("PUT", &path, body.as_bytes()), (200, String::new()));
    }
    let kibibytes = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        anonymous.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // The answer is out before what was needed for it is given back.
    wait_until("4 MiB of its own memory at most", || kibibytes() < 4096);
}
