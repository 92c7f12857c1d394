//! Which nodes: the VM's own rules, and in each of them also the operating system and architecture. Terms of a node
//! selector are alternatives, so a requirement that always holds has to stand in every one of them.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use neonvm_api::virtual_machine::Architecture;

pub(super) fn plan(own: Option<&Affinity>, architecture: Option<Architecture>) -> Affinity {
    let mut affinity = own.cloned().unwrap_or_default();
    let node = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let required =
        node.required_during_scheduling_ignored_during_execution.get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        let only_term = own.is_none_or(|own| {
            own.node_affinity
                .as_ref()
                .is_none_or(|node| node.required_during_scheduling_ignored_during_execution.is_none())
        });
        // A term without anything matches no node; it stays so.
        let empty = term.match_expressions.as_ref().is_none_or(Vec::is_empty)
            && term.match_fields.as_ref().is_none_or(Vec::is_empty);
        if empty && !only_term {
            continue;
        }
        let expressions = term.match_expressions.get_or_insert_default();
        for requirement in requirements(architecture) {
            if !expressions.contains(&requirement) {
                expressions.push(requirement);
            }
        }
    }
    affinity
}

fn requirements(architecture: Option<Architecture>) -> Vec<NodeSelectorRequirement> {
    let one = |key: &str, value: &str| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    let mut all = vec![one("kubernetes.io/os", "linux")];
    all.extend(architecture.map(|architecture| {
        one(
            "kubernetes.io/arch",
            match architecture {
                Architecture::Amd64 => "amd64",
                Architecture::Arm64 => "arm64",
            },
        )
    }));
    all
}
