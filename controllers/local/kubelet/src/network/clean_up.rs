//! Removes everything of a cluster outside its directory.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{host, namespaces};
use crate::cgroup::{Hierarchy, KILLED};
use crate::naming;
use crate::pod::state_file;
use crate::stop::{RunningPod, await_end, stop_all};

fn quietly(program: &str, arguments: &[&str]) -> io::Result<bool> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) => Ok(status.success()),
        // Without the program nothing of the sort can have been made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a directory of a cluster of this user. Who cannot look into its parent, which belongs to root, has none there.
fn remove_directory(directory: &Path) -> io::Result<()> {
    let seen = directory.symlink_metadata();
    if seen
        .is_err_and(|error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied))
    {
        return Ok(());
    }
    std::fs::remove_dir_all(directory)
}

/// Removes rules from chains of other programs.
fn firewall(cluster: &str) -> io::Result<()> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(super::firewall::remove(cluster))
    };
    // The caller may be in a runtime of its own.
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|_| Err(io::Error::other("the removal of rules failed")))
}

/// Ends the runners of a cluster and removes its cgroups, network namespaces, interfaces, rules and routes. For a
/// cluster after its services have ended: `cluster` is its identity, `data` its directory, of which nothing is removed.
/// Runners are requested to stop first, as [`stop_all`] does, and killed after `longest`; those that had to be are
/// returned. Blocks.
///
/// # Errors
/// If something cannot be removed; everything else is, all the same.
pub fn clean_up(cluster: &str, data: &Path, longest: Duration) -> io::Result<Vec<RunningPod>> {
    let killed = stop_all(data, longest);
    let mut failed = None;
    let mut keep = |result: io::Result<()>| {
        if let Err(error) = result {
            failed.get_or_insert(error);
        }
    };
    state_file::kill_all(&data.join("nodes"));
    await_end(&killed, KILLED);
    if let Some(hierarchy) = Hierarchy::find() {
        keep(hierarchy.remove(&naming::cluster_cgroup(cluster)));
    }
    for name in namespaces::names(&naming::namespace_prefix(cluster)).unwrap_or_default() {
        if !matches!(quietly("ip", &["netns", "del", &name]), Ok(true)) {
            keep(crate::files::remove(&super::namespace_path(&name)));
        }
    }
    // Links of nodes begin with the name of the bridge.
    let bridge = naming::bridge(cluster);
    for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with(&bridge))
            && !quietly("ip", &["link", "del", name])?
            && entry.path().exists()
        {
            keep(Err(io::Error::other(format!("the interface {name} cannot be removed"))));
        }
    }
    keep(firewall(cluster));
    quietly("nft", &["delete", "table", "ip", &naming::table(cluster)])?;
    let directory = host::directory(cluster);
    if let Ok(device) = std::fs::read_to_string(directory.join(host::FORWARDING)) {
        keep(std::fs::write(
            Path::new("/proc/sys/net/ipv4/conf").join(device.trim()).join("forwarding"),
            "0",
        ));
    }
    keep(remove_directory(&directory));
    failed.map_or(Ok(killed), Err)
}
