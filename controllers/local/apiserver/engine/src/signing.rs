//! Admission of certificate requests: the requester goes into a new one, and approval and signing need separate
//! permissions per signer.

use serde_json::Value;

use crate::access::Attributes;
use crate::admission::Halt;
use crate::builtin::certificate::{self, GROUP};
use crate::context::User;
use crate::engine::Engine;
use crate::object::{self, at, text_at};
use crate::pending_write::Write;
use crate::status::ApiError;

impl Write<'_> {
    /// Records which user makes a request; lets only users with permission for its signer approve and sign.
    pub(crate) fn admit_request(
        &self,
        engine: &Engine,
        live: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Halt> {
        let Some(live) = live else {
            sign_with(object, self.request.user);
            return Ok(());
        };
        match self.target.subresource.as_str() {
            "approval" => self.may_for_signer(engine, "approve", live)?,
            "status" if object.get("status") != live.get("status") => {
                self.may_for_signer(engine, "sign", live)?;
            }
            _ => return Ok(()),
        }
        certificate::stamp(object, live, &self.context.time());
        Ok(())
    }

    /// The right is for one signer by name, or for all of its domain (`example.com/*`).
    fn may_for_signer(&self, engine: &Engine, verb: &str, live: &Value) -> Result<(), ApiError> {
        let signer = text_at(live, "spec.signerName");
        let domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*")).unwrap_or_default();
        let wanted = |name| {
            let user = self.request.user;
            engine.may(&Attributes {
                verb,
                group: GROUP,
                resource: "signers",
                name,
                ..Attributes::from_user(user)
            })
        };
        if wanted(signer) || wanted(domain.as_str()) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(ApiError::forbidden(self.subject(object::name(live)), &why))
    }
}

fn sign_with(object: &mut Value, user: &User) {
    let spec = object::child_mut(object, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    spec.extend(user.info());
}

/// When a certificate signing request expires, in seconds after its creation or decision: one hour after a decision, one day
/// without any. Same times as in Kubernetes' own controller.
pub(crate) fn life(request: &Value) -> i64 {
    let conditions = at(request, "status.conditions").and_then(Value::as_array);
    if conditions.is_some_and(|conditions| !conditions.is_empty()) { 3600 } else { 86_400 }
}

#[cfg(test)]
mod tests;
