//! Requests against the state: route → authorise → decode → admit → store → render.

use crate::admission::{Halt, Trail};
use crate::answer::{EngineResponse, Reply, refusal};
use crate::context::Context;
use crate::engine::Engine;
use crate::request::Request;
use crate::route;
use crate::status::ApiError;

impl Engine {
    /// Whether a request only reads, so that a shared lock is enough.
    pub fn is_read(request: &Request<'_>) -> bool {
        route::is_read(request)
    }

    pub fn read(&self, request: &Request<'_>, context: &Context) -> Reply {
        route::read(self, request, context)
            .unwrap_or_else(|error| Reply::Answer(self.refuse(&error, Vec::new())))
    }

    pub fn write(&mut self, request: &Request<'_>, context: &Context, trail: &Trail) -> Reply {
        let mut warnings = Vec::new();
        match route::write(self, request, context, trail, &mut warnings) {
            Ok(Reply::Answer(mut answer)) => {
                answer.warnings = warnings;
                answer.revision = self.store.revision();
                Reply::Answer(answer)
            }
            Ok(reply) => reply,
            Err(Halt::Ask(call)) => Reply::Ask(call),
            Err(Halt::Error(error)) => Reply::Answer(self.refuse(&error, warnings)),
        }
    }

    /// A refusal shows the present, too: that something is gone, or taken.
    fn refuse(&self, error: &ApiError, warnings: Vec<String>) -> EngineResponse {
        EngineResponse { revision: self.store.revision(), ..refusal(error, warnings) }
    }
}
