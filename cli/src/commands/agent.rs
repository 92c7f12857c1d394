//! `agent inspect`

use neonvm_types::Resources;
use neonvm_types::agent_inspect::{AgentInspect, Decision, VmInspect};
use serde_json::json;

use super::services::Services;
use super::vm::size::cores;
use crate::args::cluster::AgentInspect as Args;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::Settings;

pub(super) fn inspect(settings: &Settings, args: &Args) -> Result<Report> {
    block_on(async {
        let connection = Connection::open(settings).await?;
        let services = Services::open(&connection, &args.system_namespace).await?;
        let namespace =
            settings.place().namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
        let vm = args.vm.as_ref().map(|name| format!("{namespace}/{name}"));
        let (mut agents, silent) = services.agents(args.node.as_deref(), vm.as_deref()).await?;
        if let Some(name) = &args.vm {
            agents.retain(|agent| !agent.vms.is_empty());
            if agents.is_empty() {
                let error = Error::new(Code::NotFound, format!("no agent scales {name}"));
                return Err(silent.into_iter().fold(error, Error::cause).hint(format!(
                    "see whether scaling is on: neonctl vm describe {name}; turn it on: neonctl vm scale {name} --auto on"
                )));
            }
        }
        Ok(silent.into_iter().fold(Report::document(document(&agents, args)), Report::note))
    })
}

fn document(agents: &[AgentInspect], args: &Args) -> Document {
    let vms: Vec<(&AgentInspect, &VmInspect)> =
        agents.iter().flat_map(|agent| agent.vms.iter().map(move |vm| (agent, vm))).collect();
    let items: Vec<_> = vms
        .iter()
        .map(|(agent, vm)| {
            let mut item = json!(vm);
            if let Some(object) = item.as_object_mut() {
                object.insert("node".into(), json!(agent.node));
            }
            item
        })
        .collect();
    let mut columns: Vec<_> = ["VM", "NODE"].map(left).into();
    columns.extend(["NOW", "GOAL", "PERMIT", "APPROVED", "LOAD1", "MEM-USED", "CACHE-WSS"].map(right));
    columns.extend(["GUEST", "STATE"].map(left));
    let rows: Vec<_> = vms.iter().map(|(agent, vm)| row(agent, vm, args.raw)).collect();
    let text = args.vm.as_ref().map(|_| in_words(agents, &columns, &rows, args.history));
    Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "AgentInspectList", "items": items }),
        names: vms.iter().map(|(_, vm)| format!("virtualmachine/{}", vm.name)).collect(),
        text,
        columns,
        rows,
    }
}

/// A size in whole compute units, or as it is.
pub(super) fn size(resources: Option<Resources>, unit: Resources, raw: bool) -> String {
    let Some(size) = resources else { return "-".to_owned() };
    match size.exact_quotient(unit) {
        Some(units) if !raw => units.to_string(),
        _ => format!("{}/{}", cores(size.vcpus), size.mem),
    }
}

fn bytes(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), crate::render::bytes)
}

fn row(agent: &AgentInspect, vm: &VmInspect, raw: bool) -> Vec<String> {
    let show = |resources| size(resources, vm.compute_unit, raw);
    let state = match (&vm.stuck, &vm.limit) {
        (Some(stuck), _) => format!("stuck: {stuck}"),
        (None, Some(limit)) => format!("{}; {limit}", vm.state),
        (None, None) => vm.state.clone(),
    };
    vec![
        vm.name.clone(),
        agent.node.clone(),
        show(vm.now),
        show(vm.goal),
        show(vm.permit),
        show(vm.approved),
        vm.load1.map_or_else(|| "-".to_owned(), |load| format!("{load:.2}")),
        bytes(vm.memory_used_bytes),
        bytes(vm.cache_working_set_bytes),
        vm.guest_protocol.clone().unwrap_or_else(|| "-".to_owned()),
        state,
    ]
}

fn in_words(
    agents: &[AgentInspect],
    columns: &[crate::report::Column],
    rows: &[Vec<String>],
    history: usize,
) -> String {
    let mut text = String::new();
    for agent in agents {
        let vms = agent.vms.len();
        let age = agent.vms.iter().find_map(|vm| vm.metrics_age_seconds);
        let age = age.map_or_else(|| "no metrics yet".to_owned(), |age| format!("metrics {age:.1}s old"));
        let plural = if vms == 1 { "" } else { "s" };
        text.push_str(&format!("agent/{} {}, {vms} VM{plural}, {age}\n", agent.node, agent.version));
    }
    text.push_str(&crate::render::rows(columns, rows));
    text.push_str("\nLAST DECISIONS\n");
    for vm in agents.iter().flat_map(|agent| &agent.vms) {
        let skip = vm.decisions.len().saturating_sub(history);
        for decision in vm.decisions.iter().skip(skip) {
            text.push_str(&line(decision));
        }
        if vm.decisions.is_empty() {
            text.push_str("none yet\n");
        }
    }
    text.trim_end().to_owned()
}

fn line(decision: &Decision) -> String {
    let time = decision.at.split('T').nth(1).unwrap_or(&decision.at).trim_end_matches('Z');
    let reason = decision.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{time}  {}{reason}\n", decision.text)
}

#[cfg(test)]
mod tests {
    use neonvm_types::{Bytes, MilliCpu};

    use super::*;

    #[test]
    fn whole_units_are_numbers_and_others_are_spelt_out() {
        let unit = Resources::new(MilliCpu::new(250), Bytes::gib(1));
        assert_eq!(size(Some(unit.saturating_mul(11)), unit, false), "11");
        assert_eq!(size(Some(unit.saturating_mul(11)), unit, true), "2.75/11Gi");
        assert_eq!(size(Some(Resources::new(MilliCpu::new(500), Bytes::gib(1))), unit, false), "0.50/1Gi");
        assert_eq!(
            (size(None, unit, false), size(Some(unit), Resources::default(), false)),
            ("-".into(), "0.25/1Gi".into())
        );
    }
}
