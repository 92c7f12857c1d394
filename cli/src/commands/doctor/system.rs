//! What the kernel of this machine offers.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::programs::ask;
use crate::commands::checks::finding::{Finding, fail, ok, warn};
use crate::env::Env;
use crate::error::reason;

/// Free space below which a cluster soon stands still, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;
/// Free space without which it cannot start, in bytes.
const NO_SPACE: u64 = 64 << 20;
/// Open files that the services of a cluster with some machines need.
const FILES: u64 = 4096;
/// How long `ip` may take.
const DEADLINE: Duration = Duration::from_secs(5);

pub(super) fn disk(root: &Path) -> Finding {
    // The directory may not exist yet; what counts is where it will be.
    let place = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(place) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let detail = format!("{} MiB free at {}", free >> 20, place.display());
            if free < NO_SPACE {
                fail("disk", detail, "free some space, or choose another --data-dir")
            } else if free < LITTLE_SPACE {
                warn("disk", detail, "free some space, or choose another --data-dir")
            } else {
                ok("disk", detail)
            }
        }
        Err(error) => fail(
            "disk",
            format!("cannot examine {}: {}", place.display(), reason(&error.into())),
            "choose another --data-dir",
        ),
    }
}

pub(super) fn ports() -> Finding {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => ok("ports", "127.0.0.1 has free ports"),
        Err(error) => fail("ports", reason(&error), "bring up the loopback interface: ip link set lo up"),
    }
}

pub(super) fn privileges(root: bool) -> Finding {
    if root {
        return ok("privileges", "root: several nodes, each pod in a network namespace of its own");
    }
    ok("privileges", "not root: one node, VMs with user-mode networking")
}

pub(super) fn tun(root: bool) -> Finding {
    let path = Path::new("/dev/net/tun");
    if !root {
        return ok("tun", "not needed without root");
    }
    let remedy = "modprobe tun; in a container add the device: --device /dev/net/tun";
    match std::fs::File::options().read(true).write(true).open(path) {
        Ok(_) => ok("tun", path.display().to_string()),
        // Runners make the device file where they may; then the kernel has it or not.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && has_tun() => {
            ok("tun", "supported by the kernel; the device file is created on demand")
        }
        Err(error) => fail("tun", format!("{}: {}", path.display(), reason(&error)), remedy),
    }
}

fn has_tun() -> bool {
    std::fs::read_to_string("/proc/misc").unwrap_or_default().split_whitespace().any(|word| word == "tun")
}

/// Whether a network namespace can be made: one is, and removed.
pub(super) fn namespaces(env: &Env, root: bool) -> Option<Finding> {
    let ip = env.program("ip").filter(|_| root)?;
    let name = own_name();
    let remedy = "run in a privileged container or on the host itself, or start with --user-network";
    Some(match ask(&ip, &["netns", "add", &name], DEADLINE) {
        Ok(made) if made.success => match ask(&ip, &["netns", "delete", &name], DEADLINE) {
            Ok(gone) if gone.success => ok("namespaces", "network namespaces can be created"),
            _ => warn(
                "namespaces",
                format!("created the namespace {name} but cannot remove it"),
                format!("ip netns delete {name}"),
            ),
        },
        Ok(answer) => {
            fail("namespaces", format!("cannot create a network namespace: {}", answer.complaint), remedy)
        }
        Err(error) => fail("namespaces", format!("ip netns add: {}", error.message), remedy),
    })
}

fn own_name() -> String {
    let nanos = jiff::Timestamp::now().subsec_nanosecond();
    format!("neonvm-doctor-{}-{nanos}", std::process::id())
}

/// Whether CPU can be limited: a group is made in the hierarchy of the controller, and removed.
pub(super) fn cgroup(base: &Path) -> Finding {
    let less = "VMs will not be limited to their CPU";
    let Some((version, root)) = hierarchy(base) else {
        return warn(
            "cgroup",
            format!("no cpu controller is mounted; {less}"),
            "mount -t cgroup2 none /sys/fs/cgroup",
        );
    };
    let group = root.join(own_name());
    match std::fs::create_dir(&group).and_then(|()| std::fs::remove_dir(&group)) {
        Ok(()) => ok("cgroup", format!("version {version}, writable, at {}", root.display())),
        Err(error) => warn(
            "cgroup",
            format!("version {version} at {} is not writable: {}; {less}", root.display(), reason(&error)),
            "run as root, or have the cpu controller delegated to your user",
        ),
    }
}

/// The hierarchy with the cpu controller and its version. On hybrid machines that of version 1 has it.
fn hierarchy(base: &Path) -> Option<(u8, PathBuf)> {
    let first = ["cpu", "cpu,cpuacct", "cpuacct,cpu"].map(|name| base.join(name));
    if let Some(root) = first.into_iter().find(|root| root.join("cpu.shares").exists()) {
        return Some((1, root));
    }
    let controllers = std::fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "cpu").then(|| (2, base.to_owned()))
}

pub(super) fn limits() -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile);
    let files = match limit.maximum {
        Some(most) if most < FILES => {
            let detail = format!("at most {most}; a cluster with several VMs requires {FILES}");
            warn(
                "open files",
                detail,
                format!("raise the limit: ulimit -n {FILES}, or LimitNOFILE= of the service"),
            )
        }
        most => ok(
            "open files",
            format!("at most {}", most.map_or_else(|| "any number".to_owned(), |n| n.to_string())),
        ),
    };
    let mut checks = vec![files];
    for (name, file, least) in
        [("inotify instances", "max_user_instances", 128_u64), ("inotify watches", "max_user_watches", 8192)]
    {
        let path = Path::new("/proc/sys/fs/inotify").join(file);
        // Kernels without it need none.
        let Some(found) = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
        else {
            continue;
        };
        checks.push(if found < least {
            warn(name, format!("at most {found}"), format!("sysctl -w fs.inotify.{file}={least}"))
        } else {
            ok(name, format!("at most {found}"))
        });
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::checks::finding::Verdict;

    #[test]
    fn the_hierarchy_with_the_cpu_controller() {
        let base = tempfile::tempdir().unwrap();
        let (base, write) = (base.path(), |name: &str, text: &str| {
            let path = base.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        });
        assert_eq!(cgroup(base).verdict, Verdict::Warn);
        write("cgroup.controllers", "memory io\n");
        assert_eq!(hierarchy(base), None);
        write("cgroup.controllers", "cpu memory\n");
        assert_eq!(hierarchy(base), Some((2, base.to_owned())));
        assert!(cgroup(base).detail.starts_with("version 2, writable"));
        write("cpu,cpuacct/cpu.shares", "1024");
        assert_eq!(hierarchy(base), Some((1, base.join("cpu,cpuacct"))));
        assert_eq!(std::fs::read_dir(base).unwrap().count(), 2, "nothing stays");
    }
}
