//! Migrations of evictions: a drain cordons its node first. A drain that is given up uncordons it, and nothing else of it is undone;
//! what has not begun must not take a VM away from a node that accepts pods again.

use neonvm_api::names::label;

use super::Pass;

/// Whether the node that the VM was to leave accepts pods again, or the VM has left it in another way; why the migration ends then, for
/// people. Only for a migration that has copied nothing.
///
/// An eviction from a node that was not cordoned when it was seen first is not about its node, and is not undone by it.
pub(super) fn is_undone(pass: &mut Pass<'_>) -> Option<String> {
    let labels = pass.migration.metadata.labels.as_ref();
    if !labels.is_some_and(|labels| labels.contains_key(label::CREATED_BY_EVICTION)) {
        return None;
    }
    let node = pass.observed.vm.and_then(|vm| vm.status.as_ref()).map(|status| status.node.clone())?;
    let is_first = pass.before.drained_node.is_empty() || pass.before.drained_node == node;
    if pass.observed.cordoned && is_first {
        pass.status.drained_node = node;
        return None;
    }
    let drained = &pass.before.drained_node;
    match () {
        () if drained.is_empty() || node.is_empty() => None,
        () if *drained == node => {
            Some(format!("node {node} accepts pods again, and nothing of the VM was copied"))
        }
        () => Some(format!("the VM has left node {drained}, and runs on node {node}")),
    }
}
