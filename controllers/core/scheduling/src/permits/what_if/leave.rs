//! The node that a VM would be migrated to now.

use std::sync::Arc;

use neonvm_types::scheduler_inspect::{TargetView, WhatIf, WhatIfAnswer};

use super::super::PodSeen;
use super::super::account::{NodeEntry, PodEntry};
use super::State;
use crate::Choice;

impl State {
    pub(super) fn what_if_it_leaves(&self, question: &WhatIf) -> Result<WhatIfAnswer, String> {
        if question.size.is_some() || question.watermark.is_some() {
            return Err("leave: cannot be asked together with a size or a watermark".to_owned());
        }
        let pod = self.find(question)?;
        let node = pod.node.and_then(|node| self.nodes.get(node));
        let node = node.ok_or_else(|| format!("{} runs on no node that is known", pod.seen.pod))?;
        if pod.is_leaving() {
            return Err(format!("{} is being moved already", question.vm));
        }
        let unknown = question.to.iter().chain(&question.avoid).find(|name| !self.is_a_node(name));
        if let Some(name) = unknown {
            return Err(format!("there is no node {name}"));
        }
        let target = arriving(pod);
        let mut targets = Vec::new();
        for name in self.node_index.keys().filter(|name| self.is_a_node(name)) {
            let why = if *name == node.name {
                Err("runs it now".to_owned())
            } else if question.avoid.contains(name) {
                Err("is to be avoided".to_owned())
            } else if !question.to.is_empty() && !question.to.contains(name) {
                Err("is not asked for".to_owned())
            } else {
                self.fits(&target, name)
                    .map_err(|reason| reason.map_or_else(String::new, |reason| reason.to_string()))
            };
            let fits = why.is_ok();
            let why = why.err().unwrap_or_else(|| self.with(name, &target));
            targets.push(TargetView { node: name.clone(), fits, chosen: false, why });
        }
        let fitting: Vec<&str> =
            targets.iter().filter(|target| target.fits).map(|target| target.node.as_str()).collect();
        let choice = self.choose_among(&target, |name| fitting.contains(&name));
        let why = match &choice {
            Choice::Node(name) => {
                format!(
                    "{} would go from {} to {name}, the least loaded node it fits on",
                    question.vm, node.name
                )
            }
            Choice::Nowhere(_) => format!("{} can go nowhere from {}", question.vm, node.name),
        };
        for target in &mut targets {
            target.chosen = matches!(&choice, Choice::Node(name) if *name == target.node);
        }
        Ok(WhatIfAnswer { why, targets, ..WhatIfAnswer::default() })
    }

    fn is_a_node(&self, name: &str) -> bool {
        let index = self.node_index.get(name);
        index.and_then(|index| self.nodes.get(*index)).is_some_and(|node| node.seen.is_some())
    }

    /// What a node would have reserved with the pod.
    fn with(&self, name: &str, pod: &PodSeen) -> String {
        let Some(node) = self.node_index.get(name).and_then(|index| self.nodes.get(*index)) else {
            return String::new();
        };
        let mut sum = node.sums.reserved;
        sum.add(pod.counted_at_first());
        let share = |sum: u128, total: u64| (sum * 100).checked_div(u128::from(total)).unwrap_or(0);
        let share = sum.with(node.total(), share);
        let above = if above_watermark(node, sum) { "; above its watermark" } else { "" };
        format!("would have {}% of its CPU and {}% of its memory reserved{above}", share.cpu, share.mem)
    }
}

fn above_watermark(node: &NodeEntry, sum: super::Pair<u128>) -> bool {
    sum.any_greater(node.watermark.map(u128::from))
}

/// The target pod of the VM, before there is one: not bound, and as large as the VM may be now.
fn arriving(pod: &PodEntry) -> PodSeen {
    let mut seen = pod.seen.clone();
    seen.uid = String::new();
    seen.pod.name.push_str("-target");
    seen.usage = pod.solid();
    if let Some(object) = &seen.object {
        let mut object = (**object).clone();
        object.metadata.name = Some(seen.pod.name.clone());
        if let Some(spec) = &mut object.spec {
            spec.node_name = None;
        }
        seen.object = Some(Arc::new(object));
    }
    seen
}
