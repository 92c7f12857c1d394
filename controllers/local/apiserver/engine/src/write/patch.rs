//! PATCH: four patch types onto the live object, then the way of any other update.

use serde_json::Value;

use super::{Write, decode};
use crate::admission::Halt;
use crate::engine::Engine;
use crate::media::{self, BodyFormat};
use crate::object;
use crate::ownership::{self, Ownership};
use crate::patch;
use crate::status::ApiError;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Write<'_> {
    pub(crate) fn patch(&mut self, engine: &mut Engine) -> Result<(u16, Value), Halt> {
        let media = self.request.content_type.split(';').next().unwrap_or("").trim();
        let accepted: &[&str] =
            if self.kind.is_builtin() { &[JSON, MERGE, STRATEGIC, APPLY] } else { &[JSON, MERGE, APPLY] };
        if !accepted.contains(&media) {
            return Err(media::unsupported(accepted, media).into());
        }
        if media == APPLY {
            return self.apply(engine);
        }
        let live = self.live(engine)?;
        let (document, duplicates) = decode::body(self.request.body, BodyFormat::Json, None)?;
        let mut object = match media {
            JSON => patch::apply_json_patch(&live, &document)?,
            MERGE => patch::apply_merge_patch(&live, &document)?,
            _ => patch::apply_strategic(&live, &document, self.kind.schema())?,
        };
        self.check_identity(&object, &document)?;
        decode::check_patched(self, &mut object, &document, &duplicates)?;
        decode::default(&self.kind, &mut object);
        self.place(&mut object)?;
        Ok((200, self.change_to(engine, &live, object, Ownership::Update)?))
    }

    /// What a patch must not change: what and where the object is.
    fn check_identity(&self, object: &Value, patch: &Value) -> Result<(), ApiError> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
        let (wanted, given) = (self.kind.api_version(), text("apiVersion"));
        for (key, wanted) in [("kind", self.kind.kind.as_str()), ("apiVersion", &wanted)] {
            let given = text(key);
            if self.kind.custom.is_some() && !given.is_empty() && given != wanted {
                let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
                let subject =
                    crate::status::Subject { group, resource: text("kind"), name: &self.target.name };
                let error = crate::field::FieldError::invalid(key, given, &format!("must be {wanted}"));
                return Err(ApiError::invalid(subject, &[error]));
            }
        }
        if (given != wanted || text("kind") != self.kind.kind) && object.is_object() {
            let why = format!(
                "the patched object is {given} {}, expected {wanted} {}: apiVersion and kind cannot be changed",
                text("kind"),
                self.kind.kind
            );
            return Err(decode::bad_patch(patch, &why));
        }
        self.belongs_here(object)
    }

    fn apply(&mut self, engine: &mut Engine) -> Result<(u16, Value), Halt> {
        if !self.options.manager_given {
            let error = crate::field::FieldError::required("fieldManager", "is required for apply patch");
            let subject = crate::status::Subject { group: "meta.k8s.io", resource: "PatchOptions", name: "" };
            return Err(ApiError::invalid(subject, &[error]).into());
        }
        let (mut applied, duplicates) = decode::body(self.request.body, BodyFormat::Json, None)?;
        crate::schema::prune::whole_numbers(&mut applied);
        // As it came: decoding would drop what is wrong with it.
        ownership::check_applied(self, &applied)?;
        self.report(&[], &duplicates)?;
        let has_name = !object::name(&applied).is_empty();
        self.check_applied(&mut applied)?;
        // Values of built-in kinds are compared as they are written: `1000m` is not `1`.
        if !self.kind.is_builtin() {
            self.typed(&mut applied)?;
        }
        let live = self.live(engine).ok();
        if let Some(live) = &live {
            self.preconditions(live, &applied)?;
        }
        if live.is_none() && !self.target.subresource.is_empty() {
            return Err(ApiError::not_found(self.subject(&self.target.name)).into());
        }
        let mut object = ownership::apply(self, live.as_ref(), &applied)?;
        if self.kind.is_builtin() {
            self.typed(&mut object).map_err(|error| ApiError::plain(500, "", error.message))?;
        }
        decode::default(&self.kind, &mut object);
        match live {
            Some(live) => {
                self.place(&mut object)?;
                Ok((200, self.change_to(engine, &live, object, Ownership::Applied)?))
            }
            None => {
                if !has_name {
                    return Err(self.without_name().into());
                }
                let uid = object::uid(&applied);
                if !uid.is_empty() {
                    let why =
                        "uid mismatch: the provided object specified uid, and no existing object was found";
                    return Err(ApiError::conflict(self.subject(&self.target.name), why).into());
                }
                let created = self.create(engine, object, true)?;
                Ok((201, created))
            }
        }
    }

    fn check_applied(&self, applied: &mut Value) -> Result<(), ApiError> {
        let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let (given, kind) = (text("apiVersion"), text("kind"));
        let wanted = self.kind.api_version();
        if given != wanted || kind != self.kind.kind {
            return Err(ApiError::bad_request(format!(
                "invalid object type: {given}, Kind={kind}; the request is for {wanted}, Kind={}",
                self.kind.kind
            )));
        }
        self.belongs_here(applied)?;
        object::set_meta(applied, "name", serde_json::json!(self.target.name));
        Ok(())
    }
}
