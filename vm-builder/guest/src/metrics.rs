//! Metrics of the VM in the Prometheus text format.
//!
//! Names and labels are those of the `host_metrics` source of vector behind its Prometheus exporter, which agents read,
//! with those of our own added: pressure and inodes under node_exporter's names with `host_` for `node_`, and `neonvm_guest_…`.
//! Everything is read when a page is requested. Rendering is pure: texts of `/proc` in, text out.

mod cgroup;
mod filesystem;
mod kernel;
mod text;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use cgroup::Group;
pub use filesystem::{Mounted, Usage};
use neonvm_types::exposition::Kind;
use text::Text;

/// More of a file of `/proc` or `/sys` is not read.
const LARGEST: u64 = 1024 * 1024;

/// What is rendered: texts as the kernel gives them. Absent texts are empty; their metrics are left out.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `/proc/sys/kernel/hostname`.
    pub hostname: String,
    /// `/proc/stat`.
    pub stat: String,
    /// `/sys/devices/system/cpu/present`.
    pub cores: String,
    /// `/proc/loadavg`.
    pub load: String,
    /// `/proc/uptime`.
    pub uptime: String,
    /// `/proc/meminfo`.
    pub memory: String,
    /// `/proc/vmstat`.
    pub vmstat: String,
    /// `/proc/diskstats`.
    pub disks: String,
    /// `/proc/net/dev`.
    pub network: String,
    /// `/proc/pressure/cpu`, `memory` and `io`.
    pub pressure: [String; 3],
    /// File systems with their use.
    pub filesystems: Vec<(Mounted, Usage)>,
    /// Devices of the VM's disks, and their serial numbers.
    pub serials: Vec<(String, String)>,
    pub groups: Vec<Group>,
}

/// Reads all metrics of the guest with its `/` at `root` and renders them.
pub fn collect(root: &Path) -> String {
    let file = |path: &str| read(&root.join(path));
    let sources = Sources {
        hostname: file("proc/sys/kernel/hostname"),
        stat: file("proc/stat"),
        cores: file("sys/devices/system/cpu/present"),
        load: file("proc/loadavg"),
        uptime: file("proc/uptime"),
        memory: file("proc/meminfo"),
        vmstat: file("proc/vmstat"),
        disks: file("proc/diskstats"),
        network: file("proc/net/dev"),
        pressure: ["cpu", "memory", "io"].map(|name| file(&format!("proc/pressure/{name}"))),
        filesystems: filesystem::collect(root, &file("proc/self/mounts")),
        serials: filesystem::serials(root),
        groups: cgroup::collect(&root.join("sys/fs/cgroup")),
    };
    render(&sources)
}

/// The page for these sources. Whatever they hold, the page is well formed.
pub fn render(sources: &Sources) -> String {
    let mut text = Text::new(sources.hostname.trim());
    text.family("neonvm_guest_info", Kind::Gauge, "Version of the guest program.");
    text.plain(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    filesystem::render_serials(&sources.serials, &mut text);
    kernel::cpu(&sources.stat, &sources.cores, &mut text);
    kernel::load(&sources.load, &mut text);
    kernel::host(&sources.uptime, &sources.stat, &mut text);
    kernel::memory(&sources.memory, &sources.vmstat, &mut text);
    kernel::disks(&sources.disks, &mut text);
    kernel::network(&sources.network, &mut text);
    kernel::pressure(&sources.pressure, &mut text);
    filesystem::render(&sources.filesystems, &mut text);
    cgroup::render(&sources.groups, &mut text);
    text.finish()
}

/// The text of a file; empty if there is none, and with what is no text replaced.
pub fn read(path: &Path) -> String {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut content));
    if read.is_err() { String::new() } else { String::from_utf8_lossy(&content).into_owned() }
}

#[cfg(test)]
mod tests;
