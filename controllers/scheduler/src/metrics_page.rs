//! The page of metrics: counters, and the amounts of the nodes at the moment.

use neonvm_kit::metrics::{Kind, Page};
use neonvm_types::scheduler_inspect::ResourceView;

use crate::shared::Shared;

/// Amounts of a node: its labels, CPU in thousandths of a core, memory in bytes.
type Node = (Vec<(String, String)>, ResourceView, ResourceView);

/// A page with all of it.
pub(crate) fn page(shared: &Shared) -> Page {
    shared.metrics.failing(shared.state().unreadable());
    let mut page = shared.metrics.registry.page();
    let wanted = &shared.config.node_metric_labels;
    let nodes: Vec<Node> = {
        let state = shared.state();
        let totals = state.totals().into_iter();
        totals
            .map(|(node, cpu, mem)| {
                let own = wanted.iter().map(|(name, key)| {
                    let value = node.labels.get(key).cloned().unwrap_or_default();
                    (name.clone(), value)
                });
                let name = ("node".to_owned(), node.name.clone());
                (std::iter::once(name).chain(own).collect(), cpu, mem)
            })
            .collect()
    };
    let leading = f64::from(u8::from(shared.is_leading()));
    page.single("neonvm_scheduler_leading", Kind::Gauge, "Whether this replica leads.", leading);
    resources(&mut page, &nodes);
    page
}

pub(crate) fn resources(page: &mut Page, nodes: &[Node]) {
    let help = "CPU of nodes, in cores.";
    page.family("autoscaling_plugin_node_cpu_resources_current", Kind::Gauge, help);
    nodes.iter().for_each(|(labels, cpu, _)| amounts(page, labels, cpu, 1000.0));
    let help = "Memory of nodes, in bytes.";
    page.family("autoscaling_plugin_node_mem_resources_current", Kind::Gauge, help);
    nodes.iter().for_each(|(labels, _, mem)| amounts(page, labels, mem, 1.0));
}

fn amounts(page: &mut Page, labels: &[(String, String)], view: &ResourceView, unit: f64) {
    for (field, amount) in [
        ("Total", view.total),
        ("Watermark", view.watermark),
        ("Reserved", view.reserved),
        ("Committed", view.committed),
        ("Migrating", view.migrating),
        ("Buffer", view.buffer),
        ("CapacityPressure", view.capacity_pressure),
        ("PressureAccountedFor", view.pressure_accounted_for),
    ] {
        let own = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let labels: Vec<(&str, &str)> = own.chain([("field", field)]).collect();
        page.sample(&labels, amount as f64 / unit);
    }
}
