//! The address on the overlay network: before the pod, and until nothing runs any more.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::{ExtraNetwork, Phase};
use neonvm_core_vm_lifecycle::{Action, AddressView, Observed, Outcome, RunnerView, step};

use crate::machine::{at, settings, vm};
use crate::observations::observed;

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 100, 128, 7));
const MASK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(255, 255, 0, 0));

/// A VM on the overlay, whose pod has a name but does not exist.
fn pending(ip: &str) -> VirtualMachine {
    let mut vm = vm();
    let network = ExtraNetwork { enable: true, interface: "net1".into(), multus_network: String::new() };
    vm.spec.extra_network = Some(network);
    let status = vm.status.get_or_insert_default();
    (status.phase, status.pod_name) = (Some(Phase::Pending), "db-1".into());
    status.extra_net_ip = ip.into();
    vm
}

fn look(vm: &VirtualMachine, address: AddressView) -> Outcome {
    step(at(100), vm, &Observed { address, ..observed(None, RunnerView::Unknown) }, &settings())
}

fn makes_a_pod(outcome: &Outcome) -> bool {
    outcome.actions.iter().any(|action| matches!(action, Action::CreatePod { .. }))
}

#[test]
fn no_pod_without_an_address() {
    for view in [AddressView::Unknown, AddressView::None] {
        let outcome = look(&pending(""), view);
        assert_eq!(outcome.actions, [Action::TakeAddress { wanted: None }]);
        assert_eq!(outcome.status.extra_net_ip, "");
    }
    let held = look(&pending(""), AddressView::Held { ip: IP, mask: MASK });
    assert!(makes_a_pod(&held));
    let shown = (held.status.extra_net_ip.as_str(), held.status.extra_net_mask.as_str());
    assert_eq!(shown, ("10.100.128.7", "255.255.0.0"));
}

/// The address in the VM's status is requested, regardless of the pools.
#[test]
fn a_machine_insists_on_the_address_it_has() {
    let asked = Action::TakeAddress { wanted: Some(IP) };
    let other = AddressView::Held { ip: "10.100.128.9".parse().unwrap(), mask: MASK };
    for view in [AddressView::None, other] {
        let outcome = look(&pending("10.100.128.7"), view);
        assert!(outcome.actions.contains(&asked), "{outcome:?}");
        assert_eq!(outcome.status.extra_net_ip, "10.100.128.7");
    }
    assert!(!makes_a_pod(&look(&pending("10.100.128.7"), AddressView::None)));
    let held = look(&pending("10.100.128.7"), AddressView::Held { ip: IP, mask: MASK });
    assert!(makes_a_pod(&held) && !held.actions.contains(&asked));
}

#[test]
fn the_address_is_given_back_before_the_finalizer_goes() {
    let mut doomed = pending("10.100.128.7");
    doomed.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::from_second(90).unwrap()));
    let held = AddressView::Held { ip: IP, mask: MASK };
    assert_eq!(look(&doomed, held).actions, [Action::ReleaseAddress, Action::RemoveFinalizer]);
    // Also if the network was switched off meanwhile; but a VM that never had an address has nothing to release.
    doomed.spec.extra_network = None;
    assert_eq!(
        look(&doomed, AddressView::Unknown).actions,
        [Action::ReleaseAddress, Action::RemoveFinalizer]
    );
    doomed.status.get_or_insert_default().extra_net_ip = String::new();
    assert_eq!(look(&doomed, AddressView::None).actions, [Action::RemoveFinalizer]);
}
