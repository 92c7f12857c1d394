//! Admission that is built in: what a real server's default plug-ins and kind-specific hooks do.

mod resize;

use serde_json::{Value, json};

use crate::access;
use crate::admission::Halt;
use crate::crd;
use crate::engine::Engine;
use crate::object;
use crate::pending_write::Write;
pub use crate::plugin::{Plugin, PluginVerdict, Written};
use crate::status::ApiError;
use crate::store::key_of;

const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

impl Engine {
    /// Sets the plug-in that sees every custom object, and every Service, before webhooks and validation do. It must give the same
    /// answer to the same object of the same user every time.
    pub fn set_plugin(&mut self, plugin: Plugin) {
        self.plugin = Some(plugin);
    }
}

impl Write<'_> {
    /// Mutating plug-ins, before webhooks.
    pub(crate) fn admit(
        &mut self,
        engine: &Engine,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Halt> {
        let is_service = self.kind.group.is_empty() && self.kind.kind == "Service";
        if (self.kind.custom.is_some() || is_service)
            && self.target.subresource != "status"
            && let Some(plugin) = engine.plugin
        {
            let namespace = engine.value("/namespaces", &key_of("", &self.target.namespace));
            let labels = namespace.as_ref().and_then(|namespace| namespace.pointer("/metadata/labels"));
            let (group, kind) = (self.kind.group.as_str(), self.kind.kind.as_str());
            let namespace_labels = labels.unwrap_or(&Value::Null);
            let user = self.request.user;
            let verdict = plugin(Written { group, kind, namespace_labels, old: live, user }, object);
            self.warn(verdict.warnings);
            if let Some(why) = verdict.forbidden {
                return Err(ApiError::forbidden(self.subject(object::name(object)), &why).into());
            }
            if !verdict.errors.is_empty() {
                let name = object::name(object).to_owned();
                return Err(ApiError::invalid(self.subject_kind(&name), &verdict.errors).into());
            }
        }
        match (self.kind.group.as_str(), self.kind.kind.as_str()) {
            ("", "Namespace") => admit_namespace(live, object),
            (crate::builtin::certificate::GROUP, _) if self.kind.is_builtin() => {
                self.admit_request(engine, live, object)?;
            }
            ("", "Pod") if live.is_none() => self.admit_pod(engine, object)?,
            ("", "Pod") if self.target.subresource.is_empty() => tolerate(object::child_mut(object, "spec")),
            ("", "Node") if live.is_none() => taint_new_node(object),
            ("", "PersistentVolumeClaim") if live.is_none() => {
                add_finalizer(object, "kubernetes.io/pvc-protection");
                put_default_class(engine, object);
            }
            ("", "PersistentVolume") if live.is_none() => {
                add_finalizer(object, "kubernetes.io/pv-protection");
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") if live.is_none() => {
                crd::prepare_create(object);
            }
            _ => {}
        }
        Ok(())
    }

    fn admit_pod(&self, engine: &Engine, pod: &mut Value) -> Result<(), Halt> {
        let name = object::name(pod).to_owned();
        let namespace = self.target.namespace.clone();
        let spec = object::child_mut(pod, "spec");
        let account = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or("");
        let account = if account.is_empty() { "default" } else { account }.to_owned();
        spec.insert("serviceAccountName".into(), json!(account));
        spec.insert("serviceAccount".into(), json!(account));
        let found = engine.value("/serviceaccounts", &key_of(&namespace, &account));
        let Some(found) = found else {
            let why = format!(
                "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
            );
            return Err(ApiError::forbidden(self.subject(&name), &why).into());
        };
        let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or("").to_owned();
        let (priority, policy) = priority(engine, &class).ok_or_else(|| {
            let why = format!("no PriorityClass with name {class} was found");
            ApiError::forbidden(self.subject(&name), &why)
        })?;
        if let Some(given) = spec.get("priority").and_then(Value::as_i64)
            && given != priority
        {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(ApiError::forbidden(self.subject(&name), &why).into());
        }
        let class = spec.get("runtimeClassName").and_then(Value::as_str).unwrap_or_default();
        if !class.is_empty() || spec.contains_key("overhead") {
            let why = match class {
                "" => "Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
                class => format!("RuntimeClass {class:?} not found"),
            };
            let why = format!("pod rejected: {why}");
            return Err(ApiError::forbidden(self.subject(&name), &why).into());
        }
        spec.insert("priority".into(), json!(priority));
        let given = spec.entry("preemptionPolicy").or_insert_with(|| policy.clone());
        if *given != policy {
            let why = format!(
                "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                given.as_str().unwrap_or_default(),
                policy.as_str().unwrap_or_default()
            );
            return Err(ApiError::forbidden(self.subject(&name), &why).into());
        }
        tolerate(spec);
        let mounts = spec
            .get("automountServiceAccountToken")
            .or_else(|| found.get("automountServiceAccountToken"))
            .and_then(Value::as_bool)
            .unwrap_or(true);
        if mounts {
            mount_token(spec, &self.context.entropy().suffix());
        }
        Ok(())
    }

    /// Refuses deletes that the system depends on.
    pub(crate) fn admit_delete(&self, _engine: &Engine, live: &Value) -> Result<(), Halt> {
        let name = object::name(live);
        if self.is_namespace() && IMMORTAL.contains(&name) {
            return Err(ApiError::forbidden(self.subject(name), "this namespace may not be deleted").into());
        }
        Ok(())
    }

    pub(crate) fn allocate(
        &self,
        engine: &Engine,
        object: &mut Value,
        live: Option<&Value>,
    ) -> Result<(), Halt> {
        match self.kind.kind.as_str() {
            "Service" if self.kind.is_builtin() => crate::services::allocate(engine, object, live),
            _ => Ok(()),
        }
    }

    pub(crate) fn escalation(
        &self,
        engine: &Engine,
        object: &Value,
        live: Option<&Value>,
    ) -> Result<(), ApiError> {
        if self.kind.group != "rbac.authorization.k8s.io" {
            return Ok(());
        }
        let (rules, user, kind) = (&engine.rules, self.request.user, self.kind.kind.as_str());
        let judged = match live {
            Some(live) => access::escalation::check_update(rules, user, kind, object, live),
            None => access::escalation::check(rules, user, kind, object),
        };
        judged.map_err(|why| ApiError::forbidden(self.subject(object::name(object)), &why))
    }
}

impl Engine {
    pub(crate) fn judge_definition(&self, definition: &mut Value, context: &crate::context::Context) {
        let others = self.values("apiextensions.k8s.io/customresourcedefinitions");
        let settled = crd::status::settle(definition, &others, &context.time());
        object::set(definition, "status", settled);
    }
}

/// What admission gave a pod at its creation stays where an update leaves it out.
pub(crate) fn keep_assigned(kind: &crate::kinds::Kind, object: &mut Value, live: &Value) {
    if kind.kind != "Pod" || !kind.is_builtin() {
        return;
    }
    for key in ["priority", "preemptionPolicy"] {
        if let Some(assigned) = object::at(live, "spec").and_then(|spec| spec.get(key)) {
            object::child_mut(object, "spec").entry(key).or_insert_with(|| assigned.clone());
        }
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut all: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    if !all.iter().any(|f| f == finalizer) {
        all.push(finalizer.to_owned());
    }
    object::set_meta(object, "finalizers", json!(all));
}

/// Keeps pods off a new node until its kubelet reports that it is ready.
fn taint_new_node(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = object::child_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|t| object::text_at(t, "key") == KEY)
    {
        taints.push(json!({ "key": KEY, "effect": "NoSchedule" }));
    }
}

fn admit_namespace(live: Option<&Value>, object: &mut Value) {
    match live {
        None => {
            let spec = object::child_mut(object, "spec");
            let mut finalizers: Vec<String> =
                object::strings(spec.get("finalizers")).into_iter().map(str::to_owned).collect();
            if !finalizers.iter().any(|f| f == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            spec.insert("finalizers".into(), json!(finalizers));
            object::child_mut(object, "status").insert("phase".into(), json!("Active"));
        }
        // Finalizers change through their own subresource only.
        Some(live) => object::copy_key(object, live, "spec"),
    }
}

/// A claim that names no class gets the default one, of several the newest.
fn put_default_class(engine: &Engine, claim: &mut Value) {
    if claim.pointer("/spec/storageClassName").is_some_and(|name| !name.is_null()) {
        return;
    }
    let classes = engine.values("storage.k8s.io/storageclasses").into_iter();
    let is_default = |class: &Value| {
        let annotations = class.pointer("/metadata/annotations");
        let mark = annotations.and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"));
        mark.is_some_and(|mark| mark == "true")
    };
    let age = |class: &Value| object::meta_text(class, "creationTimestamp").to_owned();
    let newest = classes.filter(is_default).max_by_key(age);
    if let Some(class) = newest {
        object::child_mut(claim, "spec").insert("storageClassName".into(), json!(object::name(&class)));
    }
}

/// Value and preemption policy of a priority class; `None` if it does not exist.
fn priority(engine: &Engine, class: &str) -> Option<(i64, Value)> {
    let found = match class {
        "" => return Some((0, json!("PreemptLowerPriority"))),
        class => engine.value("scheduling.k8s.io/priorityclasses", &key_of("", class))?,
    };
    let policy = found.get("preemptionPolicy").cloned().unwrap_or_else(|| json!("PreemptLowerPriority"));
    Some((found.get("value").and_then(Value::as_i64).unwrap_or(0), policy))
}

/// Pods stay five minutes on a node that is not ready or not reachable, unless their own tolerations differ.
fn tolerate(spec: &mut serde_json::Map<String, Value>) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = list.iter().any(|t| {
            let effect = object::text_at(t, "effect");
            matches!(effect, "" | "NoExecute")
                && matches!(
                    object::text_at(t, "key"),
                    "" | "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"
                )
                && (object::text_at(t, "key").is_empty() || object::text_at(t, "key") == key)
        });
        if !covered {
            list.push(
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }),
            );
        }
    }
}

/// The projected volume with token, authority and namespace, and its mount in every container.
fn mount_token(spec: &mut serde_json::Map<String, Value>, suffix: &str) {
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let volume = format!("kube-api-access-{suffix}");
    let mut used = false;
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|m| object::text_at(m, "mountPath") == PATH) {
                mounts.push(json!({ "name": volume, "readOnly": true, "mountPath": PATH }));
                used = true;
            }
        }
    }
    if !used {
        return;
    }
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(json!({ "name": volume, "projected": { "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace",
                "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
        ] } }));
    }
}
