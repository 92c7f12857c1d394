//! What is installed: leftovers of others, definitions, versions, certificates. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::{Facts, Source, ours};
use super::finding::{Finding, fail, ok, warn};
use crate::commands::object::{is_true, text};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What to do about several versions.
const SAME: &str = "use one version: neonctl upgrade, on a local cluster neonctl local down and up, or the neonctl of the cluster";
/// Seconds after which a request for a certificate should have been answered, and for which a refusal is news.
const UNANSWERED: i64 = 30;
const LATELY: i64 = 600;
/// Managers of fields that are ours, or those of the API server itself.
const OURS: [&str; 3] = ["neonctl", "neonvm", "vm-controller"];

pub(super) fn leftovers(facts: &Facts) -> Vec<Finding> {
    let found = [others(facts), hooks(facts), unserved(facts), managers(facts)];
    let found: Vec<Finding> = found.into_iter().flatten().collect();
    if found.is_empty() { vec![ok("leftovers", "none").at("cluster")] } else { found }
}

/// Another installation would fight with this one over every VM.
fn others(facts: &Facts) -> Option<Finding> {
    let namespaces = facts.all(Source::Controllers).iter().map(|one| text(one, "/metadata/namespace"));
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

/// Registrations of webhooks without a server: they are taken over, and until then hold up writes of VMs.
fn hooks(facts: &Facts) -> Option<Finding> {
    let (namespace, name) = facts.hook_service()?;
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
fn unserved(facts: &Facts) -> Option<Finding> {
    let count = facts.all(Source::Definitions).len();
    let is_served = facts.is_local() || !facts.has_none(Source::Controllers);
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
fn managers(facts: &Facts) -> Option<Finding> {
    let fields =
        facts.all(Source::Definitions).iter().filter_map(|one| one.pointer("/metadata/managedFields"));
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

/// Our definitions that are there and established, and those that are not.
pub(crate) fn definitions(facts: &Facts) -> (Vec<String>, Vec<String>) {
    let found = facts.all(Source::Definitions);
    let established = |name: &String| {
        let is_it = |crd: &Value| text(crd, "/metadata/name") == name && is_true(crd, "Established");
        facts.served.contains(name) || found.iter().any(is_it)
    };
    ours().into_iter().partition(established)
}

/// Whether the definitions are there, and are those of this program.
pub(super) fn served(facts: &Facts) -> Vec<Finding> {
    let (present, missing) = definitions(facts);
    if present.is_empty() && facts.is_absent() {
        // Nothing is installed: that is reported of the services.
        return Vec::new();
    }
    let check = if !missing.is_empty() {
        fail(
            "definitions",
            format!("missing {}", missing.join(", ")),
            "install them: neonctl install, or on a local cluster neonctl local up",
        )
    } else if let Some(others) = others_of_version(facts) {
        warn("definitions", format!("of another version than neonctl {VERSION}: {others}"), SAME)
    } else {
        ok("definitions", format!("{} installed", present.len()))
    };
    vec![check.at("cluster")]
}

/// Definitions whose fields are not those of this program.
fn others_of_version(facts: &Facts) -> Option<String> {
    let found = facts.all(Source::Definitions);
    let differs = |own: &Value| {
        let name = text(own, "/metadata/name");
        let crd = found.iter().find(|crd| text(crd, "/metadata/name") == name)?;
        let is_same = is_within(own.pointer("/spec/versions")?, crd.pointer("/spec/versions")?);
        (!is_same).then(|| name.to_owned())
    };
    let names: Vec<String> = neonvm_api::crds().iter().filter_map(differs).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether a server has all that was applied; it adds defaults.
fn is_within(own: &Value, found: &Value) -> bool {
    match (own, found) {
        (Value::Object(own), Value::Object(found)) => {
            own.iter().all(|(key, own)| found.get(key).is_some_and(|found| is_within(own, found)))
        }
        (Value::Array(own), Value::Array(found)) => {
            own.len() == found.len() && own.iter().zip(found).all(|(own, found)| is_within(own, found))
        }
        (Value::Number(own), Value::Number(found)) => own.as_f64() == found.as_f64(),
        _ => own == found,
    }
}

/// The key of the services' authority: without it new certificates come from another one, which running VMs do not trust.
pub(super) fn authority(facts: &Facts) -> Vec<Finding> {
    if facts.all(Source::Workloads).is_empty() || !facts.has_none(Source::Authority) {
        return Vec::new();
    }
    let (secret, namespace) = (neonvm_kit::authority::INTERNAL.secret, &facts.namespace);
    let check = fail(
        "authority",
        format!(
            "the secret {secret} is gone: after a restart of the vm-controller, running VMs cannot be reached"
        ),
        format!(
            "restore it from a backup into namespace {namespace} before a vm-controller restarts; a vm-controller that leads has it \
             in memory: do not restart it"
        ),
    );
    vec![check.at(namespace.as_str())]
}

/// Requests for certificates of our signers that were refused lately, or that no vm-controller answers.
pub(super) fn certificates(facts: &Facts) -> Vec<Finding> {
    let ours = facts.all(Source::Certificates).iter();
    let ours = ours.filter(|one| text(one, "/spec/signerName").starts_with("vm.neon.tech/"));
    let (mut refused, mut waiting) = (BTreeSet::new(), 0_usize);
    for request in ours {
        let age = facts.since(request, "/metadata/creationTimestamp").unwrap_or_default();
        let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
        let is_refusal = |one: &&Value| matches!(text(one, "/type"), "Denied" | "Failed");
        let refusal = conditions.and_then(|all| all.iter().find(is_refusal));
        match refusal {
            Some(one) if age < LATELY => {
                refused.insert(format!("{}: {}", text(request, "/spec/username"), text(one, "/message")));
            }
            None if text(request, "/status/certificate").is_empty()
                && (UNANSWERED..LATELY).contains(&age) =>
            {
                waiting += 1;
            }
            _ => {}
        }
    }
    let remedy = format!(
        "see the log of the vm-controller: kubectl logs -n {} -l app.kubernetes.io/name=neonvm-vm-controller",
        facts.namespace
    );
    let late = (waiting > 0).then(|| {
        let text = format!(
            "requests for certificates that are not answered for more than {UNANSWERED} s: {waiting}"
        );
        fail("certificates", text, remedy.clone())
    });
    let shown =
        refused.iter().take(3).map(|text| warn("certificates", format!("refused to {text}"), remedy.clone()));
    late.into_iter().chain(shown).map(|check| check.at("cluster")).collect()
}

pub(super) fn agents(facts: &Facts) -> Vec<Finding> {
    let Some(silent) = &facts.silent_agents else { return Vec::new() };
    let remedy = format!(
        "see its log: kubectl logs -n {} -l app.kubernetes.io/name=neonvm-agent; on a local cluster: neonctl local logs",
        facts.namespace
    );
    silent.iter().map(|words| fail("agent", words.as_str(), remedy.clone()).at("cluster")).collect()
}

pub(super) fn versions(facts: &Facts) -> Vec<Finding> {
    versions_beside(facts, VERSION)
}

pub(super) fn versions_beside(facts: &Facts, own: &str) -> Vec<Finding> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in facts.all(Source::Nodes) {
        let kubelet = text(node, "/status/nodeInfo/kubeletVersion");
        if let Some((_, version)) = kubelet.split_once("-neonvm.") {
            all.entry(version).or_default().insert(text(node, "/metadata/name"));
        }
    }
    for workload in facts.all(Source::Workloads) {
        let images = workload.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        for image in images.into_iter().flatten().map(|container| text(container, "/image")) {
            if let Some(version) = version_of(image) {
                all.entry(version).or_default().insert(text(workload, "/metadata/name"));
            }
        }
    }
    let others: Vec<_> = all.iter().filter(|(version, _)| **version != own).collect();
    let check = |(version, places): (&&str, &BTreeSet<&str>)| {
        let places = places.iter().copied().collect::<Vec<_>>().join(",");
        warn("version", format!("{version}, while neonctl is {own}"), SAME).at(places)
    };
    match (all.is_empty(), others.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => vec![ok("version", format!("all {own}")).at("cluster")],
        (false, false) => others.into_iter().map(check).collect(),
    }
}

/// The version of an image of ours, if its tag is one: `1.2` or `v1.2.3`. Beside ours there may be others, such as a
/// kube-scheduler: their versions are their own.
fn version_of(image: &str) -> Option<&str> {
    let (name, tag) = image.rsplit('/').next()?.split('@').next()?.split_once(':')?;
    let tag = tag.trim_start_matches('v');
    let is_version = tag.starts_with(|first: char| first.is_ascii_digit());
    (is_version && matches!(name, "neond" | "neonvm-runner")).then_some(tag)
}
