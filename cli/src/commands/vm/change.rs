//! Writing a changed spec: now what can change now, the rest for the next start.

use kube::api::{Patch, PatchParams, ValidationDirective};
use neonvm_api::VirtualMachine;
use neonvm_api::names::annotation::AT_NEXT_START;
use neonvm_api::next_start::{self, Plan};
use serde_json::{Map, Value, json};

use super::power::{Order, wait_for};
use crate::args::vm::Applying;
use crate::commands::flags::duration;
use crate::commands::resource::{NamespaceClient, document, name_of, wait};
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::{Document, Report};

pub(super) struct Change {
    pub(super) machine: VirtualMachine,
    pub(super) plan: Plan,
}

/// The spec that the VM has after its next start: the one that people change.
pub(super) fn base(machine: &VirtualMachine) -> Result<Value> {
    let next = next_start::changed(machine)
        .map_err(|error| Error::new(Code::Failed, error.path).cause(error.message))?;
    let spec = next.as_ref().map_or(&machine.spec, |next| &next.spec);
    serde_json::to_value(spec)
        .map_err(|error| Error::new(Code::Failed, "cannot read the VM").cause(error.to_string()))
}

impl Change {
    pub(super) fn to(machine: VirtualMachine, target: &Value) -> Self {
        let plan = next_start::plan(&machine, target);
        Self { machine, plan }
    }

    /// Whether there is nothing to do: nothing is to be written, and nothing waits for the restart that is requested.
    pub(super) fn is_empty(&self, restart: bool) -> bool {
        let is_written = self.pending() == self.plan.later;
        is_written && self.plan.now.is_empty() && !(restart && self.needs_restart())
    }

    pub(super) fn needs_restart(&self) -> bool {
        !self.plan.later.is_empty()
    }

    fn pending(&self) -> Map<String, Value> {
        next_start::patch(&self.machine).ok().flatten().unwrap_or_default()
    }

    fn patch(&self) -> Value {
        if self.pending() == self.plan.later {
            return json!({ "spec": self.plan.now });
        }
        let pending = self.needs_restart().then(|| Value::Object(self.plan.later.clone()).to_string());
        json!({ "metadata": { "annotations": { AT_NEXT_START: pending } }, "spec": self.plan.now })
    }

    fn summary(&self) -> String {
        let mut parts = Vec::new();
        let now = next_start::paths(&self.plan.now);
        if !now.is_empty() {
            parts.push(format!("now: {}", now.join(", ")));
        }
        let later = next_start::paths(&self.plan.later);
        if !later.is_empty() {
            parts.push(format!("at the next start: {}", later.join(", ")));
        }
        if parts.is_empty() { "unchanged".to_owned() } else { parts.join("; ") }
    }

    /// Writes the change; restarts the VM for what needs it if `restart`.
    pub(super) async fn apply(
        &self,
        client: &NamespaceClient,
        args: &Applying,
        restart: bool,
        quiet: bool,
    ) -> Result<Report> {
        let name = name_of(&self.machine).to_owned();
        let mut text = format!("virtualmachine/{name} {}", self.summary());
        let mut parameters = PatchParams::apply("neonctl").validation(ValidationDirective::Strict);
        parameters.field_manager = Some("neonctl".to_owned());
        parameters.dry_run = args.dry_run;
        let mut patch = self.patch();
        let restarts = restart && self.needs_restart() && !args.dry_run;
        if restarts && let Some(spec) = patch.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("restartRequest".to_owned(), json!(k8s_openapi::jiff::Timestamp::now().to_string()));
        }
        let api = client.api::<VirtualMachine>();
        let attempt = format!("cannot change {name}");
        let patch = Patch::Merge(&patch);
        let request = api.patch(&name, &parameters, &patch);
        let mut shown = client.connection.within(&attempt, request).await?;
        if args.dry_run {
            let document = document(&[shown]);
            return Ok(
                Report::document(Document { text: Some(text), ..document }).note("nothing was changed")
            );
        }
        if restarts {
            Reporter::lines(quiet).show(&format!("{text}; restarting"));
            if !args.waiting.no_wait {
                let limit = duration("timeout", &args.waiting.timeout)?;
                let waited = wait_for(client, &shown, Order::Restart, limit).await?;
                text = format!("{text}; restarted ({})", wait::seconds(waited.took));
                shown = waited.object.unwrap_or(shown);
            }
        }
        let report = Report::document(Document { text: Some(text), ..document(&[shown]) });
        Ok(if self.needs_restart() && !restarts {
            report.note(format!("to apply it now: neonctl vm restart {name}"))
        } else {
            report
        })
    }
}
