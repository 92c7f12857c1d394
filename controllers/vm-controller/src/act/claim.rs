//! Claims of persistent volumes that belong to VMs.

use kube::api::{DeleteParams, Preconditions};
use neonvm_api::VirtualMachine;
use neonvm_api::names::label;
use neonvm_core_vm_lifecycle::FailureReason::ClaimFailed;
use neonvm_core_vm_lifecycle::claims;

use super::Failed;
use crate::cache::Key;
use crate::reconciler::Reconciler;
use crate::request::{is_conflict, is_missing, posting, within};

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

    /// Deletes a claim that was made for the VM; one without the VM's label was not, and stays.
    pub(super) async fn delete_claim(
        &self,
        key: &Key,
        vm: &VirtualMachine,
        name: &str,
    ) -> Result<(), Failed> {
        let api = self.requests.claims(&key.namespace);
        let found = match within(api.get_metadata_opt(name)).await {
            Ok(Some(found)) => found.metadata,
            Ok(None) => return Ok(()),
            Err(error) => return Err(failed(&format!("claim {name} cannot be read"), &error)),
        };
        let of = found.labels.as_ref().and_then(|labels| labels.get(label::VM_NAME));
        if of != vm.metadata.name.as_ref() {
            tracing::info!(vm = %key, claim = name, "it does not have the label of the VM, and stays");
            return Ok(());
        }
        let only = Preconditions { uid: found.uid, resource_version: None };
        let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match self.requests.write(api.delete(name, &how)).await {
            Err(error) if !is_missing(&error) && !is_conflict(&error) => {
                Err(failed(&format!("claim {name} cannot be deleted"), &error))
            }
            _ => Ok(()),
        }
    }
}

fn failed(what: &str, error: &kube::Error) -> Failed {
    Failed::api(ClaimFailed, what, error)
}
