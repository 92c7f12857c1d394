//! `scheduler inspect`

use neonvm_types::scheduler_inspect::{Inspect, NodeView, PodView, ResourceView};
use serde_json::json;

use super::agent::size;
use super::services::Services;
use crate::args::cluster::SchedulerInspect as Args;
use crate::connect::{Connection, block_on};
use crate::error::{Code, Error, Result};
use crate::render::bytes;
use crate::report::{API_VERSION, Document, Report, left, right};
use crate::settings::Settings;

pub(super) fn inspect(settings: &Settings, args: &Args) -> Result<Report> {
    block_on(async {
        let connection = Connection::open(settings).await?;
        let services = Services::open(&connection, &args.system_namespace).await?;
        let mut inspect = services.scheduler_inspect().await?;
        choose(&mut inspect, args)?;
        Ok(Report::document(document(&inspect, args)))
    })
}

fn choose(inspect: &mut Inspect, args: &Args) -> Result<()> {
    if let Some(node) = &args.node {
        inspect.nodes.retain(|view| view.name == *node);
        if inspect.nodes.is_empty() {
            return Err(Error::new(Code::NotFound, format!("the scheduler has no node {node}")));
        }
    }
    if let Some(pod) = &args.pod {
        for node in &mut inspect.nodes {
            node.pods.retain(|view| view.pod.name == *pod || view.vm.as_ref() == Some(pod));
        }
        inspect.nodes.retain(|view| !view.pods.is_empty());
        if inspect.nodes.is_empty() {
            let waits = inspect.waiting.iter().find(|waiting| waiting.pod.name == *pod);
            let missing = match waits {
                Some(waiting) => format!("{pod} is not on a node yet: {}", waiting.why),
                None => format!("the scheduler has no pod {pod}"),
            };
            return Err(Error::new(Code::NotFound, missing));
        }
    }
    Ok(())
}

/// CPU in cores with two places.
pub(super) fn cores(milli: u64) -> String {
    format!("{}.{:02}", milli / 1000, milli % 1000 / 10)
}

/// In words, what is special about a node.
pub(super) fn note(node: &NodeView) -> String {
    let mut notes = Vec::new();
    if let Some(closed) = &node.closed {
        notes.push(closed.clone());
    }
    let over = |view: &ResourceView| view.logical_pressure();
    if over(&node.cpu) > 0 {
        notes.push(format!("above cpu watermark by {}", cores(over(&node.cpu))));
    }
    if over(&node.mem) > 0 {
        notes.push(format!("above memory watermark by {}", bytes(over(&node.mem))));
    }
    if node.cpu.capacity_pressure > 0 {
        notes.push(format!("{} CPU requested but not available", cores(node.cpu.capacity_pressure)));
    }
    if node.mem.capacity_pressure > 0 {
        notes.push(format!("{} of memory requested but not available", bytes(node.mem.capacity_pressure)));
    }
    if notes.is_empty() { "-".to_owned() } else { notes.join(", ") }
}

fn document(inspect: &Inspect, args: &Args) -> Document {
    let mut columns = vec![left("NODE")];
    columns.extend(
        ["CPU USED/TOTAL", "WATERMARK", "MEM USED/TOTAL", "WATERMARK", "VMS", "MIGRATING-OUT"].map(right),
    );
    columns.push(left("NOTE"));
    let row = |node: &NodeView| {
        vec![
            node.name.clone(),
            format!("{}/{}", cores(node.cpu.reserved), cores(node.cpu.total)),
            cores(node.cpu.watermark),
            format!("{}/{}", bytes(node.mem.reserved), bytes(node.mem.total)),
            bytes(node.mem.watermark),
            node.pods.iter().filter(|pod| pod.vm.is_some()).count().to_string(),
            node.leaving.len().to_string(),
            note(node),
        ]
    };
    let rows: Vec<Vec<String>> = inspect.nodes.iter().map(row).collect();
    let text = in_words(inspect, args, &crate::render::rows(&columns, &rows));
    let mut value = json!(inspect);
    if let Some(object) = value.as_object_mut() {
        object.insert("apiVersion".into(), json!(API_VERSION));
        object.insert("kind".into(), json!("SchedulerInspect"));
    }
    let names = inspect.nodes.iter().map(|node| format!("node/{}", node.name)).collect();
    Document { value, names, text: Some(text), columns, rows }
}

fn in_words(inspect: &Inspect, args: &Args, table: &str) -> String {
    let last = inspect.last_event_ms.map_or_else(String::new, |ms| {
        #[expect(clippy::cast_precision_loss, reason = "shown with one place")]
        let seconds = ms as f64 / 1000.0;
        format!(", last change {seconds:.1}s ago")
    });
    let state = if inspect.ready { "" } else { " (still listing nodes and pods: permits nothing yet)" };
    let mut text = format!(
        "leader {}{state}, {} node{}{last}, {} pod{} waiting\n{table}",
        inspect.identity,
        inspect.nodes.len(),
        if inspect.nodes.len() == 1 { "" } else { "s" },
        inspect.waiting.len(),
        if inspect.waiting.len() == 1 { "" } else { "s" },
    );
    for waiting in &inspect.waiting {
        text.push_str(&format!("waiting: {}: {}\n", waiting.pod, waiting.why));
    }
    for node in &inspect.nodes {
        for next in &node.next {
            let to =
                next.target.as_ref().map_or_else(|| "nowhere".to_owned(), |target| format!("to {target}"));
            text.push_str(&format!("next: migrate {} from {} {to} - {}\n", next.vm, node.name, next.why));
        }
        if let Some(note) = &node.note {
            text.push_str(&format!("{}: {note}\n", node.name));
        }
    }
    if args.explain || args.pod.is_some() {
        for node in &inspect.nodes {
            text.push_str(&format!("\n{}\n", node.name));
            text.push_str(&pods(&node.pods));
        }
    }
    text.trim_end().to_owned()
}

fn pods(pods: &[PodView]) -> String {
    let mut columns = ["POD", "VM"].map(left).to_vec();
    columns.extend(["RESERVED", "BUFFER", "REQUESTED", "USES", "MISSING"].map(right));
    columns.push(left("NOTE"));
    let row = |pod: &PodView| {
        let unit = pod.compute_unit.unwrap_or_default();
        let show = |resources| size(Some(resources), unit, true);
        let mut notes = pod.problems.clone();
        if !pod.scaled && pod.vm.is_some() {
            notes.push("scaling is off".into());
        }
        if pod.tentative {
            notes.push("being bound".into());
        }
        if pod.migrating {
            notes.push("migrating".into());
        }
        vec![
            pod.pod.to_string(),
            pod.vm.clone().unwrap_or_else(|| "-".to_owned()),
            show(pod.reserved),
            show(pod.buffer),
            pod.requested.map_or_else(|| "-".to_owned(), show),
            show(pod.usage),
            show(pod.capacity_pressure),
            if notes.is_empty() { "-".to_owned() } else { notes.join(", ") },
        ]
    };
    crate::render::rows(&columns, &pods.iter().map(row).collect::<Vec<_>>())
}
