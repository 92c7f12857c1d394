//! What would happen. Nothing is changed.

use neonvm_types::scheduler_inspect::{WhatIf, WhatIfAnswer};
use neonvm_types::{Bytes, NamespacedName, Resources};

use super::account::{PodEntry, fraction};
use super::leave::cpu;
use super::request::{Terms, base, grant, is_whole};
use super::{Pair, State};

mod leave;

impl State {
    /// Answers a question.
    ///
    /// # Errors
    /// The reason, if it cannot be answered.
    pub fn what_if(&self, question: &WhatIf) -> Result<WhatIfAnswer, String> {
        if question.leave {
            return self.what_if_it_leaves(question);
        }
        let fraction_asked = question.watermark;
        if let Some(watermark) = fraction_asked.filter(|watermark| !(*watermark > 0.0 && *watermark <= 1.0)) {
            return Err(format!("watermark: {watermark} must be above 0 and at most 1"));
        }
        let mut answer = match question.size {
            Some(size) => self.what_if_size(question, size)?,
            None if fraction_asked.is_none() => {
                return Err("neither a size, a watermark nor a move is asked about".to_owned());
            }
            None => WhatIfAnswer::default(),
        };
        let at: Vec<usize> = if question.vm.is_empty() {
            self.node_index.values().copied().collect()
        } else {
            self.find(question)?.node.into_iter().collect()
        };
        for index in at {
            let Some(node) = self.nodes.get(index) else { continue };
            let watermark =
                fraction_asked.map_or(node.watermark, |asked| node.total().map(|all| fraction(all, asked)));
            answer.nodes.extend(self.view_with(index, watermark));
        }
        if let (Some(watermark), None) = (fraction_asked, question.size) {
            let over: Vec<&str> =
                answer.nodes.iter().filter(|n| n.too_much_pressure).map(|n| n.name.as_str()).collect();
            let count = answer.nodes.len();
            answer.why = match over.as_slice() {
                [] => {
                    format!("with a watermark of {watermark} no VM would have to leave any of {count} nodes")
                }
                names => {
                    format!("with a watermark of {watermark} VMs would have to leave: {}", names.join(", "))
                }
            };
        }
        Ok(answer)
    }

    fn find(&self, question: &WhatIf) -> Result<&PodEntry, String> {
        let key = NamespacedName::new(question.namespace.clone(), question.vm.clone());
        if let Some(pod) = self.pod_index.get(&key).and_then(|index| self.pods.get(*index)) {
            return Ok(pod);
        }
        let of_vm = self.pods.iter().map(|(_, pod)| pod).filter(|pod| {
            pod.seen.pod.namespace == key.namespace
                && pod.seen.vm.as_ref().is_some_and(|vm| vm.name == key.name)
                && !pod.seen.ended
        });
        // Of the two pods of a migration the one that runs the VM: the other one waits for it, or is left.
        let pod = of_vm.max_by_key(|pod| {
            (pod.node.is_some(), !pod.seen.deleting, pod.migrating, std::cmp::Reverse(pod.seen.created))
        });
        pod.ok_or_else(|| format!("there is no VM {key}"))
    }

    fn what_if_size(&self, question: &WhatIf, size: Resources) -> Result<WhatIfAnswer, String> {
        size.validate_non_zero().map_err(|error| format!("size: {error}"))?;
        let pod = self.find(question)?;
        let node = pod.node.and_then(|node| self.nodes.get(node));
        let Some(node) = node.filter(|node| node.seen.is_some()) else {
            return Err(format!("{} runs on no node that is known", pod.seen.pod));
        };
        let noted =
            pod.request.map(|(_, noted)| noted.unit).or_else(|| pod.seen.vm.as_ref().and_then(|vm| vm.unit));
        let unit = Pair::from(noted.unwrap_or(self.settings.compute_unit));
        let wanted = Pair::from(size);
        let terms = Terms { base: base(pod, None).min(wanted), room: self.room(pod) };
        let granted = grant(wanted, unit, terms);
        let limit = terms.room.max(base(pod, None));
        let count = limit.with(unit, |limit, unit| limit.checked_div(unit).unwrap_or(0));
        let units = count.cpu.min(count.mem);
        let most = if is_whole(wanted, unit) { unit.map(|unit| unit.saturating_mul(units)) } else { limit };
        let own = pod.seen.counted(pod.reserved());
        let others = node.sums.reserved.with(own, u128::saturating_sub);
        let mut sum = pod.seen.counted(wanted);
        sum.add(others);
        let sum = sum.narrow();
        let total = node.total();
        let percent = |part: u64, all: u64| {
            (u128::from(part) * 200 + u128::from(all)).checked_div(u128::from(all) * 2).unwrap_or(0)
        };
        let shape = format!(
            "{} CPU ({}%), {} ({}%)",
            cpu(sum.cpu),
            percent(sum.cpu, total.cpu),
            Bytes::new(sum.mem),
            percent(sum.mem, total.mem)
        );
        let why = if granted == wanted {
            let above = sum.any_greater(node.watermark);
            format!("{shape} - granted{}", if above { "; above the watermark" } else { "" })
        } else {
            let over = sum.less(total);
            let mut parts = Vec::new();
            if over.cpu > 0 {
                parts.push(format!("{} CPU above capacity", cpu(over.cpu)));
            }
            if over.mem > 0 {
                parts.push(format!("{} memory above capacity", Bytes::new(over.mem)));
            }
            let most = most.resources();
            let most = if is_whole(wanted, unit) {
                format!("{units} CU is the most {} can give", node.name)
            } else {
                format!("{} CPU and {} is the most {} can give", cpu(limit.cpu), most.mem, node.name)
            };
            let verdict = if granted == pod.held { "refused" } else { "granted in part" };
            format!("{shape} - {verdict}: {}; {most}", parts.join(", "))
        };
        Ok(WhatIfAnswer {
            why,
            permit: Some(granted.resources()),
            most: Some(most.resources()),
            most_units: is_whole(most, unit).then_some(units),
            sum: Some((sum.cpu, sum.mem)),
            ..WhatIfAnswer::default()
        })
    }
}
