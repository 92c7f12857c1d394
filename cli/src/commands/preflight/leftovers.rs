//! What others, or an earlier installation, have left. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Facts;
use crate::commands::doctor::check::{Check, fail, ok, warn};
use crate::commands::health::Part;
use crate::commands::object::text;

/// Managers of fields that are ours, or those of the API server itself.
const OURS: [&str; 3] = ["neonctl", "neonvm", "vm-controller"];

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let found = [others(facts), hooks(facts), definitions(facts), managers(facts)];
    let found: Vec<Check> = found.into_iter().flatten().collect();
    if found.is_empty() { vec![ok("leftovers", "none").at("cluster")] } else { found }
}

/// Another installation would fight with this one over every VM.
fn others(facts: &Facts) -> Option<Check> {
    let namespaces = facts.controllers.objects().iter().map(|one| text(one, "/metadata/namespace"));
    let other = namespaces.into_iter().find(|found| *found != facts.namespace)?;
    Some(
        fail(
            "installation",
            format!("neonvm is already installed in namespace {other}"),
            format!("change that installation with --namespace {other}, or remove it: neonctl uninstall --namespace {other}"),
        )
        .at(other),
    )
}

/// Where the webhooks are registered.
pub(super) fn service(hooks: &Part) -> Option<(String, String)> {
    let found = hooks.objects().iter().find_map(|hook| hook.pointer("/webhooks/0/clientConfig/service"))?;
    Some((text(found, "/namespace").to_owned(), text(found, "/name").to_owned()))
}

/// Registrations of webhooks without a server: they are taken over, and until then hold up writes of VMs.
fn hooks(facts: &Facts) -> Option<Check> {
    let (namespace, name) = service(&facts.hooks)?;
    if facts.has_hook_service != Some(false) {
        return None;
    }
    Some(
        warn(
            "webhooks",
            format!("webhooks of an earlier installation are registered at {namespace}/{name}, which does not exist"),
            format!(
                "no VM can be created or changed until they are registered again: neonctl install --namespace {}; or removed: \
                 kubectl delete mutatingwebhookconfiguration neonvm-mutating-webhook-configuration, and the validating one",
                facts.namespace
            ),
        )
        .at("cluster"),
    )
}

/// Definitions that no controller serves.
fn definitions(facts: &Facts) -> Option<Check> {
    let count = facts.definitions.objects().len();
    let is_served = facts.is_local() || facts.controllers != Part::default();
    (count > 0 && !is_served).then(|| {
        warn(
            "definitions",
            format!("{count} definitions of an earlier installation, and no vm-controller"),
            "a new installation uses them: neonctl install; or remove them with all VMs: neonctl uninstall --purge CLUSTER-NAME",
        )
        .at("cluster")
    })
}

/// Others that apply our definitions, too, and would change them back.
fn managers(facts: &Facts) -> Option<Check> {
    let fields = facts.definitions.objects().iter().filter_map(|one| one.pointer("/metadata/managedFields"));
    let entries = fields.filter_map(Value::as_array).flatten();
    // What the API server writes is a status.
    let entries = entries.filter(|entry| text(entry, "/subresource").is_empty());
    let names: BTreeSet<&str> = entries.map(|entry| text(entry, "/manager")).collect();
    let foreign: Vec<&str> = names
        .into_iter()
        .filter(|name| !name.is_empty() && !OURS.iter().any(|own| name.starts_with(own)))
        .collect();
    (!foreign.is_empty()).then(|| {
        warn(
            "managers",
            format!("definitions are also managed by {}", foreign.join(", ")),
            "install and upgrade with one tool only: neonctl and the other tool overwrite each other's fields",
        )
        .at("cluster")
    })
}
