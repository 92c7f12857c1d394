//! Counters of the guest's traffic, under the names of upstream's runner.

use http::{Response, StatusCode};
use neonvm_types::exposition::{Kind, Page, double};

use super::{Body, Shared, answer, not_yet, text};
use crate::network::Reading;

/// The page, or why there is none.
pub(super) async fn page(shared: &Shared) -> Response<Body> {
    if !shared.counts_traffic {
        return text(StatusCode::NOT_FOUND, "spec.enableNetworkMonitoring of this VM is false");
    }
    let running = shared.running.borrow().clone();
    let Some(running) = running else { return not_yet() };
    let Some(meter) = running.meter else {
        let why =
            "this node connects VMs by user-mode networking (it runs without root), which has no counters";
        return text(StatusCode::NOT_IMPLEMENTED, why);
    };
    answer::page(render(meter.read().await))
}

fn render(Reading { traffic, errors }: Reading) -> Page {
    let mut page = Page::new();
    let mut counter = |name, help, value| page.single(name, Kind::Counter, help, double(value));
    counter(
        "runner_vm_ingress_bytes_total",
        "Bytes of TCP that the VM received from addresses that are neither private nor loopback.",
        traffic.ingress,
    );
    counter(
        "runner_vm_egress_bytes_total",
        "Bytes of TCP that the VM sent to addresses that are neither private nor loopback.",
        traffic.egress,
    );
    counter(
        "runner_vm_network_fetch_errors_total",
        "Failures to read these counters from the kernel.",
        errors,
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use neonvm_types::node_protocol::Traffic;

    #[test]
    fn the_names_are_those_of_upstream() {
        let text = render(Reading { traffic: Traffic { ingress: 1, egress: 2 }, errors: 3 }).finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "runner_vm_ingress_bytes_total 1",
                "runner_vm_egress_bytes_total 2",
                "runner_vm_network_fetch_errors_total 3"
            ]
        );
    }
}
