//! From bytes to a checked object of a kind.

use serde_json::{Value, json};

use super::Write;
use crate::admission::Halt;
use crate::builtin;
use crate::crd;
use crate::field::FieldError;
use crate::kinds::Kind;
use crate::media::BodyFormat;
use crate::options::FieldValidation;
use crate::schema::{self, json::parse_json};
use crate::status::ApiError;

/// Reads a body; also the paths of keys that stand in it more than once.
pub(crate) fn body(bytes: &[u8], format: BodyFormat) -> Result<(Value, Vec<String>), ApiError> {
    match format {
        BodyFormat::Json => parse_json(bytes).map_err(|problem| ApiError::bad_request(problem.to_string())),
        // Every JSON document is YAML; read it as JSON where it is, which is quicker and notices duplicates.
        BodyFormat::Yaml if bytes.trim_ascii_start().starts_with(b"{") => {
            parse_json(bytes).map_err(|problem| ApiError::bad_request(problem.to_string()))
        }
        BodyFormat::Yaml => Ok((crate::yaml::to_json(bytes)?, Vec::new())),
    }
}

impl Write<'_> {
    /// The object in the body, typed, checked and defaulted.
    pub(crate) fn decode(&mut self) -> Result<Value, Halt> {
        let format = crate::media::body_format(self.request.content_type)?;
        let (mut object, duplicates) = body(self.request.body, format)?;
        self.header(&mut object)?;
        let unknown = self.typed(&mut object)?;
        self.report(&unknown, &duplicates)?;
        default(&self.kind, &mut object);
        Ok(object)
    }

    /// Checks `apiVersion` and `kind`, or fills them in.
    fn header(&self, object: &mut Value) -> Result<(), ApiError> {
        let Some(map) = object.as_object_mut() else {
            let shown = match object {
                Value::Array(_) => "array",
                Value::Null => "null",
                _ => "scalar",
            };
            return Err(ApiError::bad_request(format!(
                "couldn't get version/kind; json parse error: cannot use a JSON {shown} as an object"
            )));
        };
        let wanted = self.kind.api_version();
        for (key, wanted) in [("apiVersion", wanted.as_str()), ("kind", self.kind.kind.as_str())] {
            match map.get(key) {
                None | Some(Value::Null) => drop(map.insert(key.to_owned(), json!(wanted))),
                Some(Value::String(given)) if given.is_empty() => drop(map.insert(key.to_owned(), json!(wanted))),
                Some(Value::String(given)) if given == wanted => {}
                Some(given) => {
                    let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
                    return Err(ApiError::bad_request(format!(
                        "the {key} in the data ({given}) does not match the expected {key} ({wanted})"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Brings the object into the types of its kind; the paths of fields that the kind does not have.
    pub(crate) fn typed(&self, object: &mut Value) -> Result<Vec<String>, ApiError> {
        if !self.kind.is_builtin() {
            // Metadata has the same types everywhere; the rest is checked against the schema, with field paths.
            let mut unknown = schema::prune::prune(object, self.kind.schema());
            if let Some(metadata) = object.get_mut("metadata") {
                let found = schema::decode::decode_builtin(metadata, &schema::builtin::object_meta());
                let found = found.map_err(|why| {
                    ApiError::bad_request(schema::decode::cannot_be_handled(
                        &self.kind.kind,
                        &self.kind.version,
                        &why,
                    ))
                })?;
                unknown.extend(found.iter().map(|path| format!("metadata.{path}")));
            }
            return Ok(unknown);
        }
        schema::decode::decode_builtin(object, self.kind.schema()).map_err(|why| {
            ApiError::bad_request(schema::decode::cannot_be_handled(&self.kind.kind, &self.kind.version, &why))
        })
    }

    /// Refuses, warns of, or ignores unknown and duplicate fields, as the request wants.
    pub(crate) fn report(&mut self, unknown: &[String], duplicates: &[String]) -> Result<(), ApiError> {
        let complaints = schema::decode::complaints(unknown, duplicates);
        match self.options.validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warn(complaints),
            FieldValidation::Strict => {
                if let Some(message) = schema::decode::strict_error(&complaints) {
                    return Err(ApiError::bad_request(message));
                }
            }
        }
        Ok(())
    }
}

/// Reports duplicate keys of a patch document.
pub(crate) fn report_duplicates(write: &mut Write<'_>, duplicates: &[String]) -> Result<(), ApiError> {
    write.report(&[], duplicates)
}

/// Types an object that did not come from a body of its own (a patched or applied one).
pub(crate) fn check(write: &mut Write<'_>, object: &mut Value, _patched: bool) -> Result<(), ApiError> {
    let unknown = write.typed(object)?;
    write.report(&unknown, &[])
}

/// Fills in defaults.
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

/// Whether the kind is that of custom resource definitions.
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
    let subject = schema::validate::Subject { object, old, status_only: subresource == "status" };
    schema::validate::custom_with(kind.schema(), subject, earlier)
}
