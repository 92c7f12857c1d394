//! What a host may offer beyond what is required, and what its lack costs. Read from files of the kernel; nothing is
//! loaded or changed.

use std::path::Path;

use super::needs::{Feature, HUGE_PAGES, MEMORY_CONTROLLER, NESTED, USERFAULTFD, VHOST_NET, WIREGUARD};
use crate::commands::checks::finding::{Finding, ok, warn};
use crate::error::reason;

/// The features of the host whose file system is at `top`. Without `root` clusters have no network devices of their own.
pub(super) fn features(top: &Path, root: bool) -> Vec<Finding> {
    let mut checks = Vec::new();
    if root {
        checks.extend([vhost_net(top), wireguard(top)]);
    }
    checks.push(userfaultfd(top));
    checks.extend(memory_controller(top));
    checks.extend(huge_pages(top));
    checks.extend(nested(top));
    checks
}

fn lacking(feature: &Feature, what: impl std::fmt::Display) -> Finding {
    warn(feature.name, format!("{what}; {}", feature.cost), feature.remedy)
}

/// A file of the kernel, without the blank at its end; `None` if it is not there.
fn read(top: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(top.join(path)).ok()?;
    Some(text.trim().to_owned())
}

fn vhost_net(top: &Path) -> Finding {
    let device = top.join(VHOST_NET.word.trim_start_matches('/'));
    // A device file of a kernel without the driver cannot be opened.
    match std::fs::File::options().read(true).write(true).open(device) {
        Ok(_) => ok(VHOST_NET.name, VHOST_NET.word),
        Err(error) => lacking(&VHOST_NET, format!("{}: {}", VHOST_NET.word, reason(&error))),
    }
}

/// Loaded, built in, or loaded by the kernel when it is needed.
fn wireguard(top: &Path) -> Finding {
    let name = WIREGUARD.word;
    if top.join("sys/module").join(name).exists() {
        return ok(WIREGUARD.name, "loaded");
    }
    let release = read(top, "proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = Path::new("lib/modules").join(release);
    let has = |list: &str| {
        let text = std::fs::read_to_string(top.join(&modules).join(list)).unwrap_or_default();
        let file = format!("/{name}.ko");
        // A line of modules.dep is `PATH: NEEDED…`, and a path may end with the form of its compression.
        text.lines().any(|line| line.split(':').next().unwrap_or_default().contains(&file))
    };
    match (has("modules.builtin"), has("modules.dep")) {
        (true, _) => ok(WIREGUARD.name, "built in"),
        (_, true) => ok(WIREGUARD.name, "a module, loaded when it is needed"),
        _ => lacking(&WIREGUARD, "not in the kernel"),
    }
}

/// QEMU runs as a user without privileges.
fn userfaultfd(top: &Path) -> Finding {
    match read(top, "proc/sys/vm/unprivileged_userfaultfd").as_deref() {
        Some("1") => ok(USERFAULTFD.name, "allowed for unprivileged users"),
        Some(_) => lacking(&USERFAULTFD, format!("{} is 0", USERFAULTFD.word)),
        None => lacking(&USERFAULTFD, "not in the kernel").remedied(""),
    }
}

/// Version 2 alone: on older hierarchies controllers are mounts of their own.
fn memory_controller(top: &Path) -> Option<Finding> {
    let controllers = read(top, "sys/fs/cgroup/cgroup.controllers")?;
    Some(if controllers.split_whitespace().any(|name| name == "memory") {
        ok(MEMORY_CONTROLLER.name, format!("controllers: {controllers}"))
    } else {
        lacking(&MEMORY_CONTROLLER, format!("controllers: {controllers}"))
    })
}

/// `always [madvise] never`
fn huge_pages(top: &Path) -> Option<Finding> {
    let modes = read(top, "sys/kernel/mm/transparent_hugepage/enabled")?;
    let mode = modes.split_once('[')?.1.split_once(']')?.0;
    Some(match mode {
        "never" => lacking(&HUGE_PAGES, "transparent huge pages are off"),
        mode => ok(HUGE_PAGES.name, format!("transparent huge pages: {mode}")),
    })
}

fn nested(top: &Path) -> Option<Finding> {
    let module = ["kvm_intel", "kvm_amd"];
    let value = module.iter().find_map(|name| read(top, &format!("sys/module/{name}/parameters/nested")))?;
    Some(match value.as_str() {
        "Y" | "1" => ok(NESTED.name, "guests can run VMs with KVM"),
        _ => lacking(&NESTED, "off"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::checks::finding::Verdict;

    struct Host(tempfile::TempDir);

    impl Host {
        fn new(files: &[(&str, &str)]) -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = host.0.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            host
        }

        fn found(&self, root: bool) -> Vec<(&'static str, Verdict, String)> {
            let checks = features(self.0.path(), root);
            for check in &checks {
                assert!(check.verdict == Verdict::Ok || check.detail.contains("; "), "{check:?}: no cost");
            }
            checks.into_iter().map(|check| (check.name, check.verdict, check.detail)).collect()
        }
    }

    #[test]
    fn a_host_with_everything() {
        let host = Host::new(&[
            ("dev/vhost-net", ""),
            ("proc/sys/kernel/osrelease", "6.12\n"),
            (
                "lib/modules/6.12/modules.dep",
                "kernel/drivers/net/wireguard/wireguard.ko.xz: kernel/a.ko.xz\n",
            ),
            ("proc/sys/vm/unprivileged_userfaultfd", "1\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/module/kvm_amd/parameters/nested", "1\n"),
        ]);
        let found = host.found(true);
        assert!(found.iter().all(|(_, verdict, _)| *verdict == Verdict::Ok), "{found:?}");
        let names: Vec<&str> = found.iter().map(|(name, ..)| *name).collect();
        assert_eq!(
            names,
            ["vhost-net", "wireguard", "userfaultfd", "cgroup memory", "huge pages", "nested kvm"]
        );
    }

    #[test]
    fn a_host_without_names_what_it_costs() {
        let host = Host::new(&[
            ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("sys/module/kvm_intel/parameters/nested", "N\n"),
            // Another module that needs it.
            ("lib/modules/modules.dep", "kernel/x.ko: kernel/wireguard.ko\n"),
        ]);
        let found = host.found(true);
        assert_eq!(found.len(), 6);
        assert!(found.iter().all(|(_, verdict, _)| *verdict == Verdict::Warn), "{found:?}");
        assert_eq!(found[2].2, format!("vm.unprivileged_userfaultfd is 0; {}", USERFAULTFD.cost));
    }

    #[test]
    fn what_does_not_concern_a_host_is_not_mentioned() {
        let found = Host::new(&[]).found(false);
        assert_eq!(
            found,
            [("userfaultfd", Verdict::Warn, format!("not in the kernel; {}", USERFAULTFD.cost))]
        );
    }
}
