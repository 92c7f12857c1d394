//! `vm migrate --dry-run`: where the VM would go, asked of the scheduler.

use neonvm_types::scheduler_inspect::{WhatIf, WhatIfAnswer};
use serde_json::json;

use crate::args::vm::Migrate;
use crate::commands::resource::client::NamespaceClient;
use crate::commands::services::Services;
use crate::error::{Code, Result};
use crate::report::{API_VERSION, Document, Report, left};

/// Each node with its verdict; exit code 5 if there is none to go to.
pub(super) async fn explain(client: &NamespaceClient, args: &Migrate) -> Result<Report> {
    let services = Services::open(&client.connection, &args.system_namespace).await?;
    let question = WhatIf {
        namespace: client.namespace.clone(),
        vm: args.name.clone(),
        leave: true,
        to: args.to.clone(),
        avoid: args.avoid.clone(),
        ..WhatIf::default()
    };
    Ok(report(&args.name, &services.what_if(&question).await?))
}

fn report(name: &str, answer: &WhatIfAnswer) -> Report {
    let verdict = |chosen: bool, fits: bool| match (chosen, fits) {
        (true, _) => "target",
        (false, true) => "fits",
        (false, false) => "no",
    };
    let rows: Vec<Vec<String>> = answer
        .targets
        .iter()
        .map(|target| {
            vec![target.node.clone(), verdict(target.chosen, target.fits).to_owned(), target.why.clone()]
        })
        .collect();
    let chosen = answer.targets.iter().find(|target| target.chosen);
    let mut report = Report::document(Document {
        value: json!({ "apiVersion": API_VERSION, "kind": "MigrationPlan", "vm": name, "why": answer.why,
            "target": chosen.map(|target| &target.node), "nodes": answer.targets }),
        names: chosen.iter().map(|target| format!("node/{}", target.node)).collect(),
        text: None,
        columns: vec![left("NODE"), left("VERDICT"), left("WHY")],
        rows,
    })
    .note(format!("{}; nothing was changed", answer.why));
    if chosen.is_none() {
        report.code = Code::Conflict.number();
    }
    report
}
