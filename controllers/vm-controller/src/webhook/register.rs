//! Keeps the registration of webhooks as desired: written by server-side apply at start and whenever another client changes it.
//! An unwanted side is removed, so that nothing remains that fails after a start with other settings. Where the controller's
//! cluster role exists, it owns both: deleting an installation by its manifests then removes them, too; otherwise webhooks
//! without a server would remain and reject every write of a VM.

use std::time::Duration;

use base64::Engine as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use neonvm_api::names::{POD_AUTOSCALER_ACCOUNT, POD_AUTOSCALER_GROUP};
use neonvm_core_vm_lifecycle::pod::name;
use neonvm_kit::watch::retry;
use serde_json::{Value, json};

use super::Pending;
use crate::authority::Authority;
use crate::config::Registration;
use crate::request::MANAGER;
use crate::request::{is_missing, within};

/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(5);

/// The cluster role that goes with an installation.
const OWNER: &str = "neonvm-vm-controller";

/// How many configurations there are.
pub(super) const SIDES: usize = 2;

#[derive(Clone, Debug)]
pub(super) struct Registered {
    /// Where; never [`Registration::Listener`].
    pub(super) place: Registration,
    /// Only evictions.
    pub(super) evictions: bool,
    /// What the pod-autoscaler serves, too. Its account may not register anything: a client that may write
    /// registrations can read, and change, whatever is written to the API.
    pub(super) autoscaler: bool,
}

/// Keeps both configurations and the authorities in them as desired; never returns. Each counts `pending` down when it is
/// right for the first time.
pub(super) async fn keep(client: &Client, register: &Registered, authority: &Authority, pending: &Pending) {
    let mutating = one(client, "Mutating", register, authority, pending);
    let validating = one(client, "Validating", register, authority, pending);
    tokio::join!(mutating, validating);
}

/// One configuration as it should be; without webhooks it should not be.
struct Side {
    api: Api<DynamicObject>,
    roles: Api<ClusterRole>,
    name: String,
    wanted: Option<Value>,
}

impl Side {
    /// `bundle`: the authorities that the API server is to trust, PEM.
    fn new(client: &Client, side: &str, register: &Registered, bundle: &str) -> Self {
        let kind = format!("{side}WebhookConfiguration");
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            plural: kind.to_lowercase() + "s",
            kind: kind.clone(),
        };
        let name = format!("neonvm-{}-webhook-configuration", side.to_lowercase());
        let hooks = webhooks(side, register, bundle);
        let wanted = (!hooks.is_empty()).then(|| {
            json!({"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name},
                "webhooks": hooks})
        });
        let (api, roles) = (Api::all_with(client.clone(), &resource), Api::all(client.clone()));
        Self { api, roles, name, wanted }
    }

    /// Makes it right; the version that is right then.
    async fn write(&self) -> Result<Option<String>, kube::Error> {
        let name = &self.name;
        let Some(wanted) = &self.wanted else {
            return match within(self.api.delete(name, &DeleteParams::default())).await {
                Err(error) if !is_missing(&error) => Err(error),
                _ => Ok(None),
            };
        };
        let params = PatchParams::apply(MANAGER).force();
        let mut wanted = wanted.clone();
        if let (Some(owner), Some(metadata)) =
            (self.owner().await, wanted.pointer_mut("/metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let object = within(self.api.patch(name, &params, &Patch::Apply(&wanted))).await?;
        Ok(object.metadata.resource_version)
    }

    /// The owner; `None` where there is no such role, as on a local cluster, or it may not be read.
    async fn owner(&self) -> Option<OwnerReference> {
        let role = within(self.roles.get_metadata_opt(OWNER)).await.ok().flatten()?;
        Some(OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: OWNER.to_owned(),
            uid: role.metadata.uid?,
            ..OwnerReference::default()
        })
    }
}

async fn one(client: &Client, kind: &str, register: &Registered, authority: &Authority, pending: &Pending) {
    let mut bundles = authority.bundles();
    let wanted = |bundle: &str| Side::new(client, kind, register, bundle);
    let mut side = wanted(&bundles.borrow_and_update());
    let config = watcher::Config::default().fields(&format!("metadata.name={}", side.name));
    let mut events = watcher(side.api.clone(), config).backoff(retry()).boxed();
    let mut applied: Option<String> = None;
    let mut first = true;
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            Ok(()) = bundles.changed() => {
                applied = None;
                Ok(Some(watcher::Event::InitDone))
            }
        };
        let stale = match event {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                // Our own write comes back with the version it made.
                applied.is_none() || applied != object.metadata.resource_version
            }
            Ok(Some(watcher::Event::Delete(_))) => side.wanted.is_some(),
            Ok(Some(watcher::Event::InitDone)) => applied.is_none() && side.wanted.is_some(),
            Ok(Some(watcher::Event::Init)) => continue,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the registration of webhooks cannot be watched");
                continue;
            }
        };
        let mut open = stale;
        while open {
            // Another replica may have another authority already: otherwise both would overwrite each other's.
            authority.refresh().await;
            side = wanted(&bundles.borrow_and_update());
            match side.write().await {
                Ok(version) => {
                    applied = version;
                    open = false;
                }
                Err(error) => {
                    tracing::warn!(%error, name = %side.name, "the webhooks could not be registered");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        if std::mem::take(&mut first) {
            pending.done();
        }
    }
}

/// The webhooks of one side; none if it is not wanted.
fn webhooks(side: &str, register: &Registered, bundle: &str) -> Vec<Value> {
    let verb = if side == "Mutating" { "mutate" } else { "validate" };
    let bundle = base64::engine::general_purpose::STANDARD.encode(bundle);
    let address = |path: &str| match &register.place {
        Registration::Service { namespace, name, port } => json!({"caBundle": bundle,
                "service": {"namespace": namespace, "name": name, "path": path, "port": port}}),
        Registration::Url(url) => {
            json!({"caBundle": bundle, "url": format!("{}{path}", url.trim_end_matches('/'))})
        }
        Registration::Listener => json!({"caBundle": bundle}),
    };
    let hook = |kind: &str| {
        let client = address(&format!("/{verb}-vm-neon-tech-v1-{kind}"));
        let letter = verb.get(..1).unwrap_or_default();
        json!({"name": format!("{letter}{kind}.kb.io"), "admissionReviewVersions": ["v1"], "clientConfig": client,
            "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 10,
            "rules": [{"apiGroups": ["vm.neon.tech"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": [format!("{kind}s")], "scope": "*"}]})
    };
    let kinds = if register.evictions { &[][..] } else { &["virtualmachine", "virtualmachinemigration"] };
    let mut all: Vec<Value> = kinds.iter().map(|kind| hook(kind)).collect();
    if let (Registration::Service { namespace, .. }, true) = (&register.place, register.autoscaler) {
        all.push(autoscalers(verb, namespace, &bundle));
    }
    if side == "Validating" {
        // Evictions are of pods of all kinds: the name excludes those of other owners, and runner pods stay while the webhook
        // is not served. A dry run creates nothing.
        let runner_pods = format!("request.name.matches('{}')", name::PATTERN);
        all.push(json!({"name": "eviction.vm.neon.tech", "admissionReviewVersions": ["v1"],
            "clientConfig": address(super::eviction::PATH),
            "failurePolicy": "Fail", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
            "matchConditions": [{"name": "runner-pods", "expression": runner_pods}],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods/eviction"], "scope": "Namespaced"}]}));
    }
    all
}

/// The webhook for PodAutoscalers of one side, at upstream's path. They can be written also while it is not served: the
/// definition checks what is stored, and the pod-autoscaler what it reconciles.
fn autoscalers(verb: &str, namespace: &str, bundle: &str) -> Value {
    let letter = verb.get(..1).unwrap_or_default();
    let service = json!({"namespace": namespace, "name": POD_AUTOSCALER_ACCOUNT, "port": 443,
        "path": format!("/{verb}-autoscaling-aibrix-ai-v1alpha1-podautoscaler")});
    json!({"name": format!("{letter}podautoscaler.kb.io"), "admissionReviewVersions": ["v1"],
        "clientConfig": {"caBundle": bundle, "service": service},
        "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 5,
        "rules": [{"apiGroups": [POD_AUTOSCALER_GROUP], "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["podautoscalers"], "scope": "*"}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(side: &str, place: Registration, autoscaler: bool) -> Vec<String> {
        let register = Registered { place, evictions: false, autoscaler };
        let hooks = webhooks(side, &register, "PEM");
        hooks.iter().map(|hook| hook["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn webhooks_of_the_autoscaler_are_registered_where_it_is_installed() {
        let service = || Registration::Service { namespace: "s".into(), name: "n".into(), port: 443 };
        let both = ["mvirtualmachine.kb.io", "mvirtualmachinemigration.kb.io"];
        assert_eq!(names("Mutating", service(), false), both);
        // A process has no service.
        assert_eq!(names("Mutating", Registration::Url("https://a:1".into()), true), both);
        assert_eq!(names("Mutating", service(), true)[2], "mpodautoscaler.kb.io");
        let register = Registered { place: service(), evictions: false, autoscaler: true };
        let all = webhooks("Validating", &register, "PEM");
        let own = all.iter().find(|hook| hook["name"] == "vpodautoscaler.kb.io").unwrap();
        assert_eq!(own["failurePolicy"], "Ignore");
        assert_eq!(
            own["clientConfig"]["service"],
            json!({"namespace": "s", "name": "neonvm-pod-autoscaler", "port": 443,
                "path": "/validate-autoscaling-aibrix-ai-v1alpha1-podautoscaler"})
        );
        assert_eq!(own["rules"][0]["resources"], json!(["podautoscalers"]));
        assert_eq!(own["clientConfig"]["caBundle"], "UEVN");
    }
}
