//! The `AdmissionReview` exchange.

use serde_json::{Value, json};

use super::{Change, Halt};
use crate::kinds::Kind;
use crate::object;
use crate::status::ApiError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// URL, or empty for a service.
    pub url: String,
    /// Namespace, name, path and port of a service.
    pub service: Option<(String, String, String, u16)>,
    /// PEM bundle (decoded) that its certificate must chain to; empty for the system's roots.
    pub ca_bundle: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub webhook: String,
    pub client: Client,
    pub review: Value,
    /// Seconds it may take, 1 to 30.
    pub timeout: u32,
}

#[derive(Clone, Debug)]
pub enum ReviewOutcome {
    Review(Value),
    /// It failed; the text goes into the error.
    Failed(String),
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

fn gvr(group: &str, version: &str, resource: &str) -> Value {
    json!({ "group": group, "version": version, "resource": resource })
}

/// The review for a change, shown in the version of `shown` (the matched one, under `matchPolicy: Equivalent`).
pub(super) fn review(change: &Change<'_>, shown: &Kind, object: Option<&Value>) -> Value {
    let kind = change.kind;
    let body = change.kind.subresource(change.subresource);
    let of = |kind: &Kind| match body {
        Some(sub) if sub.kind != kind.kind => {
            gvk(sub.group.unwrap_or(&kind.group), sub.version.unwrap_or(&kind.version), &sub.kind)
        }
        _ => gvk(&kind.group, &kind.version, &kind.kind),
    };
    let in_version = |value: Option<&Value>| match value {
        None => Value::Null,
        Some(value) => {
            let mut value = value.clone();
            if shown.api_version() != kind.api_version() && body.is_none_or(|b| b.kind == kind.kind) {
                crate::convert::convert(&mut value, shown);
            }
            value
        }
    };
    let mut request = json!({
        "uid": change.context.entropy().uuid(),
        "kind": of(shown),
        "resource": gvr(&shown.group, &shown.version, &shown.plural),
        "requestKind": of(kind),
        "requestResource": gvr(&kind.group, &kind.version, &kind.plural),
        "operation": change.operation,
        "userInfo": change.request.user.info(),
        "object": in_version(object),
        "oldObject": in_version(change.old),
        "dryRun": change.dry_run,
        "options": change.options,
    });
    if let Some(map) = request.as_object_mut() {
        for (key, value) in [("name", change.name), ("namespace", change.namespace)] {
            if !value.is_empty() {
                map.insert(key.into(), json!(value));
            }
        }
        if !change.subresource.is_empty() {
            map.insert("subResource".into(), json!(change.subresource));
            map.insert("requestSubResource".into(), json!(change.subresource));
        }
    }
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
}

/// The `response` of an answer that belongs to `review`, or why there is none.
pub(super) fn response<'a>(answer: &'a ReviewOutcome, review: &Value) -> Result<&'a Value, String> {
    let body = match answer {
        ReviewOutcome::Failed(why) => return Err(why.clone()),
        ReviewOutcome::Review(body) => body,
    };
    let response = body.get("response").filter(|r| r.is_object()).ok_or("the answer has no response")?;
    let (wanted, given) = (object::text_at(review, "request.uid"), object::text_at(response, "uid"));
    if wanted != given {
        return Err(format!("expected response.uid={wanted:?}, got {given:?}"));
    }
    Ok(response)
}

pub(super) fn failed(webhook: &str, why: &str) -> ApiError {
    ApiError::internal(format!("failed calling webhook {webhook:?}: {why}"))
}

pub(super) fn denied(webhook: &str, response: &Value) -> Halt {
    let status = response.get("status");
    let text = |key: &str| status.map_or("", |s| object::text_at(s, key));
    let why = if !text("message").is_empty() {
        format!("denied the request: {}", text("message"))
    } else if !text("reason").is_empty() {
        format!("denied the request: {}", text("reason"))
    } else {
        "denied the request without explanation".to_owned()
    };
    let code = status.and_then(|s| s.get("code")).and_then(Value::as_u64).and_then(|c| u16::try_from(c).ok());
    let mut error = ApiError::plain(
        code.unwrap_or(400),
        known_reason(text("reason")),
        format!("admission webhook {webhook:?} {why}"),
    );
    error.details = status.and_then(|s| s.get("details")).and_then(Value::as_object).cloned().map(Box::new);
    Halt::Error(error)
}

fn known_reason(reason: &str) -> &'static str {
    const REASONS: &str = "Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid \
        ServerTimeout Timeout TooManyRequests BadRequest MethodNotAllowed NotAcceptable \
        RequestEntityTooLarge UnsupportedMediaType InternalError Expired ServiceUnavailable";
    REASONS.split(' ').find(|known| *known == reason).unwrap_or_default()
}
