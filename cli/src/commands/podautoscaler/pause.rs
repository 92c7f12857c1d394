//! `podautoscaler pause`, `podautoscaler resume`

use crate::commands::resource::{document, name_of};
use kube::api::{Patch, PatchParams};
use neonvm_api::PodAutoscaler;
use serde_json::json;

use super::show;
use crate::args::podautoscaler::Switch;
use crate::commands::resource::client::NamespaceClient;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{Document, Report};
use crate::settings::Settings;

/// Stops scaling, or scales again. All are looked up before the first is changed.
pub(in crate::commands) fn run(settings: &Settings, args: &Switch, paused: bool) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let found: Vec<PodAutoscaler> = client.find_all(&args.names).await?;
        let (mut shown, mut lines) = (Vec::new(), Vec::new());
        for before in found {
            let name = name_of(&before).to_owned();
            if (before.spec.paused == Some(true)) == paused {
                let word = if paused { "is already paused" } else { "is not paused" };
                lines.push(format!("podautoscaler/{name} {word}"));
                shown.push(before);
                continue;
            }
            let after = match args.dry_run.as_deref() {
                Some("client") => {
                    let mut after = before.clone();
                    after.spec.paused = paused.then_some(true);
                    after
                }
                dry => switch(&client, &before, paused, dry.is_some()).await?,
            };
            lines.push(format!("podautoscaler/{name} {}", outcome(&before, paused)));
            shown.push(after);
        }
        let document = document(&shown);
        let report = Report::document(Document { text: Some(lines.join("\n")), ..document });
        Ok(if args.dry_run.is_some() { report.note("nothing was changed") } else { report })
    })
}

/// Writes the field; resuming removes it, as if it had never been there.
async fn switch(
    client: &NamespaceClient,
    before: &PodAutoscaler,
    paused: bool,
    dry_run: bool,
) -> Result<PodAutoscaler> {
    let name = name_of(before);
    let value = if paused { json!(true) } else { json!(null) };
    let patch = json!({ "metadata": { "uid": before.metadata.uid }, "spec": { "paused": value } });
    let parameters =
        PatchParams { dry_run, field_manager: Some("neonctl".to_owned()), ..PatchParams::default() };
    let attempt = format!("cannot {} pod autoscaler {name}", if paused { "pause" } else { "resume" });
    let (api, patch) = (client.api(), Patch::Merge(&patch));
    client.connection.within(&attempt, api.patch(name, &parameters, &patch)).await
}

/// What it means for the target.
fn outcome(before: &PodAutoscaler, paused: bool) -> String {
    let (target, status) = (show::target(before), show::status(before));
    if paused {
        let kept = if before.status.is_some() {
            format!("keeps its {}", show::replica(status.actual_scale))
        } else {
            "keeps its replicas".to_owned()
        };
        return format!("paused; {target} {kept}");
    }
    match status.recommendation {
        Some(count) if count != status.actual_scale => {
            format!(
                "resumed; last recommendation {}, {target} has {}",
                show::replica(count),
                status.actual_scale
            )
        }
        _ => "resumed".to_owned(),
    }
}
