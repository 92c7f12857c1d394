//! Selectors: of nodes by their labels and fields, of pods by their labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

type Labels = BTreeMap<String, String>;

fn number(text: Option<&str>) -> Option<i64> {
    text.and_then(|text| text.parse().ok())
}

fn requirement(operator: &str, values: &[String], own: Option<&str>) -> bool {
    let listed = own.is_some_and(|own| values.iter().any(|value| value == own));
    let bound = number(values.first().map(String::as_str));
    match operator {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => own.is_some(),
        "DoesNotExist" => own.is_none(),
        "Gt" => number(own).zip(bound).is_some_and(|(own, bound)| own > bound),
        "Lt" => number(own).zip(bound).is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

fn all(requirements: Option<&Vec<NodeSelectorRequirement>>, own: impl Fn(&str) -> Option<String>) -> bool {
    requirements.into_iter().flatten().all(|wanted| {
        let values = wanted.values.as_deref().unwrap_or_default();
        requirement(&wanted.operator, values, own(&wanted.key).as_deref())
    })
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    // An empty term matches nothing.
    if term.match_expressions.as_ref().is_none_or(Vec::is_empty)
        && term.match_fields.as_ref().is_none_or(Vec::is_empty)
    {
        return false;
    }
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
    let field = |key: &str| if key == "metadata.name" { node.metadata.name.clone() } else { None };
    all(term.match_expressions.as_ref(), label) && all(term.match_fields.as_ref(), field)
}

/// Whether a node is selected: one of the terms matches.
pub(crate) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

/// Whether labels are selected. No selector selects nothing; an empty one everything.
pub(crate) fn selects_labels(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return false };
    let own = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| own(key) == Some(value.as_str()));
    equal
        && selector.match_expressions.iter().flatten().all(|wanted| {
            let values = wanted.values.as_deref().unwrap_or_default();
            requirement(&wanted.operator, values, own(&wanted.key))
        })
}

/// Whether a term that `owner` states is about `other`.
pub(crate) fn is_about(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap_or("");
    let own = owner.metadata.namespace.as_deref().unwrap_or("");
    let listed = term.namespaces.as_deref().unwrap_or_default();
    // Labels of namespaces are not available here: a selector of namespaces that is not empty selects only the pod's
    // own.
    let everywhere = term
        .namespace_selector
        .as_ref()
        .is_some_and(|all| all.match_labels.is_none() && all.match_expressions.is_none());
    let here =
        everywhere || listed.iter().any(|name| name == namespace) || (listed.is_empty() && namespace == own);
    here && selects_labels(term.label_selector.as_ref(), other.metadata.labels.as_ref())
}

/// The terms by which a pod must be kept apart from others.
pub(crate) fn apart(pod: &Pod) -> &[PodAffinityTerm] {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref())
        .and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}
