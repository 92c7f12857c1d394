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
    ask(&services(client, machine).await?, client, machine).await
}

/// The way to the agents, for one that asks about a VM several times: each opening requests a certificate.
pub(super) async fn services<'a>(
    client: &'a NamespaceClient,
    machine: &VirtualMachine,
) -> Option<Services<'a>> {
    if node_of(machine).is_none() || !super::table::is_on(machine) {
        return None;
    }
    Services::open(&client.connection, NAMESPACE).await.ok()
}

pub(super) fn node_of(machine: &VirtualMachine) -> Option<String> {
    machine.status.as_ref().map(|status| status.node.clone()).filter(|node| !node.is_empty())
}

/// [`of_vm`], by services that are open.
pub(super) async fn ask(
    services: &Services<'_>,
    client: &NamespaceClient,
    machine: &VirtualMachine,
) -> Option<(String, VmInspect)> {
    let node = node_of(machine)?;
    let name = format!("{}/{}", client.namespace, name_of(machine));
    let (agents, _) = services.agents(Some(&node), Some(&name)).await.ok()?;
    let vm = agents.into_iter().find_map(|agent| agent.vms.into_iter().next())?;
    Some((node, vm))
}

/// Why the VM has the size it has. `node` is where it runs.
pub(super) fn why(vm: &VmInspect, node: &str) -> String {
    let show = |resources| {
        let text = size(resources, vm.compute_unit, false);
        // Compute units are bare numbers in tables only.
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text} CU") } else { text }
    };
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
        if more.starts_with("scheduler permits") {
            text.push_str(&format!(" (what takes the room: neonctl debug node-pressure {node})"));
        }
    }
    if let Some(hold) = &vm.hold {
        let left = std::time::Duration::from_secs_f64(hold.remaining_seconds.clamp(0.0, 1e9));
        let left = std::time::Duration::from_secs(left.as_secs());
        let left = crate::render::span(left.as_secs());
        let force = if hold.force { ", CPU without consent" } else { "" };
        text.push_str(&format!("; held at {} for another {left}{force}", show(Some(hold.size))));
    }
    text
}

/// What keeps the VM from its goal, in words; empty if nothing does.
pub(super) fn obstacle(vm: &VmInspect) -> String {
    [&vm.limit, &vm.stuck].into_iter().flatten().cloned().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_obstacles_are_words() {
        let mut vm = VmInspect {
            compute_unit: neonvm_types::Resources::new(
                crate::commands::vm::size::UNIT_CPU,
                crate::commands::vm::size::UNIT_MEMORY,
            ),
            ..VmInspect::default()
        };
        vm.goal = Some(vm.compute_unit.saturating_mul(2));
        vm.permit =
            Some(neonvm_types::Resources::new(vm.compute_unit.vcpus, vm.compute_unit.mem.saturating_mul(2)));
        assert_eq!(why(&vm, "n1"), "goal 2 CU, permit 0.25/2Gi, guest consented to -: ");
        assert_eq!(obstacle(&vm), "");
        vm.limit = Some("monitor denies 2".to_owned());
        assert_eq!(obstacle(&vm), "monitor denies 2");
        vm.limit = Some("scheduler permits 1 of 2".to_owned());
        let room = ": ; scheduler permits 1 of 2 (what takes the room: neonctl debug node-pressure n1)";
        assert!(why(&vm, "n1").ends_with(room), "{}", why(&vm, "n1"));
    }
}
