//! `doctor`: checks of the prerequisites of this host or of a cluster, with remedies.

pub(super) mod check;
mod child;
mod cluster;
mod distribution;
mod features;
mod firewall;
mod kvm;
mod leftovers;
mod machine;
mod needs;
mod programs;
mod system;

use crate::args::cluster::Doctor;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Whether a guest runs with KVM on this host; `neond` is where the program is that tests it.
pub(super) fn runs_kvm(neond: Option<&std::path::Path>) -> bool {
    kvm::kvm(neond).verdict == check::Verdict::Ok
}

/// Checks this host, the cluster, or both.
pub(super) fn run(env: &Env, settings: &Settings, args: &Doctor) -> Result<Report> {
    let mut checks = if args.local { machine::checks(env, settings)? } else { Vec::new() };
    let able = check::report(&checks).code == 0;
    if of_cluster(settings, args) {
        checks.extend(block_on(cluster::checks(env, settings, args))?);
    }
    let mut report = check::report(&checks).note(check::sum(&checks));
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
