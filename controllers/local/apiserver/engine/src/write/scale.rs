//! The scale subresource, of built-in workloads and of custom kinds.

use serde_json::{Value, json};

use super::{Write, decode};
use crate::admission::Halt;
use crate::engine::Engine;
use crate::field::FieldError;
use crate::media::BodyFormat;
use crate::object;
use crate::ownership::Ownership;
use crate::patch;
use crate::status::ApiError;

/// Where a kind keeps its numbers: wanted, observed, selector.
fn paths(kind: &crate::kinds::Kind) -> (String, String, Option<String>) {
    match kind.custom.as_ref().and_then(|version| version.scale.as_ref()) {
        Some(scale) => {
            let plain = |path: &str| path.trim_start_matches('.').to_owned();
            (
                plain(&scale.spec_replicas),
                plain(&scale.status_replicas),
                scale.label_selector.as_deref().map(plain),
            )
        }
        None => ("spec.replicas".into(), "status.replicas".into(), None),
    }
}

/// The `Scale` of an object.
pub(crate) fn from_object(kind: &crate::kinds::Kind, object: &Value) -> Value {
    let (wanted, observed, selector) = paths(kind);
    let mut metadata = json!({ "name": object::name(object), "namespace": object::namespace(object) });
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::meta(object).get(key) {
            object::set(&mut metadata, key, value.clone());
        }
    }
    let mut scale = json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": { "replicas": object::at(object, &observed).and_then(Value::as_i64).unwrap_or(0) } });
    let replicas = object::at(object, &wanted).and_then(Value::as_i64).unwrap_or(0);
    if replicas != 0 {
        object::child_mut(&mut scale, "spec").insert("replicas".into(), json!(replicas));
    }
    let text = match selector {
        Some(path) => object::text_at(object, &path).to_owned(),
        None if kind.custom.is_some() => String::new(),
        None => crate::selector::text_of(object::at(object, "spec.selector")),
    };
    if !text.is_empty() {
        object::child_mut(&mut scale, "status").insert("selector".into(), json!(text));
    }
    scale
}

impl Write<'_> {
    /// PUT or PATCH of the scale.
    pub(crate) fn scale(&mut self, engine: &mut Engine, patching: bool) -> Result<Value, Halt> {
        let live = self.live(engine)?;
        let current = from_object(&self.kind, &live);
        let wanted = if patching { self.patched_scale(&current)? } else { self.given_scale(&current)? };
        self.check_scale(&live, &wanted).map_err(|error| match error.code {
            400 if patching => decode::bad_patch(self, &wanted, &error.message),
            _ => error,
        })?;
        self.mutate_scale(engine, &current, &wanted)?;
        let replicas = object::at(&wanted, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        let mut object = live.clone();
        let (path, ..) = paths(&self.kind);
        set_at(&mut object, &path, json!(replicas));
        if self.options.dry_run {
            let mut shown = current;
            object::child_mut(&mut shown, "spec").insert("replicas".into(), json!(replicas));
            return Ok(shown);
        }
        let subresource = std::mem::take(&mut self.target.subresource);
        // Ownership is noted under the subresource, everything else is an ordinary update.
        crate::strategy::prepare_update(&self.kind, "", &mut object, &live);
        self.target.subresource = subresource;
        crate::ownership::track(self, Some(&live), &mut object);
        drop_times(&mut object);
        self.target.subresource.clear();
        let done = self.change_to(engine, &live, object, Ownership::Applied)?;
        Ok(from_object(&self.kind, &done))
    }

    fn given_scale(&self, current: &Value) -> Result<Value, ApiError> {
        let format = crate::media::body_format(self.request.content_type, true)?;
        let (scale, _) = decode::body(self.request.body, format, Some("io.k8s.api.autoscaling.v1.Scale"))?;
        if object::text_at(&scale, "kind") != "Scale" {
            return Err(ApiError::bad_request(format!(
                "the kind in the data ({}) does not match the expected kind (Scale)",
                object::text_at(&scale, "kind")
            )));
        }
        let (given, name) = (object::name(&scale), object::name(current));
        if given.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        Ok(scale)
    }

    fn patched_scale(&self, current: &Value) -> Result<Value, ApiError> {
        let (document, _) = decode::body(self.request.body, BodyFormat::Json, None)?;
        match self.request.content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => patch::apply_json_patch(current, &document),
            "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
            | "application/apply-patch+yaml" => patch::apply_merge_patch(current, &document),
            other => Err(crate::media::unsupported(
                &[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/apply-patch+yaml",
                ],
                other,
            )),
        }
    }

    fn check_scale(&self, live: &Value, wanted: &Value) -> Result<(), ApiError> {
        let name = object::name(live);
        let given = object::resource_version(wanted);
        if !given.is_empty() && given != object::resource_version(live) {
            return Err(ApiError::conflict(
                self.subject(name),
                "the object has been modified; please apply your changes to the latest version and try again",
            ));
        }
        let given = object::uid(wanted);
        if !given.is_empty() && given != object::uid(live) {
            return Err(self.unmet("UID", given, object::uid(live)));
        }
        let replicas = object::at(wanted, "spec.replicas");
        if let Some(odd) = replicas.filter(|r| !r.is_null() && r.as_i64().is_none()) {
            return Err(ApiError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                if odd.is_string() { "string" } else { "value" }
            )));
        }
        let replicas = replicas.and_then(Value::as_i64).unwrap_or(0);
        // A custom object is judged as a whole, with its own paths.
        if replicas < 0 && self.kind.is_builtin() {
            let error =
                FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            let subject = crate::status::Subject { group: "autoscaling", resource: "Scale", name };
            return Err(ApiError::invalid(subject, &[error]));
        }
        Ok(())
    }

    /// Webhooks see the Scale, not the workload.
    fn mutate_scale(&mut self, engine: &Engine, current: &Value, wanted: &Value) -> Result<(), Halt> {
        let mut shown = wanted.clone();
        self.mutate(engine, "UPDATE", Some(current), &mut shown)?;
        self.validate_by_webhooks(engine, "UPDATE", Some(current), &shown)
    }
}

/// Sets the value at a dotted path, making objects on the way.
fn set_at(object: &mut Value, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        if let Some(map) = object.as_object_mut() {
            map.insert(path.to_owned(), value);
        }
        return;
    };
    object::child_mut(object, first);
    if let Some(child) = object.get_mut(first) {
        set_at(child, rest, value);
    }
}

/// The manager that set the scale is recorded without a time.
fn drop_times(object: &mut Value) {
    let entries = object::meta_mut(object).get_mut("managedFields").and_then(Value::as_array_mut);
    for entry in
        entries.into_iter().flatten().filter(|entry| object::text_at(entry, "subresource") == "scale")
    {
        object::drop_key(entry, "time");
    }
}
