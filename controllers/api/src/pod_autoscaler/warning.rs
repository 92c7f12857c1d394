//! Warnings for the author of a `PodAutoscaler` that is accepted.

use std::collections::BTreeMap;

use super::{MetricSource, PodAutoscaler, ScalingStrategy, Tuning, annotation};
use crate::{FieldError, field_error::Faults};

/// Old names, and what has no effect; in the order of the annotations, then of the spec.
#[must_use]
pub fn warnings(object: &PodAutoscaler) -> Vec<FieldError> {
    let mut all = Faults::default();
    let spec = &object.spec;
    let none = BTreeMap::new();
    let parsed = Tuning::parse(object.metadata.annotations.as_ref().unwrap_or(&none));
    let (tuning, found) = parsed.unwrap_or_default();
    found.into_iter().for_each(|warning| all.push(warning.path, warning.message));
    let zero = spec.min_replicas == Some(0) || tuning.scale_to_zero == Some(true);
    let field = format!("metadata.annotations[{}]", annotation::SCALE_TO_ZERO);
    all.require(
        tuning.scale_to_zero != Some(true) || spec.min_replicas.is_none_or(|min| min == 0),
        field,
        "has no effect because minReplicas is above 0; set minReplicas to 0",
    );
    if zero && spec.scaling_strategy == ScalingStrategy::Hpa {
        all.push("spec.minReplicas", "with strategy HPA the smallest number of replicas is 1");
    } else if zero && !spec.metrics_sources.iter().any(MetricSource::is_external) {
        let text = "no metric can be read when there are no pods, so nothing raises it from 0; add an external metric";
        all.push("spec.metricsSources", text);
    }
    all.finish()
}
