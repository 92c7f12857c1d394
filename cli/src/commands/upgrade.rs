//! `upgrade`: an installation to another version, with VMs running. The controller comes first, because it serves runners of older
//! versions; then the other services; then, if that is wanted, the runners, one live migration at a time.

use std::time::Duration;

use neonvm_api::migration::VirtualMachineMigrationSpec;
use neonvm_api::names::{RUNNER_CONTAINER, label};
use neonvm_deploy::Choice;
use neonvm_kernel::Progress as _;
use serde_json::Value;

use super::flags::duration;
use super::install::{Job, chosen, interruptible};
use crate::args::install::Upgrade;
use crate::commands::migration::{begin, show, until_over, verdict};
use crate::commands::object::{items_if_any, text};
use crate::commands::resource::{NamespaceClient, name_of};
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

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
        let old = old(&job.connection, &image).await?;
        let mut notes = Vec::new();
        if old.is_empty() {
            notes.push("all runners have this version".to_owned());
        } else if args.runners == "migrate" {
            let count = migrate(&job.connection, &reporter, (&old, &image), limit).await?;
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

#[derive(Clone, Debug, PartialEq, Eq)]
struct Old {
    namespace: String,
    vm: String,
    image: String,
}

/// VMs whose runner is not of this image. Those that name an image of their own have what they want.
async fn old(connection: &Connection, image: &str) -> Result<Vec<Old>> {
    let selector = format!("{}%3D{}", label::APP_NAME.replace('/', "%2F"), label::APP_NAME_VALUE);
    let pods = items_if_any(connection, &format!("/api/v1/pods?labelSelector={selector}")).await?;
    let vms = items_if_any(connection, "/apis/vm.neon.tech/v1/virtualmachines").await?;
    Ok(found(&pods, &vms, image))
}

fn found(pods: &[Value], vms: &[Value], image: &str) -> Vec<Old> {
    let mut all = Vec::new();
    for vm in vms.iter().filter(|vm| text(vm, "/spec/runnerImage").is_empty()) {
        let (namespace, name) = (text(vm, "/metadata/namespace"), text(vm, "/metadata/name"));
        let own = |pod: &&Value| {
            text(pod, "/metadata/namespace") == namespace
                && text(pod, "/metadata/name") == text(vm, "/status/podName")
        };
        let Some(pod) = pods.iter().find(own) else { continue };
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let runner = containers.into_iter().flatten().find(|one| text(one, "/name") == RUNNER_CONTAINER);
        let has = runner.map(|runner| text(runner, "/image")).unwrap_or_default();
        if has != image {
            all.push(Old { namespace: namespace.to_owned(), vm: name.to_owned(), image: has.to_owned() });
        }
    }
    all
}

/// Migrates one VM after the other; stops at the first that fails.
async fn migrate(
    connection: &Connection,
    reporter: &Reporter,
    (all, new): (&[Old], &str),
    limit: Duration,
) -> Result<usize> {
    for (index, was) in all.iter().enumerate() {
        let Old { namespace, vm, image } = was;
        // Another one may have replaced it meanwhile: the scheduler, which makes room, or a restart.
        if index > 0 && !old(connection, new).await?.contains(was) {
            reporter.line(&format!("{namespace}/{vm} has this version already"));
            continue;
        }
        reporter.begin("migrate", &format!("{namespace}/{vm} ({} of {}) from {image}", index + 1, all.len()));
        one(connection, reporter, was, limit).await.map_err(|error| {
            let left = all.len() - index;
            Error {
                message: format!("{index} runners were replaced, {left} remain: {}", error.message),
                ..error
            }
            .hint(format!(
                "see neonctl vm describe {vm} -n {namespace}; then continue: neonctl upgrade --runners migrate"
            ))
        })?;
        reporter.end(&format!("{namespace}/{vm}"));
    }
    Ok(all.len())
}

async fn one(connection: &Connection, reporter: &Reporter, old: &Old, limit: Duration) -> Result<()> {
    let Old { namespace, vm, .. } = old;
    let client = NamespaceClient { connection: connection.clone(), namespace: namespace.clone() };
    let spec = VirtualMachineMigrationSpec::new(vm);
    let made = begin::create(&client, &format!("{vm}-upgrade"), spec).await?;
    let shown = |migration: &_| reporter.line(&format!("{namespace}/{vm} {}", show::state(migration)));
    let waited = until_over(&client, name_of(&made), limit, shown).await?;
    verdict(&waited.object.unwrap_or(made))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runners_of_another_image_are_found() {
        let pod = |name: &str, image: &str| {
            json!({"metadata": {"namespace": "a", "name": name}, "spec": {"containers": [
                {"name": "sidecar", "image": "s"}, {"name": RUNNER_CONTAINER, "image": image}]}})
        };
        let vm = |name: &str, image: &str| {
            json!({"metadata": {"namespace": "a", "name": name}, "spec": {"runnerImage": image},
                "status": {"podName": format!("{name}-0")}})
        };
        let pods = [pod("old-0", "r:1"), pod("new-0", "r:2"), pod("own-0", "mine:7")];
        let vms = [vm("old", ""), vm("new", ""), vm("own", "mine:7"), vm("waits", "")];
        let names: Vec<String> = found(&pods, &vms, "r:2").into_iter().map(|old| old.vm).collect();
        assert_eq!(names, ["old"]);
    }
}
