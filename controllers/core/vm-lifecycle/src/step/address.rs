//! The VM's address on the overlay network: taken before its pod is made, the same for life, given back when nothing
//! of the VM runs any more.

use std::net::IpAddr;

use neonvm_api::virtual_machine::Phase;

use super::Pass;
use crate::observed::AddressView;
use crate::outcome::Action;

fn is_wanted(pass: &Pass<'_>) -> bool {
    pass.vm.spec.extra_network.as_ref().is_some_and(|network| network.enable)
}

/// Takes an address, or shows the one that is held.
pub(super) fn step(pass: &mut Pass<'_>) {
    if !is_wanted(pass) {
        return;
    }
    let recorded: Option<IpAddr> = pass.before.extra_net_ip.parse().ok();
    match pass.observed.address {
        // The refusal contains the obstacle. A running machine can wait.
        AddressView::Unknown if matches!(pass.before.phase, None | Some(Phase::Pending)) => {
            pass.actions.push(Action::TakeAddress { wanted: recorded });
        }
        AddressView::Unknown => {}
        AddressView::Held { ip, mask } if recorded.is_none_or(|recorded| recorded == ip) => {
            pass.status.extra_net_ip = ip.to_string();
            pass.status.extra_net_mask = mask.to_string();
        }
        AddressView::Held { .. } | AddressView::None => {
            pass.actions.push(Action::TakeAddress { wanted: recorded });
        }
    }
}

/// Whether a pod may be created: only with the address that the VM's status will have.
pub(super) fn is_ready(pass: &Pass<'_>) -> bool {
    let shown = !pass.status.extra_net_ip.is_empty();
    !is_wanted(pass) || (shown && matches!(pass.observed.address, AddressView::Held { .. }))
}

/// Gives the address back, if the VM may have one.
pub(super) fn give_back(pass: &mut Pass<'_>) {
    let held = matches!(pass.observed.address, AddressView::Held { .. });
    if is_wanted(pass) || held || !pass.before.extra_net_ip.is_empty() {
        pass.actions.push(Action::ReleaseAddress);
    }
}
