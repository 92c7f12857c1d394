//! One write on its way.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::{Change, Trail};
use crate::context::Context;
use crate::engine::Engine;
use crate::kinds::Kind;
use crate::object;
use crate::options::WriteOptions;
use crate::request::{Request, Target};
use crate::status::{ApiError, Subject};

pub(crate) struct Write<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) context: &'a Context,
    pub(crate) trail: &'a Trail,
    pub(crate) kind: Arc<Kind>,
    pub(crate) target: Target,
    pub(crate) options: WriteOptions,
    /// Do everything except storing: calls all webhooks before the first of several changes is made.
    pub(crate) rehearsal: bool,
    pub(crate) warnings: &'a mut Vec<String>,
}

impl Write<'_> {
    pub(crate) fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.kind.group, resource: &self.kind.plural, name }
    }

    pub(crate) fn subject_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        // Events of both groups are one kind inside, and it is the core one.
        let group = if self.kind.kind == "Event" && self.kind.is_builtin() { "" } else { &self.kind.group };
        Subject { group, resource: &self.kind.kind, name }
    }

    pub(crate) fn key(&self) -> String {
        crate::store::key_of(&self.target.namespace_of(&self.kind), &self.target.name)
    }

    /// 409 for an object that is not the one a request is about. The text has the key of the object in the store of a
    /// real server.
    pub(crate) fn unmet(&self, what: &str, given: &str, current: &str) -> ApiError {
        let key = self.key();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: {what} in precondition: {given}, {what} in object meta: {current}",
            stored_under(&self.kind),
            key.trim_start_matches('/')
        );
        ApiError::conflict(self.subject(&self.target.name), &why)
    }

    pub(crate) fn live(&self, engine: &Engine) -> Result<Value, ApiError> {
        engine
            .store
            .read(&self.kind.table, &self.key())
            .map(|stored| crate::render::value_in(&self.kind, stored))
            .ok_or_else(|| ApiError::not_found(self.subject(&self.target.name)))
    }

    pub(crate) fn options_value(&self, operation: &str) -> Value {
        let kind = match operation {
            "CREATE" => "CreateOptions",
            "DELETE" => "DeleteOptions",
            _ => "UpdateOptions",
        };
        let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
        if self.options.manager_given {
            object::set(&mut options, "fieldManager", json!(self.options.manager));
        }
        if self.options.dry_run {
            object::set(&mut options, "dryRun", json!(["All"]));
        }
        options
    }

    pub(crate) fn change<'s>(
        &'s self,
        operation: &'static str,
        name: &'s str,
        old: Option<&'s Value>,
    ) -> Change<'s> {
        Change {
            request: self.request,
            context: self.context,
            kind: &self.kind,
            subresource: &self.target.subresource,
            namespace: &self.target.namespace,
            name,
            operation,
            old,
            options: self.options_value(operation),
            dry_run: self.options.dry_run,
        }
    }
}

/// The folder of a kind in the store of a real server. Some are older than the names of today.
fn stored_under(kind: &Kind) -> String {
    if !kind.is_builtin() || kind.group == "apiextensions.k8s.io" {
        return format!("{}/{}", kind.group, kind.plural);
    }
    let folder = match kind.plural.as_str() {
        "endpoints" => "services/endpoints",
        "nodes" => "minions",
        "services" => "services/specs",
        plural => plural,
    };
    folder.to_owned()
}
