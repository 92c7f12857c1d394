//! `doctor --local`: this machine as a place for local clusters.

use std::path::Path;

use neonvm_kernel::store::Store;

use super::check::{Check, fail, ok, warn};
use super::{features, firewall, kvm, leftovers, programs, system};
use crate::args::local::Root;
use crate::commands::{local, place};
use crate::env::Env;
use crate::error::Result;
use crate::instance;
use crate::settings::Settings;

/// Every check of this machine.
pub(super) fn checks(env: &Env, settings: &Settings) -> Result<Vec<Check>> {
    let directory = instance::root(env, settings, &Root::default())?;
    let root = rustix::process::geteuid().is_root();
    let neond = local::neond(env, settings);
    let mut checks = vec![match &neond {
        Ok(path) => ok("neond", path.display().to_string()),
        Err(error) => fail(
            "neond",
            error.message.clone(),
            "put neond next to neonctl or into PATH, or set NEONCTL_NEOND",
        ),
    }];
    checks.extend([system::disk(&directory), system::ports(), system::privileges(root)]);
    checks.push(kvm::kvm(neond.as_deref().ok()));
    checks.extend(programs::programs(env, root));
    checks.push(system::tun(root));
    checks.extend(system::namespaces(env, root));
    checks.extend(firewall::firewall(neond.as_deref().ok(), root));
    checks.push(system::cgroup(Path::new("/sys/fs/cgroup")));
    checks.extend(features::features(Path::new("/"), root));
    checks.extend([kernel(env), guest(env, settings)]);
    checks.extend(system::limits());
    checks.push(leftovers::leftovers(&directory));
    Ok(checks)
}

/// The kernel that VMs without one of their own boot.
fn kernel(env: &Env) -> Check {
    let store = Store::new(place::kernels(env));
    let remedy = "neonctl kernel fetch";
    match store.list() {
        Ok((_, Some(name))) => ok("kernel", name),
        Ok((all, None)) if all.is_empty() => warn("kernel", "none; VMs require a kernel to boot", remedy),
        Ok(_) => warn("kernel", "no default kernel; VMs require one to boot", remedy),
        Err(error) => warn("kernel", error.to_string(), remedy),
    }
}

/// The program that goes into disks.
fn guest(env: &Env, settings: &Settings) -> Check {
    let architecture = programs::architecture();
    match place::guest(env, settings, None, architecture) {
        Ok(path) => ok("guest program", path.display().to_string()),
        Err(error) => warn(
            "guest program",
            format!("{}; required by neonctl vm build", error.message),
            error.hint.unwrap_or_default(),
        ),
    }
}
