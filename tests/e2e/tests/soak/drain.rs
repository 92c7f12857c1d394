//! A node with many VMs is drained.

use neonvm_test_support::need;

use crate::cluster::possible;
use crate::draining::leaves_a_node;

/// VMs of the drain; `NEONVM_DRAIN_VMS` asks for another number.
const VMS: usize = 10;

#[test]
fn a_node_with_many_vms_is_drained() {
    need!(possible());
    let asked = std::env::var("NEONVM_DRAIN_VMS").ok().and_then(|text| text.parse().ok());
    leaves_a_node(asked.unwrap_or(VMS)).down();
}
