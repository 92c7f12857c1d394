//! Replacing an object, and the common second half of every change.

use serde_json::{Value, json};

use super::{Write, decode};
use crate::admission::Halt;
use crate::builtin;
use crate::engine::Engine;
use crate::field::FieldError;
use crate::object::{self, is_deleting, meta_text, set_meta};
use crate::ownership::{self, Ownership};
use crate::status::ApiError;
use crate::strategy;

const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Write<'_> {
    /// A PUT: `object` is decoded and defaulted.
    pub(crate) fn replace(&mut self, engine: &mut Engine, mut object: Value) -> Result<(u16, Value), Halt> {
        self.belongs_here(&object)?;
        self.place(&mut object)?;
        let live = match self.live(engine) {
            Ok(live) => live,
            Err(_) if self.kind.create_on_update && self.target.subresource.is_empty() => {
                if !object::uid(&object).is_empty() {
                    return Err(ApiError::not_found(self.subject(&self.target.name)).into());
                }
                set_meta(&mut object, "resourceVersion", Value::Null);
                let created = self.create(engine, object, false)?;
                return Ok((201, created));
            }
            Err(error) => return Err(error.into()),
        };
        Ok((200, self.change_to(engine, &live, object, Ownership::Update)?))
    }

    /// Refuses an object with the name or the namespace of another one.
    pub(super) fn belongs_here(&self, object: &Value) -> Result<(), ApiError> {
        let (given, name) = (object::name(object), &self.target.name);
        if !given.is_empty() && given != name {
            let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(ApiError::bad_request(why));
        }
        self.is_in_namespace(object)
    }

    pub(super) fn is_in_namespace(&self, object: &Value) -> Result<(), ApiError> {
        let given = object::namespace(object);
        if self.kind.namespaced && !given.is_empty() && given != self.target.namespace {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(why));
        }
        Ok(())
    }

    pub(super) fn without_name(&self) -> ApiError {
        let name = &self.target.name;
        let why =
            format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        ApiError::bad_request(why)
    }

    /// Gives an object the namespace of the request; its name is its own.
    pub(super) fn place(&self, object: &mut Value) -> Result<(), ApiError> {
        if object::name(object).is_empty() {
            return Err(self.without_name());
        }
        let namespace = if self.kind.namespaced { json!(self.target.namespace) } else { Value::Null };
        set_meta(object, "namespace", namespace);
        Ok(())
    }

    /// Replaces `live` by `object`: all steps between decoding the request and the store.
    pub(crate) fn change_to(
        &mut self,
        engine: &mut Engine,
        live: &Value,
        mut object: Value,
        mut ownership: Ownership,
    ) -> Result<Value, Halt> {
        let given = object::resource_version(&object);
        if self.kind.needs_version && (given.is_empty() || given == "0" && self.kind.custom.is_some()) {
            let error = FieldError {
                reason: crate::field::FieldReason::Invalid,
                field: "metadata.resourceVersion".into(),
                message: "Invalid value: 0: must be specified for an update".into(),
            };
            return Err(ApiError::invalid(self.subject(&self.target.name), &[error]).into());
        }
        self.preconditions(live, &object)?;
        if let Some(map) = object.as_object_mut() {
            for key in ["apiVersion", "kind"] {
                map.insert(key.to_owned(), live.get(key).cloned().unwrap_or_default());
            }
        }
        if self.target.subresource == "resize" {
            // What is dropped belongs to the manager all the same.
            if std::mem::replace(&mut ownership, Ownership::Applied) == Ownership::Update {
                ownership::track(self, Some(live), &mut object);
            }
            builtin::resize::keep(&mut object, live);
        }
        // The half that the subresource does not write is the live one, for webhooks too.
        strategy::prepare_update(&self.kind, &self.target.subresource, &mut object, live);
        crate::plugins::keep_assigned(&self.kind, &mut object, live);
        if ownership == Ownership::Update {
            ownership::track(self, Some(live), &mut object);
        }
        self.admit(engine, Some(live), &mut object)?;
        self.mutate(engine, "UPDATE", Some(live), &mut object)?;
        decode::default(&self.kind, &mut object);
        strategy::prepare_update(&self.kind, &self.target.subresource, &mut object, live);
        if decode::is_definition(&self.kind) && self.target.subresource.is_empty() {
            crate::crd::prepare_update(&mut object);
        }
        set_meta(&mut object, "resourceVersion", json!(object::resource_version(live)));
        self.check_update(engine, &object, live)?;
        if decode::is_definition(&self.kind) && self.target.subresource.is_empty() {
            self.warn(crate::crd::warnings(&object));
        }
        if !self.kind.is_builtin() && self.target.subresource.is_empty() {
            self.warn(builtin::meta::finalizer_warnings(&object, Some(live)));
        }
        self.admit_resize(engine, &object, live)?;
        self.validate_by_webhooks(engine, "UPDATE", Some(live), &object)?;
        self.allocate(engine, &mut object, Some(live))?;
        self.charge_quotas(engine, &object, live)?;
        self.finish(engine, object, live)
    }

    /// Stores a checked change; removes the object if that was what its last finalizer held up.
    pub(crate) fn finish(&mut self, engine: &mut Engine, object: Value, live: &Value) -> Result<Value, Halt> {
        let gone = is_deleting(live)
            && object::finalizers(&object).is_empty()
            && grace_is_over(&object)
            && self.holds_nothing(&object);
        if self.options.dry_run {
            return Ok(object);
        }
        if gone {
            return Ok(engine.remove(&self.kind, &self.key(), object));
        }
        if strategy::same(&object, live) {
            // Nothing changed: no write, no event, no new version.
            return Ok(live.clone());
        }
        let (shown, _) = engine.put(&self.kind, &self.key(), object);
        Ok(shown)
    }

    pub(crate) fn preconditions(&self, live: &Value, object: &Value) -> Result<(), ApiError> {
        let name = &self.target.name;
        let (given, current) = (object::uid(object), object::uid(live));
        // The uid in a PUT is a precondition; a patch that changes the uid fails validation.
        if self.request.method == crate::request::Method::Put && !given.is_empty() && given != current {
            return Err(self.unmet("UID", given, current));
        }
        let given = object::resource_version(object);
        if given.is_empty() || given == "0" && self.kind.is_builtin() {
            return Ok(());
        }
        if given.parse::<u64>().is_err() && self.kind.custom.is_some() {
            let why = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
            return Err(ApiError::plain(500, "", why));
        }
        if given.parse::<u64>().is_err() {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &given,
                &format!("strconv.ParseUint: parsing {given:?}: invalid syntax"),
            );
            return Err(ApiError::invalid(self.subject_kind(name), &[error]));
        }
        if given != meta_text(live, "resourceVersion") {
            return Err(ApiError::conflict(self.subject(name), STALE));
        }
        Ok(())
    }

    fn check_update(&self, engine: &Engine, object: &Value, live: &Value) -> Result<(), ApiError> {
        let errors = builtin::meta::validate(&self.kind, object, Some(live));
        let sub = self.target.subresource.as_str();
        let mut errors = decode::validate(&self.kind, sub, object, Some(live), errors);
        if self.kind.is_builtin() {
            errors.extend(builtin::validate_update(&self.kind.group, &self.kind.kind, sub, object, live));
        }
        if decode::is_definition(&self.kind) && sub.is_empty() {
            errors.extend(crate::crd::validate_update(object, live));
        }
        if errors.is_empty() {
            return self.escalation(engine, object, Some(live));
        }
        Err(ApiError::invalid(self.subject_kind(&self.target.name), &errors))
    }
}

/// Whether the grace period is over: it is zero, or was never set.
fn grace_is_over(object: &Value) -> bool {
    object::meta(object).get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) == 0
}
