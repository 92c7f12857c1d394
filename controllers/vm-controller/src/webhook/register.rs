//! The registration of webhooks, kept in step: written by server-side apply at start and whenever somebody changes it.

use std::time::Duration;

use base64::Engine as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};

use crate::act::within;
use crate::config::Registration;
use crate::context::MANAGER;

/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(5);

/// Keeps both configurations in step; never returns.
pub(super) async fn keep(client: &Client, register: &Registration, authority: &str) {
    let mutating = one(client, "Mutating", register, authority);
    let validating = one(client, "Validating", register, authority);
    tokio::join!(mutating, validating);
}

async fn one(client: &Client, side: &str, register: &Registration, authority: &str) {
    let kind = format!("{side}WebhookConfiguration");
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        plural: kind.to_lowercase() + "s",
        kind: kind.clone(),
    };
    let name = format!("neonvm-{}-webhook-configuration", side.to_lowercase());
    let wanted = json!({"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name},
        "webhooks": webhooks(side, register, authority)});
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = PatchParams::apply(MANAGER).force();
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api.clone(), config).default_backoff().boxed();
    let mut applied: Option<String> = None;
    loop {
        let stale = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                // Our own write comes back with the version it made.
                applied.is_none() || applied != object.metadata.resource_version
            }
            Ok(Some(watcher::Event::Delete(_))) => true,
            Ok(Some(watcher::Event::InitDone)) => applied.is_none(),
            Ok(Some(watcher::Event::Init)) => false,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the registration of webhooks cannot be watched");
                false
            }
        };
        let mut open = stale;
        while open {
            match within(api.patch(&name, &params, &Patch::Apply(&wanted))).await {
                Ok(object) => {
                    applied = object.metadata.resource_version;
                    open = false;
                }
                Err(error) => {
                    tracing::warn!(%error, name, "the webhooks could not be registered");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn webhooks(side: &str, register: &Registration, authority: &str) -> Value {
    let verb = if side == "Mutating" { "mutate" } else { "validate" };
    let bundle = base64::engine::general_purpose::STANDARD.encode(authority);
    let address = |path: &str| match register {
        Registration::Service { namespace, name, port } => json!({"caBundle": bundle,
                "service": {"namespace": namespace, "name": name, "path": path, "port": port}}),
        Registration::Url(url) => {
            json!({"caBundle": bundle, "url": format!("{}{path}", url.trim_end_matches('/'))})
        }
    };
    let hook = |kind: &str| {
        let client = address(&format!("/{verb}-vm-neon-tech-v1-{kind}"));
        let letter = verb.get(..1).unwrap_or_default();
        json!({"name": format!("{letter}{kind}.kb.io"), "admissionReviewVersions": ["v1"], "clientConfig": client,
            "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 10,
            "rules": [{"apiGroups": ["vm.neon.tech"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": [format!("{kind}s")], "scope": "*"}]})
    };
    if side == "Mutating" {
        return json!([hook("virtualmachine"), hook("virtualmachinemigration")]);
    }
    // Evictions are of all kinds of pods: if nobody answers they pass. One that is tried makes nothing.
    let eviction = json!({"name": "eviction.vm.neon.tech", "admissionReviewVersions": ["v1"],
        "clientConfig": address(super::eviction::PATH),
        "failurePolicy": "Ignore", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods/eviction"], "scope": "Namespaced"}]});
    json!([hook("virtualmachine"), hook("virtualmachinemigration"), eviction])
}
