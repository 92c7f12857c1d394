//! What the agent of a VM's node thinks of it. For people who may not ask the agent, or when none answers, there is less
//! to see, with the reason, but no error.

use std::time::Duration;

use jiff::Timestamp;
use neonvm_api::VirtualMachine;
use neonvm_api::names::agent_lease;
use neonvm_types::agent_inspect::VmInspect;
use serde_json::Value;

use crate::commands::agent::size;
use crate::commands::checks::component::{CONTROLLER_LEASE, held};
use crate::commands::checks::read::{clock, installed};
use crate::commands::object::{items, text};
use crate::commands::resource::{NamespaceClient, name_of};
use crate::commands::services::{NAMESPACE, Services};
use crate::connect::Connection;
use crate::error::{Code, Error, Result};

/// Time for the agent's answer, if its lease and that of the vm-controller are renewed.
const ANSWER: Duration = Duration::from_secs(3);

/// What the agent knows, or why that cannot be known. A part that is away is found by its lease, without waiting for it.
pub(super) async fn of_vm(
    client: &NamespaceClient,
    machine: &VirtualMachine,
) -> std::result::Result<VmInspect, String> {
    let node = node_of(machine).ok_or("the VM is on no node")?;
    let asked = async {
        let namespace = installed(&client.connection, None).await?;
        if let Some(away) = away(&client.connection, &namespace, &node).await? {
            return Ok(Err(away));
        }
        let services = Services::open(&client.connection, &namespace).await?;
        let found = ask(&services, client, machine).await;
        Ok(found.map(|(_, vm)| vm).ok_or_else(|| format!("the agent of {node} does not respond")))
    };
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(Error { message, causes, .. })) => Err([vec![message], causes].concat().join(": ")),
        Err(_) => Err(format!("the agent of {node} has not responded within {ANSWER:?}")),
    }
}

/// The part without which the agent cannot be asked, if it is away: the vm-controller signs the certificate of a caller.
async fn away(connection: &Connection, namespace: &str, node: &str) -> Result<Option<String>> {
    let place = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let leases = match items(connection, &place).await {
        Err(error) if error.code == Code::Denied => return Ok(None),
        leases => leases?,
    };
    let clock = clock(connection).await?;
    Ok(first_away(&leases, node, clock.server.unwrap_or(clock.own)))
}

fn first_away(leases: &[Value], node: &str, now: Timestamp) -> Option<String> {
    let find = |name: &str| leases.iter().find(|lease| text(lease, "/metadata/name") == name);
    let is_away = |lease: &Value| held(lease, now).is_none_or(|held| held.is_stale());
    if find(CONTROLLER_LEASE).is_some_and(is_away) {
        return Some("no vm-controller leads: neonctl status".to_owned());
    }
    let agent = find(&agent_lease(node));
    agent.is_none_or(is_away).then(|| format!("the agent of {node} is away: neonctl status"))
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
    fn the_part_that_is_away_is_named() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let lease = |name: &str, holder: &str, renewed: &str| {
            serde_json::json!({"metadata": {"name": name},
                "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}})
        };
        let (fresh, stale) = ("2026-01-01T00:00:55Z", "2026-01-01T00:00:05Z");
        let controller = |renewed| lease(CONTROLLER_LEASE, "c-0", renewed);
        let agent = |holder, renewed| lease("neonvm-agent-n1", holder, renewed);
        let away = |leases: &[Value]| first_away(leases, "n1", now);
        assert_eq!(away(&[controller(fresh), agent("a", fresh)]), None);
        for controller in [controller(stale), lease(CONTROLLER_LEASE, "", fresh)] {
            let words = away(&[controller, agent("a", fresh)]).unwrap();
            assert!(words.starts_with("no vm-controller leads"), "{words}");
        }
        for gone in
            [vec![], vec![controller(fresh), agent("", fresh)], vec![controller(fresh), agent("a", stale)]]
        {
            let words = away(&gone).unwrap();
            assert!(words.starts_with("the agent of n1 is away"), "{words}");
        }
    }

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
