//! What admission webhooks of every service share: which peers may call, how long a review may be, and
//! `AdmissionReview` v1 itself.
//!
//! An API server shows a client certificate where its admission configuration names one, and the one of a local cluster always
//! does. Where a flag names it, no other client gets a response. Where none does, no client is proved: then a webhook has no
//! effect but its response.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use http::request::Parts;
use http::{Method, StatusCode};
use neonvm_api::admission::Verdict;
use serde_json::{Value, json};

use crate::http::{Admitted, Peer, refuse};

/// Longest warning that API servers pass on whole, in characters.
const WARNING: usize = 256;

/// The client certificate that the API server shows to webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// PEM file with the authority that signed it.
    pub authority: PathBuf,
    /// Common names that are accepted; at least one.
    pub names: Vec<String>,
}

/// Names of the certificates that prove a caller; none: callers are not proved.
#[derive(Clone, Debug)]
pub struct Proof(Option<Arc<[String]>>);

impl Proof {
    /// Callers with this certificate, or any client.
    #[must_use]
    pub fn new(client: Option<&Client>) -> Self {
        Self(client.map(|client| client.names.as_slice().into()))
    }

    /// Whether a peer, whose certificate TLS has verified, is the API server.
    #[must_use]
    pub fn is_proved(&self, peer: &Peer) -> bool {
        self.0.as_ref().is_some_and(|names| names.contains(&peer.common_name))
    }

    /// Which peers may send a review, and how long it may be: `most` is the limit of a path in bytes, none if there is
    /// no such path.
    ///
    /// # Errors
    /// The response to a peer that may not.
    pub fn admit(&self, head: &Parts, most: impl FnOnce(&str) -> Option<usize>) -> Admitted {
        let refused = |status, why: &'static str| refuse(status, "text/plain", why);
        if self.0.is_some() && !Peer::from_extensions(&head.extensions).known {
            let why = "show the API server's client certificate (--webhook-client-ca-file, --webhook-client-name)\n";
            return refused(StatusCode::FORBIDDEN, why);
        }
        match most(head.uri.path()) {
            None => refused(StatusCode::NOT_FOUND, "not found\n"),
            Some(_) if head.method != Method::POST => refused(StatusCode::METHOD_NOT_ALLOWED, "only POST\n"),
            Some(most) => Ok(most),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    uid: String,
    request: Value,
}

/// An object that is created or updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written<'a> {
    pub object: &'a Value,
    /// As it was; none if it is created.
    pub old: Option<&'a Value>,
}

/// The only version of reviews that there is.
const VERSION: &str = "admission.k8s.io/v1";

impl Review {
    /// Reads one.
    ///
    /// # Errors
    /// Why the body is none.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let mut review: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
        let version = review.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if version != VERSION {
            return Err(format!("apiVersion {version:?} is not {VERSION}"));
        }
        let request = review.get_mut("request").map(Value::take).filter(Value::is_object);
        let request = request.ok_or("there is no request")?;
        let uid = request.get("uid").and_then(Value::as_str).filter(|uid| !uid.is_empty());
        let uid = uid.ok_or("no request.uid")?.to_owned();
        Ok(Self { uid, request })
    }

    /// All of the request.
    #[must_use]
    pub fn request(&self) -> &Value {
        &self.request
    }

    /// A text of the request, such as `namespace`; empty if there is none.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.request.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// What is created or updated; none of other operations.
    ///
    /// # Errors
    /// If there is no object.
    pub fn written(&self) -> Result<Option<Written<'_>>, String> {
        let operation = self.text("operation");
        if !matches!(operation, "CREATE" | "UPDATE") {
            return Ok(None);
        }
        let of = |key: &str| self.request.get(key).filter(|object| object.is_object());
        let object = of("object").ok_or("there is no request.object")?;
        Ok(Some(Written { object, old: of("oldObject").filter(|_| operation == "UPDATE") }))
    }

    /// The review with a response.
    #[must_use]
    pub fn response(&self, mut response: Value) -> Value {
        if let Some(response) = response.as_object_mut() {
            response.insert("uid".to_owned(), json!(self.uid));
        }
        json!({"apiVersion": VERSION, "kind": "AdmissionReview", "response": response})
    }
}

/// The object is admitted.
#[must_use]
pub fn allowed(warnings: &[String]) -> Value {
    json!({"allowed": true, "warnings": warnings})
}

/// It is not.
#[must_use]
pub fn denied(warnings: &[String], message: &str) -> Value {
    json!({"allowed": false, "warnings": warnings,
        "status": {"code": 403, "reason": "Forbidden", "message": message}})
}

/// It is admitted, and changed to `new`.
#[must_use]
pub fn patched(object: &Value, new: &Value) -> Value {
    let patch = json_patch::diff(object, new);
    if patch.0.is_empty() {
        return json!({"allowed": true});
    }
    let text = serde_json::to_string(&patch).unwrap_or_default();
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    json!({"allowed": true, "patchType": "JSONPatch", "patch": encoded})
}

/// The warnings of a verdict, and all its faults in one text.
#[must_use]
pub fn texts(verdict: &Verdict) -> (Vec<String>, String) {
    let warnings = verdict.warnings.iter().map(|warning| short(&warning.to_string())).collect();
    let faults: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
    (warnings, faults.join("; "))
}

/// A warning that is passed on whole.
#[must_use]
pub fn short(text: &str) -> String {
    text.chars().take(WARNING).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{MAX_BODY, SMALL_BODY};

    fn head(method: &str, path: &str, known: bool) -> Parts {
        let peer = Peer { tls: true, known, ..Peer::default() };
        http::Request::builder().method(method).uri(path).extension(peer).body(()).unwrap().into_parts().0
    }

    /// H1, H5: a peer other than the API server is refused from the head, where its identity is available.
    #[test]
    fn only_the_api_server_is_read_where_it_shows_who_it_is() {
        let client = Client { authority: "ca.crt".into(), names: vec!["apiserver".into()] };
        let (strict, open) = (Proof::new(Some(&client)), Proof::new(None));
        let named = |name: &str| Peer { common_name: name.to_owned(), ..Peer::default() };
        assert!(strict.is_proved(&named("apiserver")));
        assert!(!strict.is_proved(&named("another")) && !strict.is_proved(&named("")));
        assert!(!open.is_proved(&named("apiserver")) && !open.is_proved(&named("")));
        let most = |path: &str| match path {
            "/review" => Some(MAX_BODY),
            "/small" => Some(SMALL_BODY),
            _ => None,
        };
        let status =
            |proof: &Proof, head: &Parts| proof.admit(head, most).map_err(|answer| answer.status().as_u16());
        for path in ["/review", "/small", "/other"] {
            assert_eq!(status(&strict, &head("POST", path, false)), Err(403), "{path}");
        }
        for (proof, known) in [(&strict, true), (&open, false)] {
            assert_eq!(status(proof, &head("POST", "/review", known)), Ok(MAX_BODY));
            assert_eq!(status(proof, &head("POST", "/small", known)), Ok(SMALL_BODY));
            assert_eq!(status(proof, &head("GET", "/small", known)), Err(405));
            assert_eq!(status(proof, &head("POST", "/other", known)), Err(404));
        }
    }

    #[test]
    fn what_is_no_review_is_refused() {
        let version = json!({"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u"}}).to_string();
        let of = |request: Value| json!({"apiVersion": VERSION, "request": request}).to_string();
        for (body, why) in [
            ("{", "the body is not JSON"),
            ("[]", "apiVersion \"\" is not admission.k8s.io/v1"),
            (version.as_str(), "is not admission.k8s.io/v1"),
            (&of(json!(1)), "there is no request"),
            (&of(json!({"uid": ""})), "no request.uid"),
        ] {
            let error = Review::read(body.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let review = |request: Value| Review::read(of(request).as_bytes()).unwrap();
        assert!(review(json!({"uid": "u", "operation": "CREATE", "object": 1})).written().is_err());
        assert_eq!(review(json!({"uid": "u", "operation": "DELETE"})).written(), Ok(None));
        let both = review(json!({"uid": "u", "operation": "UPDATE", "object": {}, "oldObject": {"a": 1}}));
        assert_eq!(both.written().unwrap().unwrap().old, Some(&json!({"a": 1})));
        let created = review(json!({"uid": "u", "operation": "CREATE", "object": {}, "oldObject": {"a": 1}}));
        assert_eq!(created.written().unwrap().unwrap().old, None);
        assert_eq!(both.response(json!({"allowed": true}))["response"], json!({"allowed": true, "uid": "u"}));
    }
}
