//! For which pod the scheduler preempted that of a VM: only an event of the pod names it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use neonvm_api::VirtualMachine;
use neonvm_core_vm_lifecycle::disruption::{lacks_preemptor, name_preemptor, preemptor};
use neonvm_core_vm_lifecycle::{Observed, RunnerView, owned_pod};

use crate::cache::Key;
use crate::reconciler::Reconciler;
use crate::request::within;

/// Names the other pod in the end of a VM that is about to be recorded. Without the event it stays as it is.
pub(crate) async fn explained(
    reconciler: &Reconciler,
    key: &Key,
    vm: &VirtualMachine,
    mut observed: Observed,
) -> Observed {
    let recorded =
        vm.status.as_ref().and_then(|status| status.last_exit.as_ref()).map(|last| last.pod_name.as_str());
    if let Some(pod) = owned_pod(vm).filter(|pod| recorded != Some(*pod)) {
        complete(reconciler, key, pod, &mut observed).await;
    }
    observed
}

async fn complete(reconciler: &Reconciler, key: &Key, pod: &str, observed: &mut Observed) {
    let of_pod = observed.pod.as_mut().and_then(|pod| pod.ended.as_mut());
    let exit = match (of_pod, &mut observed.runner) {
        (None, RunnerView::Seen(status)) => status.exit.as_mut(),
        (of_pod, _) => of_pod,
    };
    let Some(exit) = exit.filter(|exit| lacks_preemptor(exit)) else { return };
    let events = Api::<Event>::namespaced(reconciler.requests.client.clone(), &key.namespace);
    let of_pod = ListParams::default().fields(&format!("regarding.name={pod},reason=Preempted")).limit(1);
    match within(events.list(&of_pod)).await {
        Ok(found) => {
            let Some(event) = found.items.into_iter().next() else { return };
            let related =
                event.related.and_then(|other| Some(format!("{}/{}", other.namespace?, other.name?)));
            let named = match (related, preemptor(event.note.as_deref().unwrap_or_default())) {
                (None, Some((uid, node))) => Some(of_uid(reconciler, uid, node).await),
                (related, _) => related,
            };
            if let Some(preemptor) = named {
                name_preemptor(exit, &preemptor);
            }
        }
        Err(error) => tracing::debug!(vm = %key, %error, "the event of a preemption cannot be read"),
    }
}

/// The pod with a UID that is on a node, or is to be; the UID if there is none.
async fn of_uid(reconciler: &Reconciler, uid: &str, node: &str) -> String {
    let pods = Api::<Pod>::all(reconciler.requests.client.clone());
    for field in ["spec.nodeName", "status.nominatedNodeName"] {
        let there = ListParams::default().fields(&format!("{field}={node}"));
        let Ok(listed) = within(pods.list_metadata(&there)).await else { continue };
        if let Some(pod) = listed.items.into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid)) {
            return format!(
                "{}/{}",
                pod.metadata.namespace.unwrap_or_default(),
                pod.metadata.name.unwrap_or_default()
            );
        }
    }
    format!("with UID {uid}")
}
