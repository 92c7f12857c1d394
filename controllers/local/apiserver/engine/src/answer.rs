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

#[derive(Clone, Debug)]
pub struct EngineResponse {
    pub code: u16,
    pub content_type: &'static str,
    pub body: Bytes,
    pub warnings: Vec<String>,
    pub retry_after: Option<u32>,
    /// The answer shows the state of this revision; it must be on disk before the answer leaves.
    pub revision: u64,
}

#[derive(Clone, Debug)]
pub struct NodeRequest {
    pub pod: Value,
    /// `log`, `exec`, `attach`, `portforward` or `proxy`.
    pub subresource: String,
    pub rest: String,
    pub query: String,
}

#[derive(Clone, Debug)]
pub struct TokenRequest {
    pub account: Value,
    pub body: Value,
}

#[derive(Debug)]
pub enum Reply {
    Answer(EngineResponse),
    Watch(Box<Watch>, Vec<String>),
    Ask(Box<Call>),
    Node(Box<NodeRequest>),
    /// Check the token in this `TokenReview` and answer with the outcome.
    TokenReview(Box<Value>),
    Token(Box<TokenRequest>),
}

pub(crate) fn answer(code: u16, content_type: &'static str, body: Bytes) -> EngineResponse {
    EngineResponse { code, content_type, body, warnings: Vec::new(), retry_after: None, revision: 0 }
}

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
