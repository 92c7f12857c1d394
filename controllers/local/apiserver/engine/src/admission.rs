//! Admission webhooks: which ones a request needs, what they are sent, and how their responses are applied.
//!
//! The engine makes no network calls. A request that needs a webhook stops and returns the call to make; the shell makes
//! it and runs the request again with the response in its [`Trail`]. Running again is safe, because nothing has been
//! stored, and it handles conflicts: if the object changed meanwhile, the call differs and is made again.

mod review;
mod rules;

use std::sync::Arc;

use serde_json::Value;

pub use review::{Call, Client, ReviewOutcome};

use crate::context::Context;
use crate::kinds::Kind;
use crate::request::Request;
use crate::status::ApiError;

#[derive(Debug, Default)]
pub struct Trail {
    answers: Vec<(String, Value, ReviewOutcome)>,
}

impl Trail {
    pub fn add(&mut self, call: Call, answer: ReviewOutcome) {
        self.answers.push((call.webhook, call.review, answer));
    }

    fn find(&self, webhook: &str, review: &Value) -> Option<&ReviewOutcome> {
        self.answers
            .iter()
            .find(|(name, asked, _)| name == webhook && asked == review)
            .map(|(_, _, answer)| answer)
    }
}

#[derive(Debug)]
pub enum Halt {
    Error(ApiError),
    Ask(Box<Call>),
}

impl From<ApiError> for Halt {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

pub(crate) struct Change<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) context: &'a Context,
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: &'static str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
}

/// A change before the webhooks, and what they warn of.
pub(crate) struct Round<'a> {
    pub(crate) change: Change<'a>,
    pub(crate) cluster: &'a dyn Cluster,
    pub(crate) trail: &'a Trail,
    pub(crate) warnings: Vec<String>,
}

/// The webhooks of all configurations, in the order they are called.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    mutating: Vec<rules::Webhook>,
    validating: Vec<rules::Webhook>,
}

/// What webhook matching reads of the cluster.
pub(crate) trait Cluster {
    /// Labels of a namespace, as its object.
    fn namespace(&self, name: &str) -> Option<Value>;
    /// Other versions and groups under which the same objects are served.
    fn equivalents(&self, kind: &Kind) -> Vec<Arc<Kind>>;
}

impl Webhooks {
    pub(crate) fn read(mutating: &[Value], validating: &[Value]) -> Self {
        Self { mutating: rules::read(mutating), validating: rules::read(validating) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Runs the mutating webhooks over `object`. Those with `reinvocationPolicy: IfNeeded` see it once more if a
    /// later one changed it.
    pub(crate) fn mutate(&self, round: &mut Round<'_>, object: &mut Value) -> Result<(), Halt> {
        let mut seen: Vec<(usize, Value)> = Vec::new();
        for (at, webhook) in self.mutating.iter().enumerate() {
            if webhook.mutate(round, object)? {
                seen.push((at, object.clone()));
            }
        }
        for (at, after) in seen {
            if let Some(webhook) = self.mutating.get(at).filter(|w| w.reinvoked && after != *object) {
                webhook.mutate(round, object)?;
            }
        }
        Ok(())
    }

    /// Runs the validating webhooks.
    pub(crate) fn validate(&self, round: &mut Round<'_>, object: &Value) -> Result<(), Halt> {
        self.validating.iter().try_for_each(|webhook| webhook.validate(round, object))
    }
}
