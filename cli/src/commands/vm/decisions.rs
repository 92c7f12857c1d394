//! What the agent of a VM's node thinks of it. For people who may not ask the agent, or when none answers, there is less
//! to see, but no error.

use neonvm_api::VirtualMachine;
use neonvm_types::agent_inspect::VmInspect;

use crate::commands::agent::size;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::resource::name_of;
use crate::commands::services::{NAMESPACE, Services};

/// What the agent knows, and the name of the node.
pub(super) async fn of_vm(client: &NamespaceClient, machine: &VirtualMachine) -> Option<(String, VmInspect)> {
    let node = machine.status.as_ref().map(|status| status.node.clone()).filter(|node| !node.is_empty())?;
    if !super::scale::is_on(machine) {
        return None;
    }
    let services = Services::open(&client.connection, NAMESPACE).await.ok()?;
    let name = format!("{}/{}", client.namespace, name_of(machine));
    let agents = services.agents(Some(&node), Some(&name)).await.ok()?;
    let vm = agents.into_iter().find_map(|agent| agent.vms.into_iter().next())?;
    Some((node, vm))
}

/// Why the VM has the size it has.
pub(super) fn why(vm: &VmInspect) -> String {
    let show = |resources| size(resources, vm.compute_unit, false);
    let mut text = format!(
        "goal {}, permit {}, guest consented to {}: ",
        show(vm.goal),
        show(vm.permit),
        show(vm.approved)
    );
    text.push_str(&vm.state);
    for more in [&vm.limit, &vm.stuck].into_iter().flatten() {
        text.push_str("; ");
        text.push_str(more);
    }
    if let Some(hold) = &vm.hold {
        let left = std::time::Duration::from_secs_f64(hold.remaining_seconds.clamp(0.0, 1e9));
        let left = std::time::Duration::from_secs(left.as_secs());
        text.push_str(&format!("; held at {} for {left:?}", show(Some(hold.size))));
    }
    text
}
