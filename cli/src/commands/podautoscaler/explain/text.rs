//! An account in words, in lines of at most 80 columns: metric, window, recommendation, constraint, result.

use crate::commands::resource::name_of;
use neonvm_api::pod_autoscaler::{CurrentMetric, ExplanationStep, ScalingMode, ScalingStrategy};

use super::super::level;
use super::super::show::{self, Word};
use super::Account;

/// Most columns of a line.
const WIDTH: usize = 80;
/// Columns before the text of a line.
const INDENT: usize = 18;

pub(super) struct Section {
    pub(super) title: String,
    pub(super) lines: Vec<(&'static str, String)>,
}

/// A text after its key, broken at spaces, with the text's lines below each other.
fn wrapped(key: &str, text: &str) -> String {
    let mut lines = vec![format!("  {key:<width$}", width = INDENT - 2)];
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() > WIDTH);
        if full && !is_empty {
            lines.push(" ".repeat(INDENT));
            is_empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

impl Account<'_> {
    pub(super) fn text(&self) -> String {
        let mut sections = vec![self.heading()];
        if self.object.spec.scaling_strategy == ScalingStrategy::Hpa && self.word != Word::New {
            sections.push(self.through_kubernetes());
        }
        let metrics = self.status.current_metrics.iter().enumerate();
        sections.extend(metrics.map(|(index, metric)| self.metric(index, metric)));
        sections.extend(self.decision());
        sections.extend(self.change());
        let shown = sections.iter().map(|section| {
            let lines = section.lines.iter().filter(|(_, text)| !text.is_empty());
            let lines: Vec<String> = lines.map(|(key, text)| wrapped(key, text)).collect();
            format!("{}\n{}", section.title, lines.join("\n"))
        });
        shown.map(|text| text.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn heading(&self) -> Section {
        let (object, spec, status) = (self.object, &self.object.spec, &self.status);
        let mode = if spec.mode == Some(ScalingMode::Recommend) { ", recommendation only" } else { "" };
        let windows = self.settings.as_ref().map(|settings| {
            let panic = if settings.strategy == ScalingStrategy::Kpa {
                format!(" and {} s", settings.panic_window)
            } else {
                String::new()
            };
            format!(", windows of {} s{panic}, every {} s", settings.stable_window, settings.sync_period)
                .replace("windows of", if panic.is_empty() { "window of" } else { "windows of" })
        });
        let windows = windows.filter(|_| spec.scaling_strategy != ScalingStrategy::Hpa).unwrap_or_default();
        let strategy = show::strategy(spec.scaling_strategy);
        let there = if self.word == Word::New {
            String::new()
        } else if status.desired_scale == status.actual_scale {
            show::replica(status.actual_scale)
        } else {
            format!("{}, {} desired", show::replica(status.actual_scale), status.desired_scale)
        };
        Section {
            title: format!("podautoscaler/{} scales {}", name_of(object), show::target(object)),
            lines: vec![
                ("replicas", there),
                ("status", self.standing()),
                ("rules", format!("{strategy}{mode}{windows}")),
                ("failure", self.failure()),
            ],
        }
    }

    fn standing(&self) -> String {
        let kind = match self.word {
            Word::Blind => "MetricsAvailable",
            Word::Failed | Word::Paused => "AbleToScale",
            Word::Invalid => "ValidSpec",
            Word::Conflict => "MultiPodAutoscalerConflict",
            Word::Limited => "ScalingLimited",
            Word::Scaling | Word::Disabled => "ScalingActive",
            Word::Deleting | Word::New | Word::Recommend | Word::Ready => "",
        };
        let lasting = show::lasting(show::condition(self.object, kind));
        match show::message(self.object) {
            message if message.is_empty() => format!("{}{lasting}", self.word.text()),
            message => format!("{}{lasting}: {message}", self.word.text()),
        }
    }

    fn failure(&self) -> String {
        if self.word != Word::Failed {
            return String::new();
        }
        let failure = self.status.last_failure.as_ref();
        failure.map_or_else(String::new, |failure| {
            let times = if failure.count == 1 {
                String::new()
            } else {
                format!(", {} times in a row", failure.count)
            };
            format!("{}{times}", failure.reason)
        })
    }

    fn through_kubernetes(&self) -> Section {
        let name = neonvm_core_pod_autoscaler::hpa_object::name(name_of(self.object));
        let described = |kind: &str| {
            let found = show::condition(self.object, kind);
            found.map_or_else(String::new, |found| match found.message.as_str() {
                "" => format!("{} ({})", found.status, found.reason),
                message => format!("{message} ({})", found.reason),
            })
        };
        Section {
            title: "decided by Kubernetes".to_owned(),
            lines: vec![
                ("metric", described("MetricsAvailable")),
                ("constraint", described("ScalingLimited")),
                ("see", format!("kubectl describe hpa {name}")),
            ],
        }
    }

    /// The readings, the results of their windows, the replicas they call for.
    fn metric(&self, index: usize, metric: &CurrentMetric) -> Section {
        let (current, target) = show::reading(metric, self.status.actual_scale);
        let of_pods = metric.pods.as_ref().map(|pods| format!(" of {pods} pods")).unwrap_or_default();
        let each = metric.target.average_value.is_some();
        let read = match current {
            Some(value) => {
                let share = if each { " per pod" } else { "" };
                let whole = metric.current.as_ref().and_then(|current| current.value.as_ref());
                let whole = whole.filter(|_| each).map(|whole| format!("; {whole} in total"));
                format!("{value}{share}{of_pods}, target {target}{}", whole.unwrap_or_default())
            }
            None => {
                let lasting = show::lasting(show::condition(self.object, "MetricsAvailable"));
                let why = if metric.error.is_empty() { "not read yet" } else { metric.error.as_str() };
                format!("no value{lasting}, target {target}: {why}")
            }
        };
        let seconds = |stable: bool| {
            let settings = self.settings.as_ref();
            settings.map_or(0, |settings| if stable { settings.stable_window } else { settings.panic_window })
        };
        let mut windows = Vec::new();
        if let Some(stable) = &metric.stable {
            windows.push(format!("load {stable} over {} s", seconds(true)));
        }
        if let Some(panic) = &metric.panic {
            windows.push(format!("{panic} over {} s", seconds(false)));
        }
        let partial = level::pods(metric).filter(|(sampled, ready)| sampled < ready);
        if let Some((sampled, ready)) = partial {
            windows.push(format!("pods without a value: {}", ready.saturating_sub(sampled)));
        }
        Section {
            title: format!("{} ({})", metric.name, metric.kind),
            lines: vec![
                ("metric", read),
                ("window", windows.join(", ")),
                ("recommendation", self.asked(index, metric)),
            ],
        }
    }

    fn asked(&self, index: usize, metric: &CurrentMetric) -> String {
        // Both lists are in the order of the spec; two metrics may have one name.
        let mut steps = self.status.explanation.iter().filter(|step| step.step == "Metric");
        let step = steps.nth(index).filter(|step| step.metric == metric.name);
        let detail = step.map(|step| {
            // The readings are above.
            let parts = step.message.split("; ").filter(|part| {
                !["value ", "whole load ", "no value"].iter().any(|start| part.starts_with(start))
            });
            parts.collect::<Vec<_>>().join("; ")
        });
        match (metric.desired_replicas, detail.filter(|text| !text.is_empty())) {
            (None, _) => "none: the metric adds no replicas, and no replicas are removed while it is missing"
                .to_owned(),
            (Some(count), None) => show::replica(count),
            (Some(count), Some(detail)) => format!("{}: {detail}", show::replica(count)),
        }
    }

    fn decision(&self) -> Option<Section> {
        let steps: Vec<&ExplanationStep> =
            self.status.explanation.iter().filter(|step| step.step != "Metric").collect();
        if steps.is_empty() {
            return None;
        }
        let line = |step: &ExplanationStep| {
            let key = match step.step.as_str() {
                "Observed" => "observed",
                "Result" => "result",
                _ => "constraint",
            };
            let text = match step.step.as_str() {
                "Observed" | "Result" => format!("{}: {}", step.replicas, step.message),
                other => format!("{} after {}: {}", step.replicas, other.to_lowercase(), step.message),
            };
            (key, text)
        };
        let title = if self.is_current() { "decision" } else { "last decision, before that" };
        Some(Section { title: title.to_owned(), lines: steps.into_iter().map(line).collect() })
    }
}
