//! Nodes in words. Pure.

use neonvm_types::scheduler_inspect::{Inspect, NodeView, ResourceView, WhatIfAnswer};

use crate::commands::scheduler::cores;
use crate::render::bytes;

const BAR: u64 = 20;

/// One line of a node: a name, and CPU and memory beside each other.
fn line(name: &str, cpu: &str, memory: &str) -> String {
    format!("{name:<28}  {cpu:<38}  {memory}").trim_end().to_owned() + "\n"
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)).try_into().unwrap_or(u64::MAX) }
}

fn bar(part: u64, whole: u64) -> String {
    let filled = (percent(part, whole) * BAR / 100).min(BAR);
    let count = |n: u64| usize::try_from(n).unwrap_or(0);
    format!("[{}{}]", "#".repeat(count(filled)), ".".repeat(count(BAR - filled)))
}

fn share(amount: &str, part: u64, whole: u64) -> String {
    format!("{amount:>8}  {} {:>3}%", bar(part, whole), percent(part, whole))
}

/// The wide and machine-readable table: two rows for each node.
pub(super) fn rows(node: &NodeView) -> Vec<Vec<String>> {
    let row = |name: &str, view: &ResourceView, show: fn(u64) -> String| {
        vec![
            node.name.clone(),
            name.to_owned(),
            show(view.total),
            show(view.reserved),
            show(view.buffer),
            show(view.watermark),
            show(view.logical_pressure()),
            show(view.capacity_pressure),
            show(view.pressure_accounted_for),
        ]
    };
    vec![row("cpu", &node.cpu, cores), row("memory", &node.mem, bytes)]
}

pub(super) fn in_words(inspect: &Inspect, answer: Option<&(String, WhatIfAnswer)>, explain: bool) -> String {
    let mut text = String::new();
    for node in &inspect.nodes {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&one(node, inspect, explain));
    }
    if inspect.nodes.is_empty() {
        text.push_str("no nodes\n");
    }
    if let Some((question, answer)) = answer {
        text.push_str(&format!("\nwhat if {question}: {}", answer.why));
        // The reason may have named the same limit already.
        let names_limit = answer.why.starts_with("granted")
            || answer.most_units.is_some_and(|units| answer.why.contains(&format!("{units} CU is")));
        if let (Some(units), false) = (answer.most_units, names_limit) {
            text.push_str(&format!("; its node can currently give at most {units} CU"));
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

fn one(node: &NodeView, inspect: &Inspect, explain: bool) -> String {
    let (cpu, mem) = (&node.cpu, &node.mem);
    let mut text = line(&format!("node {}", node.name), "CPU", "MEMORY");
    if let Some(closed) = &node.closed {
        text.push_str(&format!("takes no pods: {closed}\n"));
    }
    let both = |name: &str, of: fn(&ResourceView) -> u64| {
        line(name, &format!("{:>8}", cores(of(cpu))), &format!("{:>8}", bytes(of(mem))))
    };
    let shares = |name: &str, of: fn(&ResourceView) -> u64| {
        let cpu_share = share(&cores(of(cpu)), of(cpu), cpu.total);
        line(name, &cpu_share, &share(&bytes(of(mem)), of(mem), mem.total))
    };
    text.push_str(&both("capacity", |view| view.total));
    text.push_str(&shares("ordinary pods", |view| view.ordinary));
    for pod in node.pods.iter().filter(|pod| pod.vm.is_some()) {
        let vm = pod.vm.clone().unwrap_or_default();
        let units = pod.compute_unit.and_then(|unit| pod.reserved.exact_quotient(unit));
        let name = units.map_or_else(|| vm.clone(), |units| format!("{vm}  {units} CU"));
        let milli = u64::from(pod.reserved.vcpus.milli());
        let memory = pod.reserved.mem.get();
        text.push_str(&line(
            &name,
            &share(&cores(milli), milli, cpu.total),
            &share(&bytes(memory), memory, mem.total),
        ));
    }
    text.push_str(&shares("reserved", |view| view.reserved));
    text.push_str(&shares("watermark", |view| view.watermark));
    text.push_str(&both("logical pressure", ResourceView::logical_pressure));
    text.push_str(&both("capacity pressure", |view| view.capacity_pressure));
    text.push_str(&both("accounted for", |view| view.pressure_accounted_for));
    if cpu.buffer > 0 || mem.buffer > 0 {
        text.push_str(&both("buffer", |view| view.buffer));
    }
    text.push_str(&next(node, inspect));
    if explain {
        text.push_str(EXPLANATION);
    }
    text
}

fn next(node: &NodeView, inspect: &Inspect) -> String {
    let mut text = String::new();
    let leaving: Vec<String> = node.leaving.iter().map(ToString::to_string).collect();
    if !leaving.is_empty() {
        text.push_str(&format!("migrating away: {}\n", leaving.join(", ")));
    }
    for next in &node.next {
        let to = next.target.as_ref().map_or_else(|| "nowhere".to_owned(), |target| format!("to {target}"));
        text.push_str(&format!("next: migrate {} {to} - {}\n", next.vm, next.why));
    }
    if let Some(note) = &node.note {
        text.push_str(&format!("next: {note}\n"));
    } else if node.next.is_empty() {
        text.push_str("next: nothing\n");
    }
    if !inspect.settings.do_migration && !node.next.is_empty() {
        text.push_str("(the scheduler is configured not to start migrations)\n");
    }
    text
}

const EXPLANATION: &str = "
  reserved           the sum of requests of ordinary pods and permits of VMs, each divided by its overcommit factor
  watermark          above it the scheduler migrates VMs to other nodes
  logical pressure   the amount reserved above the watermark
  capacity pressure  the amount that agents requested and the node does not have
  accounted for      the amount that VMs being migrated away will free
  buffer             part of reserved: permits from before the start of the scheduler, until the next request of each agent
";

#[cfg(test)]
mod tests {
    use neonvm_types::scheduler_inspect::PodView;
    use neonvm_types::{Bytes, MilliCpu, NamespacedName, Resources};

    use super::*;

    fn node() -> Inspect {
        let unit = Resources::new(MilliCpu::new(250), Bytes::gib(1));
        let pod = PodView {
            pod: NamespacedName::new("default", "pg-main-x"),
            vm: Some("pg-main".into()),
            compute_unit: Some(unit),
            reserved: unit.saturating_mul(11),
            ..PodView::default()
        };
        let node = NodeView {
            name: "n1".into(),
            cpu: ResourceView {
                total: 4000,
                watermark: 3600,
                reserved: 3850,
                ordinary: 1100,
                ..ResourceView::default()
            },
            mem: ResourceView {
                total: 16 << 30,
                watermark: 15_461_882_265,
                reserved: 14 << 30,
                ordinary: 3 << 30,
                capacity_pressure: 1 << 30,
                ..ResourceView::default()
            },
            pods: vec![pod],
            ..NodeView::default()
        };
        Inspect { nodes: vec![node], ..Inspect::default() }
    }

    #[test]
    fn a_node_in_words() {
        let answer =
            WhatIfAnswer { why: "refused: no room".into(), most_units: Some(11), ..WhatIfAnswer::default() };
        let text = in_words(&node(), Some(&("pg-main=12cu".into(), answer)), false);
        let flat: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "node n1 CPU MEMORY",
            "capacity 4.00 16Gi",
            "ordinary pods 1.10 [#####...............] 27% 3Gi [###.................] 18%",
            "pg-main 11 CU 2.75 [#############.......] 68% 11Gi [#############.......] 68%",
            "reserved 3.85 [###################.] 96% 14Gi [#################...] 87%",
            "logical pressure 0.25 0",
            "next: nothing",
            "what if pg-main=12cu: refused: no room; its node can currently give at most 11 CU",
        ] {
            assert!(flat.iter().any(|own| own == line), "{line}\n{text}");
        }
    }

    #[test]
    fn nothing_of_a_node_without_anything_is_divided_by() {
        let inspect = Inspect { nodes: vec![NodeView::default()], ..Inspect::default() };
        assert!(in_words(&inspect, None, true).contains("logical pressure"));
        assert_eq!(rows(&NodeView::default()).len(), 2);
    }
}
