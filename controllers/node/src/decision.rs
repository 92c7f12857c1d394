//! What a pod gets of its node. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use neonvm_api::virtual_machine::PortProtocol;
use neonvm_api::{Policy, Power, VirtualMachine, overlay};
use neonvm_types::node_protocol::{Refusal, guest_hardware};

/// A pod of the node, as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    /// Name and UID of the VM that owns it, if one does.
    pub vm: Option<(String, String)>,
    /// Whether its deletion was requested.
    pub deleting: bool,
}

/// A port of the guest that is reached at the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward {
    pub udp: bool,
    pub port: u16,
}

/// The guest's place on the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnOverlay {
    /// The pod's interface there.
    pub interface: String,
    pub hardware: [u8; 6],
    /// The address that the controller gave it.
    pub ip: Ipv4Addr,
}

/// What is made for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Hardware address of the guest on the link.
    pub hardware: [u8; 6],
    /// Each port once, although it may have several names.
    pub forwards: BTreeSet<Forward>,
    /// Whether kubelets and the addresses of [`neonvm_core_overlay::closed`] are open to the guest.
    pub open: bool,
    /// Whether the guest's traffic is counted.
    pub counted: bool,
    pub overlay: Option<OnOverlay>,
}

/// What a pod gets for its VM; `policy`: that of its namespace. All of it comes from the VM: nothing of what the pod's author, or a
/// process in the pod, can write decides here.
///
/// # Errors
/// If the pod is no pod of that VM, or not any more.
pub fn order(pod: &Pod, vm: &VirtualMachine, policy: &Policy) -> Result<Order, Refusal> {
    if pod.deleting {
        return Err(refused(format!("pod {} is being deleted", pod.name)));
    }
    let uid = owner_uid(pod, vm)?;
    let status = vm.status.as_ref();
    let is_current = status.is_some_and(|status| !pod.name.is_empty() && status.pod_name == pod.name);
    let is_target = status
        .and_then(|status| status.migration.as_ref())
        .is_some_and(|migration| migration.target_pod_name == pod.name);
    if !is_current && !is_target {
        let current = status.map_or("", |status| status.pod_name.as_str());
        return Err(refused(format!(
            "pod {} is not the pod of its VM, which is {current:?}, nor the target of its migration",
            pod.name
        )));
    }
    let guest = &vm.spec.guest;
    let forward = |udp: bool, port: u16| Forward { udp, port };
    Ok(Order {
        hardware: guest_hardware(uid),
        forwards: guest
            .ports
            .iter()
            .map(|port| forward(port.protocol == PortProtocol::Udp, port.port))
            .collect(),
        open: policy.allows(Power::NodeAccess),
        counted: vm.spec.enable_network_monitoring,
        overlay: on_overlay(vm, uid)?,
    })
}

/// The UID of the VM, if it controls the pod.
fn owner_uid<'a>(pod: &Pod, vm: &'a VirtualMachine) -> Result<&'a str, Refusal> {
    let Some((name, owner)) = &pod.vm else {
        return Err(refused(format!("pod {} belongs to no VM", pod.name)));
    };
    let is_same = vm.metadata.namespace.as_ref() == Some(&pod.namespace)
        && vm.metadata.name.as_ref() == Some(name)
        && vm.metadata.uid.as_ref() == Some(owner);
    let uid = vm.metadata.uid.as_deref().filter(|_| is_same);
    uid.ok_or_else(|| refused(format!("pod {} belongs to an earlier VM {name}, which is gone", pod.name)))
}

fn on_overlay(vm: &VirtualMachine, uid: &str) -> Result<Option<OnOverlay>, Refusal> {
    let Some(network) = vm.spec.extra_network.as_ref().filter(|network| network.enable) else {
        return Ok(None);
    };
    let address = vm.status.as_ref().map_or("", |status| status.extra_net_ip.as_str());
    if address.is_empty() {
        return Ok(None);
    }
    let ip = address
        .parse()
        .map_err(|_| refused(format!("status.extraNetIP: {address:?} is not an IPv4 address")))?;
    let hardware = overlay::hardware_address(uid);
    Ok(Some(OnOverlay { interface: network.interface.clone(), hardware, ip }))
}

/// A refusal that another request does not change.
#[must_use]
pub fn refused(reason: String) -> Refusal {
    Refusal { reason, later: false }
}

#[cfg(test)]
mod tests;
