//! The table of pod autoscalers.

use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingMode;

use super::name_of;
use super::show::{self, NONE};
use crate::report::{Column, Document, left, wide};

/// The columns.
pub(super) fn columns(namespaces: bool) -> Vec<Column> {
    let mut columns = vec![
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
    ];
    if namespaces {
        columns.insert(0, left("NAMESPACE"));
    }
    columns
}

/// The cells of a pod autoscaler.
pub(super) fn row(object: &PodAutoscaler, namespaces: bool) -> Vec<String> {
    let (spec, status) = (&object.spec, show::status(object));
    let or_none = |text: String| if text.is_empty() { NONE.to_owned() } else { text };
    let bounds = status.scheduled_bounds.as_ref();
    let last = status.last_scale_time.as_ref().map(|time| crate::render::age(time.0));
    let mut cells = vec![
        name_of(object).to_owned(),
        show::target(object),
        show::strategy(spec.scaling_strategy).to_owned(),
        show::replicas(object),
        show::range(object),
        show::metrics(&status),
        show::Word::of(object).text().to_owned(),
        last.unwrap_or_else(|| NONE.to_owned()),
        crate::render::age_of(&object.metadata).unwrap_or_else(|| NONE.to_owned()),
        if spec.mode == Some(ScalingMode::Recommend) { "Recommend" } else { "Auto" }.to_owned(),
        or_none(status.recommendation.map(|count| count.to_string()).unwrap_or_default()),
        or_none(bounds.map(|bounds| bounds.active_schedule.clone()).unwrap_or_default()),
        or_none(show::message(object)),
    ];
    if namespaces {
        cells.insert(0, object.metadata.namespace.clone().unwrap_or_default());
    }
    cells
}

/// The objects as the API has them.
pub(super) fn document(objects: &[PodAutoscaler], namespaces: bool, list: bool) -> Document {
    let of = |object: &PodAutoscaler| (name_of(object).to_owned(), row(object, namespaces));
    Document::of_objects("podautoscaler", objects, list, columns(namespaces), of)
}
