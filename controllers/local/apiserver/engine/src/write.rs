//! Writes: the way of an object from a request body into the store.

pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod patch;
pub(crate) mod scale;
pub(crate) mod special;
pub(crate) mod update;

use serde_json::Value;

use crate::admission::{Halt, Round};
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::object;
pub(crate) use crate::pending_write::Write;
use crate::request::Target;

impl Target {
    /// The namespace part of keys: empty for cluster-scoped kinds, also where the path names one (`namespaces/x`).
    pub(crate) fn namespace_of(&self, kind: &Kind) -> String {
        if kind.namespaced { self.namespace.clone() } else { String::new() }
    }
}

impl Write<'_> {
    fn round<'s>(
        &'s self,
        engine: &'s Engine,
        operation: &'static str,
        name: &'s str,
        old: Option<&'s Value>,
    ) -> Round<'s> {
        let change = self.change(operation, name, old);
        Round { change, cluster: engine, trail: self.trail, warnings: Vec::new() }
    }

    /// Runs the mutating webhooks, then fills in what they left out.
    pub(crate) fn mutate(
        &mut self,
        engine: &Engine,
        operation: &'static str,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Halt> {
        if engine.webhooks.is_empty() {
            return Ok(());
        }
        let (name, before) = (object::name(object).to_owned(), object.clone());
        let mut round = self.round(engine, operation, &name, old);
        let done = engine.webhooks.mutate(&mut round, object);
        let warnings = round.warnings;
        self.warn(warnings);
        done?;
        if *object != before {
            decode::default(&self.kind, object);
        }
        Ok(())
    }

    pub(crate) fn validate_by_webhooks(
        &mut self,
        engine: &Engine,
        operation: &'static str,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), Halt> {
        let mut round = self.round(engine, operation, object::name(object), old);
        let done = engine.webhooks.validate(&mut round, object);
        let warnings = round.warnings;
        self.warn(warnings);
        done
    }

    /// Adds warnings, each text once.
    pub(crate) fn warn(&mut self, texts: Vec<String>) {
        for text in texts {
            if !self.warnings.contains(&text) {
                self.warnings.push(text);
            }
        }
    }
}
