//! `debug node-pressure`

mod view;

use std::time::Duration;

use neonvm_types::Resources;
use neonvm_types::scheduler_inspect::{Inspect, NodeView, WhatIf, WhatIfAnswer};
use serde_json::json;
use tokio::sync::mpsc::channel;

use crate::args::cluster::NodePressure as Args;
use crate::commands::services::Services;
use crate::commands::vm::size::{self, UNIT_CPU, UNIT_MEMORY};
use crate::connect::{Connection, block_on};
use crate::error::{Code, Error, Result};
use crate::report::{API_VERSION, Body, Document, Report, left, right};
use crate::settings::Settings;

/// Time between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(1);

/// What is asked of the scheduler beside its state.
struct Question {
    vm: String,
    text: String,
    question: WhatIf,
}

struct PressureReport {
    inspect: Inspect,
    answer: Option<(String, WhatIfAnswer)>,
}

/// Shows nodes once, or whenever they changed.
pub(crate) fn run(settings: &Settings, args: &Args) -> Result<Report> {
    if let Some(watermark) = args.watermark.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        return Err(Error::new(Code::Usage, format!("--watermark: {watermark} is not valid"))
            .hint("use a fraction of the node, above 0 and at most 1, such as 0.8"));
    }
    let question = args.what_if.as_deref().map(parse).transpose()?;
    if args.watch {
        return watch(settings, args);
    }
    let seen = block_on(look(settings, args, question))?;
    Ok(report(&seen, args))
}

/// `NAME=12cu` or `NAME=CPU,MEMORY`.
fn parse(text: &str) -> Result<Question> {
    let bad = || {
        Error::new(Code::Usage, format!("--what-if: {text:?} is not valid"))
            .hint("use pg=12cu (compute units) or pg=2.5,8Gi (CPU and memory)")
    };
    let (vm, wanted) = text.split_once('=').filter(|(vm, _)| !vm.is_empty()).ok_or_else(bad)?;
    let size = match wanted.strip_suffix("cu") {
        Some(units) => {
            let units = size::units("what-if", units)?;
            Resources::new(UNIT_CPU.saturating_mul(units), UNIT_MEMORY.saturating_mul(u32::from(units)))
        }
        None => {
            let (cpu, memory) = wanted.split_once(',').ok_or_else(bad)?;
            Resources::new(size::cpu("what-if", cpu)?, size::memory("what-if", memory)?)
        }
    };
    let question = WhatIf { vm: vm.to_owned(), size: Some(size), ..WhatIf::default() };
    Ok(Question { vm: vm.to_owned(), text: text.to_owned(), question })
}

async fn look(settings: &Settings, args: &Args, question: Option<Question>) -> Result<PressureReport> {
    let connection = Connection::open(settings).await?;
    let services = Services::open(&connection, &args.system_namespace).await?;
    let mut inspect = services.scheduler_inspect().await?;
    let mut answer = None;
    if let Some(mut asked) = question {
        let namespace =
            settings.place().namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
        asked.question.namespace = namespace;
        asked.question.watermark = args.watermark;
        asked.question.size =
            asked.question.size.map(|size| in_units_of(&inspect, &asked.vm, size, &asked.text));
        answer = Some((asked.text, services.what_if(&asked.question).await?));
    }
    if let Some(watermark) = args.watermark {
        let question = WhatIf { watermark: Some(watermark), ..WhatIf::default() };
        inspect.nodes = services.what_if(&question).await?.nodes;
        inspect.settings.cpu_watermark = watermark;
        inspect.settings.mem_watermark = watermark;
    }
    for name in &args.nodes {
        if !inspect.nodes.iter().any(|node| node.name == *name) {
            let known: Vec<&str> = inspect.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(Error::new(Code::NotFound, format!("the scheduler has no node {name}")).hint(
                format!("its nodes: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") }),
            ));
        }
    }
    if !args.nodes.is_empty() {
        inspect.nodes.retain(|node| args.nodes.contains(&node.name));
    }
    Ok(PressureReport { inspect, answer })
}

/// `12cu` means compute units of that very VM, if its agent has named them.
fn in_units_of(inspect: &Inspect, vm: &str, size: Resources, text: &str) -> Resources {
    let Some(units) =
        text.strip_suffix("cu").and_then(|_| u16::try_from(size.vcpus.milli() / UNIT_CPU.milli()).ok())
    else {
        return size;
    };
    let pods = inspect.nodes.iter().flat_map(|node| &node.pods);
    let own = pods.filter(|pod| pod.vm.as_deref() == Some(vm)).find_map(|pod| pod.compute_unit);
    let unit = own.unwrap_or(inspect.settings.compute_unit);
    if unit == Resources::default() { size } else { unit.saturating_mul(units) }
}

fn report(seen: &PressureReport, args: &Args) -> Report {
    let mut report = Report::document(document(seen, args));
    if args.check && seen.inspect.nodes.iter().any(under_pressure) {
        report.code = Code::Unhealthy.number();
    }
    report
}

fn under_pressure(node: &NodeView) -> bool {
    [&node.cpu, &node.mem].iter().any(|view| view.logical_pressure() > 0 || view.capacity_pressure > 0)
}

fn document(seen: &PressureReport, args: &Args) -> Document {
    let mut columns = ["NODE", "RESOURCE"].map(left).to_vec();
    columns.extend(
        ["CAPACITY", "RESERVED", "BUFFER", "WATERMARK", "LOGICAL", "CAPACITY-PRESSURE", "ACCOUNTED-FOR"]
            .map(right),
    );
    let nodes = &seen.inspect.nodes;
    let value = json!({
        "apiVersion": API_VERSION, "kind": "NodePressureList", "items": nodes,
        "settings": seen.inspect.settings,
        "whatIf": seen.answer.as_ref().map(|(question, answer)| json!({ "question": question, "answer": answer })),
    });
    Document {
        value,
        names: nodes.iter().map(|node| format!("node/{}", node.name)).collect(),
        text: Some(view::in_words(&seen.inspect, seen.answer.as_ref(), args.explain)),
        columns,
        rows: nodes.iter().flat_map(view::rows).collect(),
    }
}

/// A new text whenever anything changed, until the output is closed or an error occurs.
fn watch(settings: &Settings, args: &Args) -> Result<Report> {
    let once = |settings: &Settings, args: &Args| -> Result<String> {
        let question = args.what_if.as_deref().map(parse).transpose()?;
        let seen = block_on(look(settings, args, question))?;
        Ok(view::in_words(&seen.inspect, seen.answer.as_ref(), args.explain))
    };
    // What fails at once is an error as elsewhere.
    let first = once(settings, args)?;
    let (frames, mut shown) = channel::<String>(1);
    let settings = settings.clone();
    let args = Args {
        nodes: args.nodes.clone(),
        what_if: args.what_if.clone(),
        system_namespace: args.system_namespace.clone(),
        ..*args
    };
    let mut last = first.clone();
    std::thread::spawn(move || {
        while !frames.is_closed() {
            std::thread::sleep(LOOK);
            // The services may be restarting: what is shown stays until they answer again.
            let Ok(text) = once(&settings, &args) else { continue };
            if text != last {
                last.clone_from(&text);
                if frames.blocking_send(format!("\n{text}")).is_err() {
                    return;
                }
            }
        }
    });
    let lines = std::iter::once(first).chain(std::iter::from_fn(move || shown.blocking_recv()));
    Ok(Report { body: Body::Lines(Box::new(lines)), ..Report::text(String::new()) })
}

#[cfg(test)]
mod tests {
    use neonvm_types::{Bytes, MilliCpu};

    use super::*;

    #[test]
    fn questions_are_units_or_amounts() {
        let size = |text| parse(text).map(|question| question.question.size);
        assert_eq!(size("pg=12cu").unwrap(), Some(Resources::new(MilliCpu::new(3000), Bytes::gib(12))));
        assert_eq!(size("pg=2.5,8Gi").unwrap(), Some(Resources::new(MilliCpu::new(2500), Bytes::gib(8))));
        for text in ["pg", "=1cu", "pg=", "pg=0cu", "pg=1", "pg=1,", "pg=xcu"] {
            let error = parse(text).err().unwrap();
            assert_eq!(error.code, Code::Usage, "{text}");
            assert!(error.hint.is_some(), "{text}");
        }
    }

    #[test]
    fn units_are_those_of_the_machine() {
        let unit = Resources::new(MilliCpu::new(250), Bytes::mib(256));
        let mut inspect = Inspect::default();
        inspect.settings.compute_unit = unit;
        let asked = parse("pg=4cu").unwrap();
        let size = in_units_of(&inspect, "pg", asked.question.size.unwrap(), "pg=4cu");
        assert_eq!(size, unit.saturating_mul(4));
        let plain = parse("pg=1,4Gi").unwrap().question.size.unwrap();
        assert_eq!(in_units_of(&inspect, "pg", plain, "pg=1,4Gi"), plain);
    }
}
