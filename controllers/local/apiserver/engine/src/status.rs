//! The one error type of the API: it renders as a `v1.Status` with the code, reason, details and wording of a real
//! API server.

use serde_json::{Map, Value, json};

use crate::field::FieldError;

/// The `reason` of a refusal that is shown as plain text and not as a Status.
pub(crate) const NO_SUCH_PATH: &str = "NoSuchPath";

#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    /// `reason` of the Status (`NotFound`, `Conflict`, …); empty for none.
    pub reason: &'static str,
    pub message: String,
    /// `details`, if any.
    pub details: Option<Box<Map<String, Value>>>,
    /// Seconds for the `Retry-After` header, if the client should come back.
    pub retry_after: Option<u32>,
}

/// Which object an error speaks of, for messages such as `pods "x" not found` and `Pod "x" is invalid`.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut map = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                map.insert(key.to_owned(), json!(value));
            }
        }
        map
    }
}

/// Most faults of an object that an answer names: each is longer than what causes it.
const MOST_FAULTS: usize = 200;

impl ApiError {
    pub fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut details = Map::new();
        details.insert("causes".into(), json!([{ "message": message }]));
        Self {
            code: 500,
            reason: "InternalError",
            message: format!("Internal error occurred: {message}"),
            details: Some(Box::new(details)),
            retry_after: None,
        }
    }

    /// 404 `NotFound`: `pods "x" not found`.
    pub fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::about(404, "NotFound", message, subject)
    }

    /// 409 `AlreadyExists`.
    pub fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::about(409, "AlreadyExists", message, subject)
    }

    /// 409 `Conflict`: `Operation cannot be fulfilled on pods "x": <why>`.
    pub fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", subject.qualified(), subject.name);
        Self::about(409, "Conflict", message, subject)
    }

    /// 403 `Forbidden`: `pods "x" is forbidden: <why>`.
    pub fn forbidden(subject: Subject<'_>, why: &str) -> Self {
        let message = if subject.name.is_empty() {
            format!("{} is forbidden: {why}", subject.qualified())
        } else {
            format!("{} \"{}\" is forbidden: {why}", subject.qualified(), subject.name)
        };
        Self::about(403, "Forbidden", message, subject)
    }

    /// 422 `Invalid`: `Pod "x" is invalid: …`, one cause per field error. `subject.resource` is the kind here.
    pub fn invalid(subject: Subject<'_>, errors: &[FieldError]) -> Self {
        let more = errors.len().saturating_sub(MOST_FAULTS);
        let errors = errors.get(..MOST_FAULTS).unwrap_or(errors);
        // The message has each fault once, the causes have them all.
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let all = match texts.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::about(
            422,
            "Invalid",
            format!("{} \"{}\" is invalid: {all}", subject.qualified(), subject.name),
            subject,
        );
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({ "reason": e.reason.as_str(), "message": e.message, "field": e.field }))
            .collect();
        if let Some(details) = &mut error.details {
            details.insert("causes".into(), Value::Array(causes));
        }
        error
    }

    pub fn about(code: u16, reason: &'static str, message: String, subject: Subject<'_>) -> Self {
        Self { code, reason, message, details: Some(Box::new(subject.details())), retry_after: None }
    }

    #[must_use]
    pub fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(map) = status.as_object_mut() {
            if !self.reason.is_empty() {
                map.insert("reason".into(), json!(self.reason));
            }
            let mut details = self.details.as_deref().cloned();
            if let Some(seconds) = self.retry_after {
                details.get_or_insert_with(Map::new).insert("retryAfterSeconds".into(), json!(seconds));
            }
            if let Some(details) = details {
                map.insert("details".into(), Value::Object(details));
            }
        }
        status
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}
