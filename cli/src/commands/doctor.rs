//! `doctor`: checks of the prerequisites of this host or of a cluster, with remedies.

mod cluster;
mod features;
mod firewall;
mod kvm;
mod leftovers;
mod needs;
mod programs;
mod system;

use std::path::Path;

use neonvm_kernel::store::Store;

use super::checks::finding::{self, Verdict};
use crate::args::cluster::Doctor;
use crate::args::local::Root;
use crate::commands::checks::finding::{Finding, fail, ok, warn};
use crate::commands::{local, place};
use crate::connect::block_on;
use crate::env::Env;
use crate::error::Result;
use crate::instance;
use crate::report::Report;
use crate::settings::Settings;

/// Whether a guest runs with KVM on this host; `neond` is where the program is that tests it.
pub(super) fn runs_kvm(neond: Option<&std::path::Path>) -> bool {
    kvm::kvm(neond).verdict == Verdict::Ok
}

pub(super) fn run(env: &Env, settings: &Settings, args: &Doctor) -> Result<Report> {
    let mut checks = if args.local { checks(env, settings)? } else { Vec::new() };
    let able = finding::report(&checks).code == 0;
    if of_cluster(settings, args) {
        checks.extend(block_on(cluster::findings(env, settings, args))?);
    }
    let mut report = finding::report(&checks).note(finding::sum(&checks));
    if args.local {
        let verdict = if able { "can run local clusters" } else { "cannot run local clusters yet" };
        report = report.note(format!("this host {verdict}"));
    }
    Ok(report)
}

/// Whether the cluster is checked: with `--cluster`, with a flag that names a part of it, or without `--local`.
fn of_cluster(settings: &Settings, args: &Doctor) -> bool {
    let named = args.node.is_some() || args.namespace.is_some() || settings.place().names_cluster();
    args.cluster || named || !args.local
}

fn checks(env: &Env, settings: &Settings) -> Result<Vec<Finding>> {
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
fn kernel(env: &Env) -> Finding {
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
fn guest(env: &Env, settings: &Settings) -> Finding {
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
