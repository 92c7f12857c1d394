//! Field ownership on the way of a write: the field manager, and which fields it cannot own.

use serde_json::Value;

use crate::apply::{self, FieldSet, Manager, Operation};
use crate::kinds::Kind;
use crate::pending_write::Write;
use crate::status::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    Update,
    /// Server-side apply has set `managedFields` already.
    Applied,
}

struct Identity {
    api_version: String,
    time: String,
}

impl Identity {
    fn from_write(write: &Write<'_>) -> Self {
        Self { api_version: write.kind.api_version(), time: write.context.time() }
    }

    fn manager<'a>(&'a self, write: &'a Write<'_>, operation: Operation) -> Manager<'a> {
        Manager {
            name: &write.options.manager,
            operation,
            api_version: &self.api_version,
            subresource: &write.target.subresource,
            time: &self.time,
        }
    }
}

fn reset(kind: &Kind, subresource: &str) -> FieldSet {
    apply::reset_fields(kind.schema(), kind.custom.is_some(), kind.has_status(), subresource)
}

pub(crate) fn track(write: &Write<'_>, old: Option<&Value>, object: &mut Value) {
    let identity = Identity::from_write(write);
    let manager = identity.manager(write, Operation::Update);
    let reset = reset(&write.kind, &write.target.subresource);
    apply::track_update(old, object, write.kind.schema(), &manager, &reset);
}

pub(crate) fn check_applied(write: &Write<'_>, applied: &Value) -> Result<(), ApiError> {
    let identity = Identity::from_write(write);
    apply::check(applied, write.kind.schema(), &identity.manager(write, Operation::Apply))
}

pub(crate) fn apply(write: &Write<'_>, live: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
    let identity = Identity::from_write(write);
    let manager = identity.manager(write, Operation::Apply);
    let reset = reset(&write.kind, &write.target.subresource);
    apply::apply(live, applied, write.kind.schema(), &manager, &reset, write.options.force)
}
