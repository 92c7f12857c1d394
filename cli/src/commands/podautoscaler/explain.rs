//! `podautoscaler explain`

mod change;
mod text;

use crate::commands::resource::name_of;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::{CurrentMetric, PodAutoscalerStatus};
use neonvm_core_pod_autoscaler::Settings;
use neonvm_core_pod_autoscaler::schedule::Bounds;
use neonvm_core_pod_autoscaler::want::Fleet;
use serde_json::{Value, json};

use super::level::{self, Edge, Unit};
use super::show::{self, Word};
use crate::args::podautoscaler::Explain;
use crate::commands::resource::NamespaceClient;
use crate::commands::watching;
use crate::connect::block_on;
use crate::error::Result;
use crate::report::{API_VERSION, Document, Report, left};
use crate::settings;

pub(crate) fn run(settings: &settings::Settings, args: &Explain) -> Result<Report> {
    let json = if args.watch { Some(watching::Follow::from_settings(settings)?.json) } else { None };
    let object = block_on(async {
        let client = NamespaceClient::open(settings).await?;
        client.find(&args.name).await
    })?;
    if let Some(json) = json {
        return follow(settings, args, json);
    }
    let account = Account::from_object(&object, Timestamp::now());
    let steps = account.status.explanation.iter();
    let row = |step: &neonvm_api::pod_autoscaler::ExplanationStep| {
        let metric = if step.metric.is_empty() { show::NONE.to_owned() } else { step.metric.clone() };
        vec![step.step.clone(), metric, step.replicas.to_string(), step.message.clone()]
    };
    Ok(Report::document(Document {
        value: account.json(),
        names: vec![format!("podautoscaler/{}", name_of(&object))],
        text: Some(account.text()),
        columns: ["STEP", "METRIC", "REPLICAS", "MESSAGE"].map(left).into(),
        rows: steps.map(row).collect(),
    }))
}

fn follow(settings: &settings::Settings, args: &Explain, json: bool) -> Result<Report> {
    let (settings, name) = (settings.clone(), args.name.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let open = async move || Ok(NamespaceClient::open(&settings).await?.api());
    watching::pages(open, config, None, move |object: &PodAutoscaler| {
        let now = Timestamp::now();
        let account = Account::from_object(object, now);
        Some(if json { crate::render::json_line(&account.json()) } else { page(&account.text(), now) })
    })
}

/// A page of those that follow each other: the time, the text, and an empty line at its end.
fn page(text: &str, now: Timestamp) -> String {
    format!("{}\n{text}\n", now.strftime("%Y-%m-%dT%H:%M:%SZ"))
}

/// What a metric would have to be.
pub(super) struct Edges<'a> {
    metric: &'a CurrentMetric,
    unit: Unit,
    up: Option<Edge>,
    down: Option<Edge>,
    /// Load of the panic window; strategy KPA.
    panic: Option<f64>,
}

/// All that an explanation is made of.
pub(super) struct Account<'a> {
    object: &'a PodAutoscaler,
    status: PodAutoscalerStatus,
    word: Word,
    /// `None` if the object is not valid.
    settings: Option<Settings>,
    now: Timestamp,
    fleet: Fleet,
    /// When other bounds come into force, and which.
    next: Option<(Timestamp, Bounds)>,
}

impl<'a> Account<'a> {
    pub(super) fn from_object(object: &'a PodAutoscaler, now: Timestamp) -> Self {
        let status = show::status(object);
        let settings = Settings::from_object(object).ok().map(|(settings, _)| settings);
        let next = settings.as_ref().and_then(|settings| {
            let at = settings.schedules.next_transition(now)?;
            Some((at, settings.bounds(at)))
        });
        let ready = ready(&status).unwrap_or(status.actual_scale);
        let fleet = Fleet { current: status.actual_scale, ready };
        Self { object, word: Word::from_object(object), settings, now, fleet, next, status }
    }

    /// What each metric would have to be for another number of replicas.
    fn edges(&self) -> Vec<Edges<'_>> {
        let Some(settings) = &self.settings else { return Vec::new() };
        let (tolerance, rates) = (settings.tolerance(), settings.rates());
        let panics = settings.strategy == neonvm_api::pod_autoscaler::ScalingStrategy::Kpa;
        let edges = |metric| {
            let target = level::target(metric)?;
            Some(Edges {
                metric,
                unit: Unit::from_metric(metric, self.fleet.current),
                up: level::up(target, self.fleet, tolerance, rates),
                down: level::down(target, self.fleet, tolerance, rates),
                panic: panics.then(|| level::panic(target, self.fleet, settings.tuning.panic_threshold)),
            })
        };
        self.status.current_metrics.iter().filter_map(edges).collect()
    }

    fn json(&self) -> Value {
        let (object, status) = (self.object, &self.status);
        let (min, max) = show::bounds(object);
        let edge = |edge: Option<Edge>| {
            edge.map(
                |edge| json!({ "load": edge.load, "inclusive": edge.inclusive, "replicas": edge.replicas }),
            )
        };
        let metrics: Vec<Value> = self
            .edges()
            .into_iter()
            .map(|found| {
                let mut value = json!(found.metric);
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("moreAbove".to_owned(), json!(edge(found.up)));
                    fields.insert("fewerBelow".to_owned(), json!(edge(found.down)));
                    fields.insert("panicAbove".to_owned(), json!(found.panic));
                }
                value
            })
            .collect();
        let next = self.next.as_ref().map(|(at, bounds)| {
            json!({ "time": at.to_string(), "min": bounds.min, "max": bounds.max, "schedule": bounds.schedule })
        });
        let schedule = status.scheduled_bounds.as_ref().map(|bounds| bounds.active_schedule.as_str());
        json!({ "apiVersion": API_VERSION, "kind": "PodAutoscalerExplanation", "name": name_of(object),
            "namespace": object.metadata.namespace, "target": show::target(object),
            "strategy": show::strategy(object.spec.scaling_strategy), "status": self.word.text(),
            "message": show::message(object),
            "replicas": { "actual": status.actual_scale, "desired": status.desired_scale,
                "recommended": status.recommendation },
            "bounds": { "min": min, "max": max, "schedule": schedule.filter(|name| !name.is_empty()) },
            "nextBounds": next, "metrics": metrics, "steps": status.explanation,
            "forecast": status.forecast, "lastFailure": status.last_failure })
    }
}

/// Pods that were ready when the decision was made: the status has it in the text of a step, or in the numbers of a metric.
fn ready(status: &PodAutoscalerStatus) -> Option<i32> {
    let observed = status.explanation.iter().find(|step| step.step == "Observed");
    let counted = observed.and_then(|step| {
        let mut words = step.message.split([' ', ',', ';']).filter(|word| !word.is_empty());
        let mut last = words.next()?;
        for word in words {
            if word == "ready" {
                return last.parse().ok();
            }
            last = word;
        }
        None
    });
    counted.or_else(|| status.current_metrics.iter().find_map(|metric| Some(level::pods(metric)?.1)))
}

#[cfg(test)]
mod tests;
