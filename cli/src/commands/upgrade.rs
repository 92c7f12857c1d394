//! `upgrade`: an installation to another version, with VMs running. The controller comes first, because it serves runners of older
//! versions; then the other services; then, if that is wanted, the runners, one live migration at a time.

mod runners;

use neonvm_deploy::Choice;

use super::flags::duration;
use super::install::{Job, chosen, interruptible};
use crate::args::install::Upgrade;
use crate::connect::block_on;
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

/// Upgrades what is installed.
pub(super) fn run(env: &Env, settings: &Settings, args: &Upgrade, quiet: bool) -> Result<Report> {
    let own = chosen::of_flags(&args.choices, &Choice::default())?;
    own.values().map_err(|error| chosen::unusable(&error))?;
    let limit = duration("timeout", &args.carrying.timeout)?;
    let reporter = Reporter::new(env, &args.carrying.showing.progress, quiet);
    let again = match args.runners.as_str() {
        "migrate" => "neonctl upgrade --runners migrate",
        _ => "neonctl upgrade",
    };
    block_on(interruptible(again, async {
        let job = Job::open(settings, &args.choices, &args.carrying, &reporter, limit).await?;
        if job.record.is_none() {
            let namespace = &job.values.namespace;
            return Err(Error::new(
                Code::NotFound,
                format!("neonvm is not installed in namespace {namespace}"),
            )
            .hint("install it: neonctl install; or set the namespace: --namespace"));
        }
        if !args.allow_downgrade {
            job.not_older("neonctl upgrade --allow-downgrade")?;
        }
        let done = job.carry(true).await?;
        let image = neonvm_deploy::runner_image(&job.values);
        let old = runners::old(&job.connection, &image).await?;
        let mut notes = Vec::new();
        if old.is_empty() {
            notes.push("all runners have this version".to_owned());
        } else if args.runners == "migrate" {
            let count = runners::migrate(&job.connection, &reporter, &old, limit).await?;
            notes.push(format!("{count} runners were replaced by live migration"));
        } else {
            notes.push(format!(
                "{} runners keep another version, which is supported: VMs get the new one when they restart or migrate, or now \
                 with --runners migrate",
                old.len()
            ));
        }
        Ok(job.report(&done, &notes))
    }))
}
