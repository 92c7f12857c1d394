//! What the shell does for a request.

use bytes::Bytes;
use serde_json::Value;

use crate::admission::Call;
use crate::context::Context;
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::render;
use crate::request::Request;
use crate::status::ApiError;
use crate::watch::Watch;

/// A finished answer.
#[derive(Clone, Debug)]
pub struct EngineResponse {
    /// HTTP status code.
    pub code: u16,
    /// `Content-Type`
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u32>,
    /// The answer shows the state of this revision; it must be on disk before the answer leaves.
    pub revision: u64,
}

/// A pod request that the node answers (`log`, `exec`, …).
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// The pod as stored.
    pub pod: Value,
    /// `log`, `exec`, `attach`, `portforward` or `proxy`.
    pub subresource: String,
    /// What follows in the path.
    pub rest: String,
    /// Raw query.
    pub query: String,
}

/// A token to be signed.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// The service account.
    pub account: Value,
    /// The `TokenRequest` body, defaulted.
    pub body: Value,
}

/// What the shell has to do for a request.
#[derive(Debug)]
pub enum Reply {
    /// Send this.
    Answer(EngineResponse),
    /// Stream this, with these warnings.
    Watch(Box<Watch>, Vec<String>),
    /// Make this call, then run the request again.
    Ask(Box<Call>),
    /// Hand over to the node that runs the pod.
    Node(Box<NodeRequest>),
    /// Check the token in this `TokenReview` and answer with the outcome.
    TokenReview(Box<Value>),
    /// Sign a service account token and answer with it.
    Token(Box<TokenRequest>),
}

/// An answer without warnings.
pub(crate) fn answer(code: u16, content_type: &'static str, body: Bytes) -> EngineResponse {
    EngineResponse { code, content_type, body, warnings: Vec::new(), retry_after: None, revision: 0 }
}

/// The answer of an error.
pub fn refusal(error: &ApiError, warnings: Vec<String>) -> EngineResponse {
    if error.reason == crate::status::NO_SUCH_PATH {
        let text = Bytes::from(format!("{}\n", error.message));
        return answer(error.code, "text/plain; charset=utf-8", text);
    }
    EngineResponse {
        code: error.code,
        content_type: "application/json",
        body: render::to_bytes(&error.to_status()),
        warnings,
        retry_after: error.retry_after,
        revision: 0,
    }
}

impl Engine {
    /// Answer for a value, in the form the request accepts.
    pub(crate) fn answer(
        request: &Request<'_>,
        context: &Context,
        kind: &Kind,
        code: u16,
        value: &Value,
    ) -> Result<EngineResponse, ApiError> {
        let accepted = crate::media::negotiate(request.accept)?;
        let query = crate::request::Query::parse(request.query);
        let form =
            crate::form::Form { kind, accepted, include: query.text("includeObject"), now: context.now };
        let body = render::one_value(&form, value)?;
        Ok(answer(code, "application/json", body))
    }

    /// Answer with a body that is no object of a served kind (`Status`, `Scale`, reviews).
    pub(crate) fn plain(code: u16, value: &Value) -> EngineResponse {
        answer(code, "application/json", render::to_bytes(value))
    }
}
