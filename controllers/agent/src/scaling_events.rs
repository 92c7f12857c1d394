//! Events about scaling, for billing and analysis.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::jiff;
use neonvm_core_vertical_scaling::agent::action::ScalingEvent;
use neonvm_types::NamespacedName;
use serde::Serialize;

use crate::config::ScalingEvents as Config;
use crate::exporter::Exporter;
use crate::metrics::Metrics;

/// An event on the wire; amounts are thousandths of a billing unit, parts are billing units.
#[derive(Debug, Serialize)]
struct Wire<'a> {
    timestamp: String,
    region: &'a str,
    endpoint_id: &'a str,
    kind: &'static str,
    current_cu: i64,
    target_cu: i64,
    #[serde(rename = "goalComponents", skip_serializing_if = "Option::is_none")]
    goal_components: Option<GoalParts>,
}

#[derive(Debug, Serialize)]
struct GoalParts {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mem: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lfc: Option<f64>,
}

/// What makes events of what cores report. Without a configuration nothing is made.
#[derive(Debug, Default)]
pub(crate) struct ScalingEvents {
    config: Option<(Config, Vec<Exporter>)>,
    /// Endpoints by VM, as the fleet reports them.
    endpoints: Mutex<BTreeMap<NamespacedName, String>>,
    metrics: Arc<Metrics>,
}

impl ScalingEvents {
    pub(crate) fn new(config: Option<Config>, exporters: Vec<Exporter>, metrics: Arc<Metrics>) -> Self {
        Self { config: config.map(|config| (config, exporters)), endpoints: Mutex::default(), metrics }
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The endpoint of a VM; none forgets it.
    pub(crate) fn endpoint(&self, vm: &NamespacedName, endpoint: Option<&str>) {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        match endpoint {
            Some(endpoint) => drop(endpoints.insert(vm.clone(), endpoint.to_owned())),
            None => drop(endpoints.remove(vm)),
        }
    }

    /// Sends the events that a core reports for a VM.
    pub(crate) fn send(&self, vm: &NamespacedName, events: &[ScalingEvent]) {
        if events.is_empty() {
            return;
        }
        let Some((config, exporters)) = &self.config else { return };
        let endpoint = {
            let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
            endpoints.get(vm).cloned().unwrap_or_default()
        };
        for event in events {
            let wire = wire(config, &endpoint, event);
            self.metrics.scaling_event(wire.kind);
            let Ok(line) = serde_json::to_string(&wire) else { continue };
            for exporter in exporters {
                if !exporter.try_send(line.clone()) {
                    tracing::warn!(%vm, "a scaling event is lost: its queue is full");
                }
            }
        }
    }
}

fn wire<'a>(config: &'a Config, endpoint: &'a str, event: &ScalingEvent) -> Wire<'a> {
    let factor = config.cu_multiplier;
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    let milli = |units: u32| (1000.0 * f64::from(units) * factor).round() as i64;
    let timestamp = jiff::Timestamp::now().to_string();
    let base = |kind, current, target, goal_components| Wire {
        timestamp,
        region: &config.region_name,
        endpoint_id: endpoint,
        kind,
        current_cu: milli(current),
        target_cu: milli(target),
        goal_components,
    };
    match *event {
        ScalingEvent::Actual { current, target } => base("actual", current, target, None),
        ScalingEvent::Hypothetical { current, target, cpu, mem, lfc } => {
            let part = |value: Option<f64>| value.map(|value| value * factor);
            let parts = GoalParts { cpu: part(cpu), mem: part(mem), lfc: part(lfc) };
            base("hypothetical", current, target, Some(parts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_as_specified() {
        let config = Config {
            cu_multiplier: 0.25,
            rereport_threshold: 0.25,
            region_name: "r".into(),
            clients: crate::config::Clients::default(),
        };
        let text = |event| {
            let mut wire = wire(&config, "ep-x", &event);
            wire.timestamp = "2024-07-01T12:00:00.5Z".into();
            serde_json::to_string(&wire).unwrap()
        };
        assert_eq!(
            text(ScalingEvent::Actual { current: 1, target: 2 }),
            r#"{"timestamp":"2024-07-01T12:00:00.5Z","region":"r","endpoint_id":"ep-x","kind":"actual","current_cu":250,"target_cu":500}"#
        );
        let parts =
            ScalingEvent::Hypothetical { current: 1, target: 2, cpu: Some(2.4), mem: Some(1.0), lfc: None };
        assert!(
            text(parts).ends_with(r#""kind":"hypothetical","current_cu":250,"target_cu":500,"goalComponents":{"cpu":0.6,"mem":0.25}}"#)
        );
    }
}
