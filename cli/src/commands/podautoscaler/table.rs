//! The table of pod autoscalers: `podautoscaler list` and `podautoscaler get`.

use neonvm_api::PodAutoscaler;
use neonvm_api::pod_autoscaler::ScalingMode;

use super::show;
use crate::args::podautoscaler::{Get, List};
use crate::commands::resource::{NONE, Resource, age_cell, list, name_of, or_none};
use crate::error::Result;
use crate::report::{Column, Report, left, wide};
use crate::settings::Settings;

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

/// Lists the pod autoscalers of one namespace, or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
    list::list::<PodAutoscaler>(settings, &args.list, |_| true, |found| found)
}

/// Shows pod autoscalers by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<PodAutoscaler>(settings, &args.names, args.watch)
}
