//! What is scaled: how many replicas it has, which pods are its own, and how another number is written.
//!
//! By the `scale` subresource where the kind has one, by `spec.replicas` otherwise. Every write states the number that it
//! replaces, so that no write of another client is lost.

mod kinds;
mod roles;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{Expression, GroupVersionKind, Selector};
use kube::{Client, ResourceExt as _};
use neonvm_api::PodAutoscaler;
use neonvm_core_pod_autoscaler::status::failure;
use serde_json::{Value, json};

use kinds::Kind;
pub(crate) use kinds::Kinds;

use crate::pods::selector;
use crate::request::{Failed, within};

/// Attempts to write a number while others write the same object.
const ATTEMPTS: u32 = 5;
/// Label of the first pod of a group of Ray, the only one that serves.
const RAY_HEAD: (&str, &str) = ("ray.io/node-type", "head");

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) replicas: i32,
    /// Its pods are those that any of these takes.
    pub(crate) selectors: Vec<Selector>,
    way: Way,
}

/// How the number is written.
#[derive(Debug)]
enum Way {
    Scale {
        version: String,
    },
    /// The object's own field, at this version.
    Field {
        version: String,
    },
    /// A role of a `StormService`: its place in the list.
    Role {
        index: usize,
        name: String,
        is_set: bool,
    },
}

/// Reads and writes workloads.
pub(crate) struct Targets {
    client: Client,
    kinds: Kinds,
}

/// What an object refers to.
struct Named {
    api: Api<DynamicObject>,
    kind: Kind,
    name: String,
}

impl Targets {
    pub(crate) fn new(client: Client) -> Self {
        Self { kinds: Kinds::new(client.clone()), client }
    }

    async fn named(&self, object: &PodAutoscaler) -> Result<Named, Failed> {
        let reference = &object.spec.scale_target_ref;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let (version, kind, name) =
            (text(&reference.api_version), text(&reference.kind), text(&reference.name));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = self.kinds.find(&GroupVersionKind::gvk(group, version, &kind)).await?;
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::namespaced_with(self.client.clone(), &namespace, &kind.resource);
        Ok(Named { api, kind, name })
    }

    /// The workload of an object, as the API server has it now.
    pub(crate) async fn read(&self, object: &PodAutoscaler) -> Result<Workload, Failed> {
        let named = self.named(object).await?;
        match self.read_as(object, &named).await {
            Err(failed) if failed.is_missing => {
                // The kind may have been defined again, with other subresources.
                self.kinds.forget(&named.kind);
                Err(failed)
            }
            done => done,
        }
    }

    async fn read_as(&self, object: &PodAutoscaler, named: &Named) -> Result<Workload, Failed> {
        let what = format!("{} {}", named.kind.resource.kind, named.name);
        if roles::is_one(&named.kind.resource) {
            let service = within(&what, named.api.get(&named.name)).await?;
            return roles::read(object, &service);
        }
        if named.kind.has_scale {
            let scale = within(&what, named.api.get_scale(&named.name)).await?;
            let workload = of_scale(&scale, &what)?;
            return Ok(narrowed(workload, &named.kind));
        }
        let whole = within(&what, named.api.get(&named.name)).await?;
        Ok(narrowed(of_field(&whole, &what)?, &named.kind))
    }

    /// Writes the number, if it still is the one that was read.
    pub(crate) async fn write(
        &self,
        object: &PodAutoscaler,
        workload: &Workload,
        replicas: i32,
    ) -> Result<(), Failed> {
        let named = self.named(object).await?;
        let what = format!("{} {}", named.kind.resource.kind, named.name);
        let mut fresh: Option<Workload> = None;
        for _ in 0..ATTEMPTS {
            let seen = fresh.as_ref().unwrap_or(workload);
            if seen.replicas != workload.replicas {
                return Err(Failed::new(
                    failure::RESCALE,
                    format!(
                        "{what} was scaled from {} to {} by another client",
                        workload.replicas, seen.replicas
                    ),
                ));
            }
            match put(&named, seen, replicas, &what).await {
                Err(failed) if failed.is_conflict => fresh = Some(self.read_as(object, &named).await?),
                done => return done,
            }
        }
        Err(Failed::new(failure::RESCALE, format!("{what} changes too fast to be scaled")))
    }
}

async fn put(named: &Named, seen: &Workload, replicas: i32, what: &str) -> Result<(), Failed> {
    let (api, name, how) = (&named.api, &named.name, PatchParams::default());
    match &seen.way {
        Way::Scale { version } => {
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
            within(what, api.patch_scale(name, &how, &Patch::Merge(patch))).await.map(drop)
        }
        Way::Field { version } => {
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
            within(what, api.patch(name, &how, &Patch::Merge(patch))).await.map(drop)
        }
        Way::Role { index, name: role, is_set } => {
            let patch = roles::patch(*index, role, is_set.then_some(seen.replicas), replicas);
            let patch = serde_json::from_value(patch)
                .map_err(|error| Failed::new(failure::RESCALE, error.to_string()))?;
            let done = within(what, api.patch(name, &how, &Patch::Json::<()>(patch))).await;
            // A test that fails is refused as invalid, not as a conflict.
            done.map(drop)
                .map_err(|failed| Failed { is_conflict: failed.is_conflict || failed.is_invalid, ..failed })
        }
    }
}

fn of_scale(scale: &Scale, what: &str) -> Result<Workload, Failed> {
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
    let text = scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default();
    let selector = selector::parse(text).map_err(|error| {
        Failed::new(failure::GET_SCALE, format!("{what}: status.selector of its scale: {error}"))
    })?;
    let version = scale.metadata.resource_version.clone().unwrap_or_default();
    Ok(Workload { replicas, selectors: vec![selector], way: Way::Scale { version } })
}

fn of_field(whole: &DynamicObject, what: &str) -> Result<Workload, Failed> {
    let replicas = whole.data.pointer("/spec/replicas").and_then(Value::as_i64);
    let replicas = replicas.and_then(|replicas| i32::try_from(replicas).ok()).ok_or_else(|| {
        Failed::new(
            failure::GET_REPLICAS,
            format!("{what} has neither a scale nor a number in spec.replicas"),
        )
    })?;
    let text =
        whole.data.pointer("/status/selector").and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let selector = match (text, whole.data.pointer("/spec/selector")) {
        (Some(text), _) => selector::parse(text),
        (None, Some(selector)) => labels(selector),
        (None, None) => Err("there is none".to_owned()),
    };
    let selector = selector.map_err(|error| {
        Failed::new(failure::GET_SCALE, format!("{what}: status.selector or spec.selector: {error}"))
    })?;
    let version = whole.resource_version().unwrap_or_default();
    Ok(Workload { replicas, selectors: vec![selector], way: Way::Field { version } })
}

fn labels(selector: &Value) -> Result<Selector, String> {
    let selector: LabelSelector =
        serde_json::from_value(selector.clone()).map_err(|error| error.to_string())?;
    let selector = Selector::try_from(selector).map_err(|error| error.to_string())?;
    if selector.selects_all() { Err("the selector is empty".to_owned()) } else { Ok(selector) }
}

/// Of some kinds not every pod serves.
fn narrowed(mut workload: Workload, kind: &Kind) -> Workload {
    if kind.resource.group == roles::GROUP && kind.resource.kind == "RayClusterFleet" {
        let head = Expression::Equal(RAY_HEAD.0.to_owned(), RAY_HEAD.1.to_owned());
        for selector in &mut workload.selectors {
            selector.extend([head.clone()]);
        }
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_without_a_scale_is_read_by_its_fields() {
        let whole = |data: Value| -> DynamicObject { serde_json::from_value(data).unwrap() };
        let object = whole(json!({"metadata": {"name": "a", "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}}}));
        let workload = of_field(&object, "Fleet a").unwrap();
        assert_eq!((workload.replicas, workload.selectors[0].to_string()), (3, "app=x".to_owned()));
        let object = whole(json!({"metadata": {"name": "a"}, "spec": {"replicas": 3},
            "status": {"selector": "app=y"}}));
        assert_eq!(of_field(&object, "Fleet a").unwrap().selectors[0].to_string(), "app=y");
        for (data, word) in [
            (json!({"metadata": {}, "spec": {"selector": {}}}), "spec.replicas"),
            (json!({"metadata": {}, "spec": {"replicas": 1, "selector": {}}}), "empty"),
            (json!({"metadata": {}, "spec": {"replicas": 1}}), "there is none"),
        ] {
            let failed = of_field(&whole(data), "Fleet a").unwrap_err();
            assert!(failed.message.contains(word), "{}", failed.message);
        }
    }
}
