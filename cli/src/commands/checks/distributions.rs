//! Distributions whose nodes need a setting that the API does not show: the page `docs/src/howto/nodes.md`, as findings. Pure.

use serde_json::Value;

use super::facts::{Facts, Source};
use super::finding::{Finding, ok};
use super::view::plural;
use crate::commands::object::text;

const SELINUX: &str =
    "where SELinux enforces, the pods neonvm-node and neonvm-agent need a type that may use host paths";

/// A field of a Node's `nodeInfo` and the part of it that names a distribution, its name, and what its nodes need. The first that fits counts.
const ALL: [[&str; 4]; 12] = [
    ["osImage", "Talos", "Talos", "modules are listed in machine.kernel.modules"],
    ["osImage", "Bottlerocket", "Bottlerocket", SELINUX],
    [
        "osImage",
        "CoreOS",
        "OpenShift",
        "service accounts of neonvm-system need the SecurityContextConstraints privileged, those of namespaces with VMs nonroot-v2",
    ],
    ["osImage", "Flatcar", "Flatcar", "load modules by a file in /etc/modules-load.d"],
    ["kubeletVersion", "+k3s", "k3s", "images are loaded with k3s ctr, not ctr"],
    [
        "kubeletVersion",
        "+rke2",
        "RKE2",
        "images are loaded with ctr --address /run/k3s/containerd/containerd.sock",
    ],
    ["osImage", "Red Hat", "Red Hat Enterprise Linux", SELINUX],
    ["osImage", "Fedora", "Fedora", SELINUX],
    ["osImage", "Rocky", "Rocky Linux", SELINUX],
    ["osImage", "AlmaLinux", "AlmaLinux", SELINUX],
    ["osImage", "Oracle", "Oracle Linux", SELINUX],
    ["osImage", "MicroOS", "openSUSE MicroOS", SELINUX],
];

pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    if facts.is_local() {
        return Vec::new();
    }
    let nodes = facts.all(Source::Nodes);
    let of = |[.., name, needs]: &[&str; 4]| {
        let count = nodes.iter().filter(|node| found(node) == Some(*name)).count();
        let nodes = plural(count, "node");
        let detail = format!("{name}: {needs} ({nodes}; see Other distributions and networks in the book)");
        (count > 0).then(|| ok("distribution", detail).at("cluster"))
    };
    ALL.iter().filter_map(of).collect()
}

/// The distribution of a node, if it is one of the table.
fn found(node: &Value) -> Option<&'static str> {
    let is_it =
        |[field, part, ..]: &&[&str; 4]| text(node, &format!("/status/nodeInfo/{field}")).contains(part);
    ALL.iter().find(is_it).map(|[.., name, _]| *name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn distributions_are_known_by_what_nodes_report() {
        let of = |image: &str, kubelet: &str| {
            let node = json!({"status": {"nodeInfo": {"osImage": image, "kubeletVersion": kubelet}}});
            found(&node)
        };
        assert_eq!(of("Talos (v1.11.2)", "v1.34.1"), Some("Talos"));
        assert_eq!(of("Bottlerocket OS 1.41.0 (aws-k8s-1.33)", "v1.33.1-eks-b9364f6"), Some("Bottlerocket"));
        assert_eq!(of("Red Hat Enterprise Linux CoreOS 418.94.202501221327-0", "v1.31.4"), Some("OpenShift"));
        assert_eq!(of("Red Hat Enterprise Linux 9.5 (Plow)", "v1.32.0"), Some("Red Hat Enterprise Linux"));
        assert_eq!(of("Flatcar Container Linux by Kinvolk 4152.2.0 (Oklo)", "v1.31.0"), Some("Flatcar"));
        assert_eq!(of("Ubuntu 24.04.2 LTS", "v1.34.1+k3s1"), Some("k3s"));
        assert_eq!(of("SUSE Linux Enterprise Server 15 SP6", "v1.33.3+rke2r1"), Some("RKE2"));
        assert_eq!(of("Debian GNU/Linux 13 (trixie)", "v1.36.2"), None);
    }
}
