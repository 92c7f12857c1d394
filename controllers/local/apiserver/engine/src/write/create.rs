//! Creating an object.

use serde_json::{Value, json};

use super::{Write, decode};
use crate::admission::Halt;
use crate::builtin;
use crate::engine::Engine;
use crate::object::{self, is_deleting, set_meta};
use crate::ownership;
use crate::status::{ApiError, Subject};
use crate::strategy;

/// Attempts at a generated name before the request fails.
const NAME_ATTEMPTS: usize = 8;

impl Write<'_> {
    /// Creates `object` (decoded, defaulted) and returns it as stored.
    ///
    /// `applied` is set for the create half of a server-side apply: its manager owns what was applied.
    pub(crate) fn create(
        &mut self,
        engine: &mut Engine,
        mut object: Value,
        applied: bool,
    ) -> Result<Value, Halt> {
        if !object::resource_version(&object).is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::plain(500, "", why).into());
        }
        self.check_namespace(&mut object)?;
        self.lifecycle(engine, &object)?;
        let mut entropy = self.context.entropy();
        let generated = object::name(&object).is_empty();
        self.name(engine, &mut object, &mut entropy)?;
        let key = crate::store::key_of(&self.target.namespace_of(&self.kind), object::name(&object));
        strategy::prepare_create(&self.kind, &mut object, self.context, &mut entropy);
        // What admission adds is of no manager.
        if !applied {
            ownership::track(self, None, &mut object);
        }
        self.admit(engine, None, &mut object)?;
        self.mutate(engine, "CREATE", None, &mut object)?;
        // What webhooks may have added without its defaults.
        decode::default(&self.kind, &mut object);
        self.check_create(engine, &object)?;
        if decode::is_definition(&self.kind) {
            self.warn(crate::crd::warnings(&object));
        } else if self.kind.is_builtin() {
            self.warn(builtin::warnings(&self.kind.kind, &object));
        } else {
            self.warn(builtin::meta::finalizer_warnings(&object, None));
        }
        self.validate_by_webhooks(engine, "CREATE", None, &object)?;
        if let Some(existing) = engine.store.read(&self.kind.table, &key) {
            let mut error = ApiError::already_exists(self.subject(object::name(&object)));
            if is_deleting(&crate::render::parse(&existing.json)) {
                error.message = format!("object is being deleted: {}", error.message);
            }
            if generated {
                error.message = format!(
                    "{}, the server was not able to generate a unique name for the object",
                    error.message
                );
            }
            return Err(error.into());
        }
        self.allocate(engine, &mut object, None)?;
        if self.options.dry_run {
            return Ok(object);
        }
        let (shown, _) = engine.put(&self.kind, &key, object);
        Ok(shown)
    }

    /// Puts the namespace of the path into the object, or refuses another one.
    fn check_namespace(&self, object: &mut Value) -> Result<(), ApiError> {
        if !self.kind.namespaced {
            set_meta(object, "namespace", Value::Null);
            return Ok(());
        }
        self.is_in_namespace(object)?;
        set_meta(object, "namespace", json!(self.target.namespace));
        Ok(())
    }

    /// Refuses content for definitions that are going away, and namespaces that are missing or going away.
    fn lifecycle(&self, engine: &Engine, object: &Value) -> Result<(), ApiError> {
        if engine.is_ending(&self.kind) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(self.subject(object::name(object)), why));
        }
        if !self.kind.namespaced || matches!(self.kind.verbs, crate::kinds::Verbs::Create) {
            return Ok(());
        }
        let name = &self.target.namespace;
        let Some(namespace) = engine.value("/namespaces", &crate::store::key_of("", name)) else {
            return Err(ApiError::not_found(Subject { group: "", resource: "namespaces", name }));
        };
        if !is_deleting(&namespace) {
            return Ok(());
        }
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut error = ApiError::forbidden(self.subject(object::name(object)), &why);
        if let Some(details) = &mut error.details {
            let message = format!("namespace {name} is being terminated");
            details.insert(
                "causes".into(),
                json!([{ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" }]),
            );
        }
        Err(error)
    }

    fn name(
        &self,
        engine: &Engine,
        object: &mut Value,
        entropy: &mut crate::context::Entropy,
    ) -> Result<(), ApiError> {
        if !object::name(object).is_empty() {
            return Ok(());
        }
        let prefix = object::meta_text(object, "generateName").to_owned();
        if prefix.is_empty() {
            // It is refused with whatever else is wrong.
            return Ok(());
        }
        // Room for the suffix: 63 bytes in all, as names are often used as labels.
        let mut end = prefix.len().min(58);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let base = prefix.get(..end).unwrap_or("");
        for _ in 0..NAME_ATTEMPTS {
            let name = format!("{base}{}", entropy.suffix());
            let key = crate::store::key_of(&self.target.namespace_of(&self.kind), &name);
            let free = engine.store.read(&self.kind.table, &key).is_none();
            set_meta(object, "name", json!(name));
            if free {
                break;
            }
        }
        Ok(())
    }

    fn check_create(&self, engine: &Engine, object: &Value) -> Result<(), ApiError> {
        let errors = builtin::meta::validate(&self.kind, object, None);
        let mut errors = decode::validate(&self.kind, "", object, None, errors);
        if self.kind.is_builtin() {
            errors.extend(builtin::validate_create(&self.kind.group, &self.kind.kind, object));
        }
        if decode::is_definition(&self.kind) {
            errors.extend(crate::crd::validate_create(object));
        }
        if errors.is_empty() {
            return self.escalation(engine, object, None);
        }
        Err(ApiError::invalid(self.subject_kind(object::name(object)), &errors))
    }
}
