//! From bytes to a checked object of a kind.

use serde_json::{Value, json};

use super::Write;
use crate::admission::Halt;
use crate::builtin;
use crate::crd;
use crate::engine::Engine;
use crate::field::FieldError;
use crate::kinds::Kind;
use crate::media::BodyFormat;
use crate::options::FieldValidation;
use crate::schema::{self, json::parse_json};
use crate::status::{ApiError, Subject};

/// Reads a body; also the paths of keys that stand in it more than once. `type_name` is what a protobuf body holds
/// (`io.k8s.api.core.v1.Pod`), if it may be one.
pub(crate) fn body(
    bytes: &[u8],
    format: BodyFormat,
    type_name: Option<&str>,
) -> Result<(Value, Vec<String>), ApiError> {
    match format {
        BodyFormat::Json => Ok(parse_json(bytes)?),
        BodyFormat::Protobuf => match type_name {
            Some(type_name) => Ok((crate::proto::decode(bytes, type_name)?, Vec::new())),
            None => Err(crate::media::unsupported(&["application/json"], "")),
        },
    }
}

impl Write<'_> {
    /// The object in the body, typed, checked and defaulted.
    pub(crate) fn decode(&mut self, engine: &Engine) -> Result<Value, Halt> {
        let format = crate::media::body_format(self.request.content_type, self.kind.is_builtin())?;
        let type_name = self.kind.schema().type_name.as_deref().filter(|_| self.kind.is_builtin());
        let (mut object, duplicates) = body(self.request.body, format, type_name)?;
        let mut odd = Vec::new();
        if let Err(error) = self.header(engine, &mut object, &mut odd) {
            if self.options.validation == FieldValidation::Warn {
                self.warn(schema::decode::complaints(&odd, &[]));
            }
            return Err(error.into());
        }
        let mut unknown = self.typed(&mut object)?;
        if format == BodyFormat::Protobuf {
            // Unknown fields have numbers only, and are skipped.
            unknown.clear();
        }
        self.report(&unknown, &duplicates)?;
        default(&self.kind, &mut object);
        Ok(object)
    }

    /// Checks `apiVersion` and `kind`, or fills them in.
    fn header(&self, engine: &Engine, object: &mut Value, unknown: &mut Vec<String>) -> Result<(), ApiError> {
        let Some(map) = object.as_object_mut() else {
            let shown = schema::json::kind_of(object);
            return Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: cannot use a JSON {shown} as an object"
            )));
        };
        let wanted = self.kind.api_version();
        let name = map.get("metadata").map_or("", |m| crate::object::text_at(m, "name")).to_owned();
        for (key, shown, wanted) in
            [("apiVersion", "API version", wanted.as_str()), ("kind", "kind", self.kind.kind.as_str())]
        {
            match map.get(key) {
                None | Some(Value::Null) => drop(map.insert(key.to_owned(), json!(wanted))),
                Some(Value::String(given)) if given.is_empty() => {
                    drop(map.insert(key.to_owned(), json!(wanted)));
                }
                Some(Value::String(given)) if given == wanted => {}
                Some(given) => {
                    let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
                    if key == "kind" && self.kind.custom.is_some() {
                        let why = format!("must be {wanted}");
                        let error = FieldError::invalid("kind", &given, &why);
                        let subject = Subject { group: &self.kind.group, resource: &given, name: &name };
                        return Err(ApiError::invalid(subject, &[error]));
                    }
                    let unknown_version =
                        key == "apiVersion" && engine.kinds.by_kind(&given, &self.kind.kind).is_none();
                    if self.kind.custom.is_some() && unknown_version {
                        // Read as an object of an unknown type, it has metadata and nothing else.
                        let known = ["apiVersion", "kind", "metadata"];
                        let others = map.keys().filter(|key| !known.contains(&key.as_str())).cloned();
                        unknown.extend(others);
                    }
                    return Err(ApiError::bad_request(format!(
                        "the {shown} in the data ({given}) does not match the expected {shown} ({wanted})"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Brings the object into the types of its kind; returns the paths of fields that the kind does not have.
    pub(crate) fn typed(&self, object: &mut Value) -> Result<Vec<String>, ApiError> {
        schema::json::check_lists(object)?;
        if !self.kind.is_builtin() {
            schema::prune::whole_numbers(object);
            // Metadata has the same types everywhere; the rest is checked against the schema, with field paths.
            let mut unknown = schema::prune::prune(object, self.kind.schema());
            let found =
                schema::decode::decode_metadata(object).map_err(|why| self.cannot_be_handled(&why))?;
            unknown.extend(found);
            return Ok(unknown);
        }
        schema::decode::decode_builtin(object, self.kind.schema()).map_err(|why| self.cannot_be_handled(&why))
    }

    /// 400 for a body that does not fit the types of its kind.
    fn cannot_be_handled(&self, why: &str) -> ApiError {
        let Kind { kind, version, .. } = &*self.kind;
        ApiError::bad_request(schema::decode::cannot_be_handled(kind, version, why))
    }

    /// Refuses, warns of, or ignores unknown and duplicate fields, as the request wants.
    pub(crate) fn report(&mut self, unknown: &[String], duplicates: &[String]) -> Result<(), ApiError> {
        let complaints = schema::decode::complaints(unknown, duplicates);
        match self.options.validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warn(complaints),
            FieldValidation::Strict => {
                if let Some(message) = schema::decode::strict_error(&complaints) {
                    return Err(self.cannot_be_handled(&message));
                }
            }
        }
        Ok(())
    }
}

/// Types a patched object. What is wrong with it is wrong with the patch: 422 for the field `patch`.
pub(crate) fn check_patched(
    write: &mut Write<'_>,
    object: &mut Value,
    patch: &Value,
    duplicates: &[String],
) -> Result<(), ApiError> {
    let done = write.typed(object).and_then(|unknown| write.report(&unknown, duplicates));
    done.map_err(|error| bad_patch(patch, &error.message))
}

pub(crate) fn bad_patch(patch: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", &patch.to_string(), why);
    // What cannot be decoded is an object of no kind.
    ApiError::invalid(Subject { group: "", resource: "", name: "" }, &[error])
}

pub(crate) fn default(kind: &Kind, object: &mut Value) {
    if kind.is_builtin() {
        builtin::default(&kind.group, &kind.version, &kind.kind, object);
        if is_definition(kind) {
            crd::prepare::apply_defaults(object);
        }
    } else {
        schema::default::apply_defaults(object, kind.schema());
    }
}

pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.kind == "CustomResourceDefinition" && kind.group == "apiextensions.k8s.io"
}

/// Schema validation; built-in kinds have their own rules.
pub(crate) fn validate(
    kind: &Kind,
    subresource: &str,
    object: &Value,
    old: Option<&Value>,
    earlier: Vec<FieldError>,
) -> Vec<FieldError> {
    if kind.is_builtin() {
        return earlier;
    }
    let mut earlier = earlier;
    if let Some(scale) = kind.custom.as_ref().and_then(|version| version.scale.as_ref()) {
        earlier.extend(crd::scale::check(scale, object));
    }
    let subject = schema::validate::Subject { object, old, status_only: subresource == "status" };
    schema::validate::custom_with(kind.schema(), subject, earlier)
}
