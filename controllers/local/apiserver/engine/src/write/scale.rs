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
use crate::schema::decode::{cannot_be_handled, complaints, decode_builtin};
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

/// The `Scale` of an object that is read; a custom one must have a number of replicas.
pub(crate) fn read(kind: &crate::kinds::Kind, object: &Value) -> Result<Value, ApiError> {
    let (wanted, ..) = paths(kind);
    if kind.custom.is_some() && object::at(object, &wanted).and_then(Value::as_i64).is_none() {
        return Err(ApiError::internal(format!("the spec replicas field \".{wanted}\" does not exist")));
    }
    Ok(from_object(kind, object))
}

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
    pub(crate) fn scale(&mut self, engine: &mut Engine, patching: bool) -> Result<Value, Halt> {
        let given = if patching { None } else { Some(self.given_scale()?) };
        let live = self.live(engine)?;
        let current = from_object(&self.kind, &live);
        let wanted = given.map_or_else(|| self.patched_scale(&current), Ok)?;
        let unknown = typed(&mut wanted.clone()).map_err(|error| match error.code {
            400 if patching => decode::bad_patch(&wanted, &error.message),
            _ => error,
        })?;
        self.warn(unknown);
        self.check_scale(&live, &wanted)?;
        self.check_place(&wanted)?;
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

    fn given_scale(&self) -> Result<Value, ApiError> {
        let format = crate::media::body_format(self.request.content_type, true)?;
        let (scale, _) = decode::body(self.request.body, format, Some(SCALE))?;
        typed(&mut scale.clone())?;
        self.check_place(&scale)?;
        Ok(scale)
    }

    fn check_place(&self, scale: &Value) -> Result<(), ApiError> {
        if object::name(scale).is_empty() {
            return Err(self.without_name());
        }
        self.belongs_here(scale)
    }

    fn patched_scale(&self, current: &Value) -> Result<Value, ApiError> {
        let (document, _) = decode::body(self.request.body, BodyFormat::Json, None)?;
        if self.kind.custom.is_some() && self.request.content_type.starts_with("application/apply-patch") {
            let why = "failed to create manager for existing fields: failed to convert live object (/; \
                       autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid \
                       group/version: autoscaling/v1";
            return Err(ApiError::plain(500, "", why));
        }
        match self.request.content_type.split(';').next().unwrap_or("").trim() {
            "application/json-patch+json" => patch::apply_json_patch(current, &document),
            "application/merge-patch+json" | "application/apply-patch+yaml" => {
                patch::apply_merge_patch(current, &document)
            }
            "application/strategic-merge-patch+json" if self.kind.is_builtin() => {
                patch::apply_merge_patch(current, &document)
            }
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
        if self.kind.custom.is_some() && !given.is_empty() && given.parse::<u64>().is_err() {
            let why = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
            return Err(ApiError::plain(500, "", why));
        }
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
        let replicas = object::at(wanted, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        // A custom object is judged as a whole, with its own paths.
        if replicas < 0 && self.kind.is_builtin() {
            let error = FieldError::invalid("spec.replicas", &replicas, "must be greater than or equal to 0");
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

const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// Brings a scale into its types, and lists what it has besides; one that names no other is of the kind and version that
/// is meant.
fn typed(scale: &mut Value) -> Result<Vec<String>, ApiError> {
    let is = |key: &str, wanted: &str| matches!(object::text_at(scale, key), text if text.is_empty() || text == wanted);
    if !scale.is_object() || !is("kind", "Scale") || !is("apiVersion", "autoscaling/v1") {
        return Err(ApiError::bad_request("the object in the data is not a Scale of autoscaling/v1"));
    }
    let schema = crate::schema::builtin::builtin::<k8s_openapi::api::autoscaling::v1::Scale>();
    let decoded = decode_builtin(scale, &schema);
    let unknown = decoded.map_err(|why| ApiError::bad_request(cannot_be_handled("Scale", "v1", &why)))?;
    Ok(complaints(&unknown, &[]))
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
