//! The table of pod autoscalers.

use crate::commands::resource::{NONE, Resource, age_cell, name_of, or_none};
use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingMode;

use super::show;
use crate::report::{Column, left, wide};

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
