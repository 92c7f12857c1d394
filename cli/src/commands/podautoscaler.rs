//! `podautoscaler`

pub(super) mod describe;
pub(super) mod events;
pub(super) mod explain;
mod level;
mod show;
pub(super) mod wait;

use kube::api::{Patch, PatchParams};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingMode;
use serde_json::json;

use crate::args::ListArgs;
use crate::args::podautoscaler::{Get, Switch};
use crate::commands::resource::{
    NONE, NamespaceClient, Resource, age_cell, document, list, name_of, or_none,
};
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{Column, Document, Report, left, wide};
use crate::settings::Settings;

/// The problem of an object that does not scale its target; `None` if there is none.
pub(super) fn trouble(object: &serde_json::Value) -> Option<String> {
    use show::Word::{Blind, Conflict, Failed, Invalid};
    let object: PodAutoscaler = serde_json::from_value(object.clone()).ok()?;
    let word = show::Word::from_object(&object);
    matches!(word, Invalid | Conflict | Failed | Blind)
        .then(|| format!("{}: {}", word.text(), show::message(&object)))
}

/// Stops scaling, or scales again. All are looked up before the first is changed.
pub(crate) fn run(settings: &Settings, args: &Switch, paused: bool) -> Result<Report> {
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

impl Resource for PodAutoscaler {
    const NOUN: &'static str = "podautoscaler";
    const ONE: &'static str = "pod autoscaler";
    const MANY: &'static str = "pod autoscalers";
    const PREFIX: &'static str = "podautoscaler";
    const CREATE: &'static str = "create one: kubectl apply -f FILE";
    const WIDTHS: &'static [usize] = &[16, 20, 8, 8, 8, 24, 9, 10, 6];

    fn columns() -> Vec<Column> {
        vec![
            left("NAME"),
            left("TARGET"),
            left("STRATEGY"),
            left("REPLICAS"),
            left("RANGE"),
            left("METRIC"),
            left("STATUS"),
            left("LAST SCALE"),
            left("AGE"),
            wide("MODE"),
            wide("RECOMMENDED"),
            wide("SCHEDULE"),
            wide("MESSAGE"),
        ]
    }

    fn cells(&self) -> Vec<String> {
        let (spec, status) = (&self.spec, show::status(self));
        let bounds = status.scheduled_bounds.as_ref();
        let last = status.last_scale_time.as_ref().map(|time| crate::render::age(time.0));
        vec![
            name_of(self).to_owned(),
            show::target(self),
            show::strategy(spec.scaling_strategy).to_owned(),
            show::replicas(self),
            show::range(self),
            show::metrics(&status),
            show::Word::from_object(self).text().to_owned(),
            last.unwrap_or_else(|| NONE.to_owned()),
            age_cell(self),
            if spec.mode == Some(ScalingMode::Recommend) { "Recommend" } else { "Auto" }.to_owned(),
            or_none(&status.recommendation.map(|count| count.to_string()).unwrap_or_default()),
            or_none(&bounds.map(|bounds| bounds.active_schedule.clone()).unwrap_or_default()),
            or_none(&show::message(self)),
        ]
    }
}

pub(crate) fn list(settings: &Settings, args: &ListArgs) -> Result<Report> {
    list::list::<PodAutoscaler>(settings, args, |_| true, |found| found)
}

pub(crate) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<PodAutoscaler>(settings, &args.names, args.watch)
}
