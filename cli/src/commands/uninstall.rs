//! `uninstall`: removes the services. Not while VMs exist: no service would look after them or complete their deletion.
//!
//! Order: first the rights of the vm-controller, which would register its webhooks again; then the registrations, so that an
//! interruption leaves no webhook without a server that refuses every write of a VM; then the rest. The authorities stay, or a
//! new installation could not reach runners that an old one has made.

use std::collections::BTreeSet;
use std::time::Duration;

use neonvm_deploy::{INVENTORY, Named, Record, is_workload, rank};
use neonvm_kernel::Progress as _;
use neonvm_kit::signer::rules::SIGNER;
use serde_json::{Value, json};

use super::flags::duration;
use super::install::apply::{self, Change, Outcome, get};
use super::install::interruptible;
use super::install::removal::{gone, leases, named};
use crate::args::install::Uninstall;
use crate::commands::object::{items_if_any, text};
use crate::connect::{Connection, block_on};
use crate::env::Env;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings::Settings;

/// Authorities, each a secret and a config map.
const AUTHORITIES: [&str; 2] = ["neonvm-internal-ca", "neonvm-vm-ca"];
/// VMs that are named.
const SHOWN: usize = 10;

pub(super) fn run(env: &Env, settings: &Settings, args: &Uninstall, quiet: bool) -> Result<Report> {
    let limit = duration("timeout", &args.timeout)?;
    let reporter = Reporter::new(env, &args.showing.progress, quiet);
    block_on(interruptible("neonctl uninstall", async {
        let connection = Connection::open(settings).await?;
        let namespace =
            args.namespace.clone().unwrap_or_else(|| neonvm_api::names::SYSTEM_NAMESPACE.to_owned());
        purge_is_meant(&connection, args.purge.as_deref())?;
        no_vms(&connection).await?;
        let mut removed = services(&connection, &reporter, &namespace, limit).await?;
        if args.purge.is_some() {
            removed.extend(everything(&connection, &reporter, &namespace).await?);
        }
        Ok(report(&namespace, &removed, args.purge.is_some()))
    }))
}

/// `--purge` must name the cluster, as a confirmation.
fn purge_is_meant(connection: &Connection, typed: Option<&str>) -> Result<()> {
    let Some(typed) = typed else { return Ok(()) };
    match connection.cluster() {
        Some(cluster) if cluster == typed => Ok(()),
        Some(cluster) => Err(Error::new(
            Code::Usage,
            format!("--purge {typed}: the cluster of the context is {cluster:?}"),
        )
        .hint(format!("to purge that cluster: --purge {cluster}"))),
        None => Err(Error::new(Code::Usage, "--purge needs a kubeconfig with the name of the cluster")
            .hint("set it with --kubeconfig")),
    }
}

async fn no_vms(connection: &Connection) -> Result<()> {
    let vms = items_if_any(connection, "/apis/vm.neon.tech/v1/virtualmachines").await?;
    if vms.is_empty() {
        return Ok(());
    }
    let name = |vm: &Value| format!("{}/{}", text(vm, "/metadata/namespace"), text(vm, "/metadata/name"));
    let mut names: Vec<String> = vms.iter().take(SHOWN).map(name).collect();
    if vms.len() > SHOWN {
        names.push(format!("{} more", vms.len() - SHOWN));
    }
    let noun = if vms.len() == 1 { "VM exists" } else { "VMs exist" };
    Err(Error::new(Code::Conflict, format!("{} {noun}: {}", vms.len(), names.join(", ")))
        .hint("delete them first: neonctl vm delete NAME -n NAMESPACE"))
}

/// What an installation may have made, in the order in which it is removed.
fn doomed(record: &Record, namespace: &str) -> Result<Vec<Named>> {
    let all = neonvm_deploy::everything().map_err(|error| {
        Error::new(Code::Failed, "cannot read the built-in manifests").cause(error.to_string())
    })?;
    let mut ranked: Vec<(u8, Named)> = Vec::new();
    for object in &all {
        let mut named = Named::from_object(object);
        if !named.namespace.is_empty() && named.namespace == neonvm_api::names::SYSTEM_NAMESPACE {
            named.namespace = namespace.to_owned();
        }
        ranked.push((rank(object), named));
    }
    let known: BTreeSet<Named> = ranked.iter().map(|(_, named)| named.clone()).collect();
    for named in record.objects.iter().filter(|named| !known.contains(*named)) {
        ranked.push((rank(&json!({"kind": named.kind})), named.clone()));
    }
    ranked.retain(|(_, named)| !["CustomResourceDefinition", "Namespace"].contains(&named.kind.as_str()));
    // What runs goes first.
    ranked.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    Ok(ranked.into_iter().map(|(_, named)| named).collect())
}

async fn services(
    connection: &Connection,
    reporter: &Reporter,
    namespace: &str,
    limit: Duration,
) -> Result<Vec<Named>> {
    let record = apply::record(connection, namespace).await?.unwrap_or_default();
    let mut removed = Vec::new();
    reporter.begin("webhooks", "registrations");
    let rights = named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "neonvm-vm-controller");
    let mut first = vec![rights];
    for side in ["Mutating", "Validating"] {
        let name = format!("neonvm-{}-webhook-configuration", side.to_lowercase());
        let kind = format!("{side}WebhookConfiguration");
        first.push(named("admissionregistration.k8s.io/v1", &kind, "", &name));
    }
    remove(connection, &first, &mut removed).await?;
    reporter.end("removed");
    reporter.begin("services", namespace);
    let all = doomed(&record, namespace)?;
    let (running, rest): (Vec<Named>, Vec<Named>) =
        all.into_iter().partition(|named| is_workload(&json!({"kind": named.kind})));
    remove(connection, &running, &mut removed).await?;
    gone(connection, reporter, (namespace, "app.kubernetes.io%2Fpart-of%3Dneonvm"), limit).await?;
    // A replica that was about to write them may have done so before it lost its rights.
    remove(connection, &first, &mut removed).await?;
    remove(connection, &rest, &mut removed).await?;
    // Others may have leases in the namespace.
    let ours = |name: &str| name.starts_with("neonvm-") || name.ends_with(".neon.tech");
    remove(connection, &leases(connection, namespace, ours).await?, &mut removed).await?;
    remove(connection, &requests(connection).await?, &mut removed).await?;
    // The last of all: what has an inventory is not removed completely.
    remove(connection, &[named("v1", "ConfigMap", namespace, INVENTORY)], &mut removed).await?;
    reporter.end(&format!("{} objects removed", removed.len()));
    Ok(removed)
}

async fn remove(connection: &Connection, all: &[Named], removed: &mut Vec<Named>) -> Result<()> {
    for named in all {
        // A kind that the cluster does not know has no objects.
        if apply::delete(connection, named).await? {
            removed.push(named.clone());
        }
    }
    Ok(())
}

/// Requests for certificates of our signer: Kubernetes removes them an hour after they were answered, and those without an answer after a day.
async fn requests(connection: &Connection) -> Result<Vec<Named>> {
    let api_version = "certificates.k8s.io/v1";
    let signer = SIGNER.replace('/', "%2F");
    let path =
        format!("/apis/{api_version}/certificatesigningrequests?fieldSelector=spec.signerName%3D{signer}");
    let items = items_if_any(connection, &path).await?;
    let names = items.iter().map(|request| text(request, "/metadata/name"));
    Ok(names.map(|name| named(api_version, "CertificateSigningRequest", "", name)).collect())
}

async fn everything(connection: &Connection, reporter: &Reporter, namespace: &str) -> Result<Vec<Named>> {
    reporter.begin("purge", "definitions, authorities, namespace");
    let mut removed = Vec::new();
    let mut all: Vec<Named> = neonvm_api::crds().iter().map(Named::from_object).collect();
    for name in AUTHORITIES {
        all.push(named("v1", "Secret", namespace, name));
        all.push(named("v1", "ConfigMap", namespace, name));
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    let found = get(connection, &path).await?.unwrap_or_default();
    // One that we have not made is not ours to remove.
    if text(&found, "/metadata/labels/app.kubernetes.io~1part-of") == "neonvm" {
        all.push(named("v1", "Namespace", "", namespace));
    }
    remove(connection, &all, &mut removed).await?;
    reporter.end(&format!("{} objects removed", removed.len()));
    Ok(removed)
}

fn report(namespace: &str, removed: &[Named], is_purged: bool) -> Report {
    let changes: Vec<Change> =
        removed.iter().cloned().map(|named| Change { named, outcome: Outcome::Removed }).collect();
    let mut text = match removed.len() {
        0 => format!("nothing to do: neonvm is not installed in namespace {namespace}"),
        count => format!("neonvm was removed from namespace {namespace} ({count} objects)"),
    };
    if !is_purged {
        text.push_str(
            "\nkept: custom resource definitions, the namespace, and the authorities in its secrets ",
        );
        text.push_str(&AUTHORITIES.join(" and "));
        text.push_str("; a new installation uses them");
    }
    let items: Vec<Value> = changes.iter().map(Change::json).collect();
    Report::document(Document {
        value: json!({"apiVersion": API_VERSION, "kind": "Uninstallation", "namespace": namespace, "purged": is_purged,
            "items": items}),
        names: removed.iter().map(ToString::to_string).collect(),
        text: Some(text),
        columns: vec![left("OBJECT"), left("CHANGE")],
        rows: changes.iter().map(Change::row).collect(),
    })
}
