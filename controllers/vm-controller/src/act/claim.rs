//! Claims of persistent volumes that belong to VMs.

use kube::api::{DeleteParams, Patch, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::FailureReason::ClaimFailed;
use neonvm_core_vm_lifecycle::claims::{self, ClaimView, copy};
use neonvm_types::NamespacedName;
use serde_json::json;

use super::Failed;
use crate::cache::Key;
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, is_missing, patching, posting, within};

impl Reconciler {
    /// Makes the claim of a template. One of its name that is there already is used: an earlier VM of this name left it.
    pub(super) async fn create_claim(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        template: &str,
    ) -> Result<(), Failed> {
        let mut templates = vm.spec.volume_claim_templates.iter();
        let Some(template) = templates.find(|one| one.metadata.name == template) else { return Ok(()) };
        let wanted = claims::object(vm, template);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let api = self.requests.claims(&key.namespace);
        let claim = match self.requests.write(api.create(&posting(), &wanted)).await {
            Ok(made) => made,
            Err(error) if is_conflict(&error) => {
                let read = within(api.get(&name)).await;
                read.map_err(|error| failed(&format!("claim {name} cannot be read"), &error))?
            }
            Err(error) => return Err(failed(&format!("claim {name} cannot be made"), &error)),
        };
        self.state.claims.put(&claim);
        Ok(())
    }

    /// Deletes a claim that was made for the VM; one without the VM's label was not, and stays. `partial`: only a copy that was not
    /// completed.
    pub(super) async fn delete_claim(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        name: &str,
        partial: bool,
    ) -> Result<(), Failed> {
        let api = self.requests.claims(&key.namespace);
        let found = match within(api.get_opt(name)).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.state.claims.remove(&Key::new(NamespacedName::new(key.namespace.clone(), name)));
                return Ok(());
            }
            Err(error) => return Err(failed(&format!("claim {name} cannot be read"), &error)),
        };
        self.state.claims.put(&found);
        let view = ClaimView::from(&found);
        if Some(&view.vm) != vm.metadata.name.as_ref() || view.deleting {
            tracing::info!(vm = %key, claim = name, "it does not have the label of the VM, or goes already");
            return Ok(());
        }
        if partial && view.copy.is_none_or(|copy| copy.whole) {
            return Err(Failed::Conflict);
        }
        // Nothing of what was decided on may have changed.
        let only =
            Preconditions { uid: found.metadata.uid, resource_version: found.metadata.resource_version };
        let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match self.requests.write(api.delete(name, &how)).await {
            Err(error) if !is_missing(&error) && !is_conflict(&error) => {
                Err(failed(&format!("claim {name} cannot be deleted"), &error))
            }
            _ => Ok(()),
        }
    }
}

impl Reconciler {
    /// Makes the claims that a migration copies volumes to. Those that are there already are of an earlier attempt of this migration.
    pub(crate) async fn create_copies(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        pod: &str,
    ) -> Result<(), Failed> {
        let api = self.requests.claims(&key.namespace);
        for (volume, name) in vm.status.iter().flat_map(|status| status.copies(pod)) {
            let from = &volume.claim_name;
            let source = within(api.get(from)).await;
            let source = source.map_err(|error| failed(&format!("claim {from} cannot be read"), &error))?;
            let wanted = copy::object(vm, volume, &source, &name);
            let made = match self.requests.write(api.create(&posting(), &wanted)).await {
                Ok(made) => made,
                Err(error) if is_conflict(&error) => {
                    let read = within(api.get(&name)).await;
                    let read =
                        read.map_err(|error| failed(&format!("claim {name} cannot be read"), &error))?;
                    let (is, should) = (ClaimView::from(&read), ClaimView::from(&wanted));
                    if is.copy != should.copy || is.deleting {
                        let message = format!("claim {name} exists and is not a copy of {from}");
                        return Err(Failed::new(ClaimFailed, message));
                    }
                    read
                }
                Err(error) => return Err(failed(&format!("claim {name} cannot be made"), &error)),
            };
            self.state.claims.put(&made);
        }
        Ok(())
    }

    /// Writes an annotation of a claim. One that is gone needs none.
    pub(super) async fn annotate_claim(
        &self,
        key: &Key,
        name: &str,
        (annotation, value): (&str, &str),
    ) -> Result<(), Failed> {
        let change = json!({"metadata": {"annotations": {annotation: value}}});
        let api = self.requests.claims(&key.namespace);
        match self.requests.write(api.patch(name, &patching(), &Patch::Merge(&change))).await {
            Ok(claim) => {
                self.state.claims.put(&claim);
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(failed(&format!("claim {name} cannot be marked"), &error)),
        }
    }
}

fn failed(what: &str, error: &kube::Error) -> Failed {
    Failed::api(ClaimFailed, what, error)
}
