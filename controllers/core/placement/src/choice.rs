//! The best node for a pod.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::amounts::allocatable;
use crate::{Demand, Reason, Usage, fit};

/// What became of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pod goes there.
    Node(String),
    /// No node will have it: each with its reason, by name.
    Nowhere(Vec<(String, Reason)>),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node {name}"),
            Self::Nowhere(reasons) if reasons.is_empty() => f.write_str("there are no nodes"),
            Self::Nowhere(reasons) => {
                write!(f, "0/{} nodes fit: ", reasons.len())?;
                for (index, (name, reason)) in reasons.iter().enumerate() {
                    write!(f, "{}{name} {reason}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
        }
    }
}

/// The node that is least loaded once the pod is there, by the fuller of CPU and memory; of equals the first by name.
/// `pods` are all pods that are bound and have not ended.
#[must_use]
pub fn choose<'a>(pod: &Pod, nodes: &[&Node], pods: &[&'a Pod]) -> Choice {
    let mut there: BTreeMap<&str, Vec<&'a Pod>> = BTreeMap::new();
    for other in pods {
        if let Some(node) = other.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            there.entry(node).or_default().push(other);
        }
    }
    let demand = Demand::of(pod);
    let mut best: Option<(i128, &str)> = None;
    let mut reasons = Vec::new();
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or("");
        let here = there.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut usage = Usage::default();
        for other in here {
            usage.add(&Demand::of(other));
        }
        match fit(pod, node, &usage, here.iter().copied()) {
            Err(reason) => reasons.push((name.to_owned(), reason)),
            Ok(()) => {
                usage.add(&demand);
                let rank = (load(node, &usage), name);
                if best.is_none_or(|best| rank < best) {
                    best = Some(rank);
                }
            }
        }
    }
    reasons.sort_by(|a, b| a.0.cmp(&b.0));
    match best {
        Some((_, name)) => Choice::Node(name.to_owned()),
        None => Choice::Nowhere(reasons),
    }
}

/// Share of the node in use, in millionths.
fn load(node: &Node, usage: &Usage) -> i128 {
    let offered = allocatable(node);
    let share = |resource: &str| match offered.get(resource) {
        0 => 0,
        all => usage.amounts().get(resource).saturating_mul(1_000_000) / all,
    };
    share("cpu").max(share("memory"))
}

#[cfg(test)]
mod tests;
