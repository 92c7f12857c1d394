//! `podautoscaler list`, `podautoscaler get`

use neonvm_api::PodAutoscaler;

use crate::args::podautoscaler::{Get, List};
use crate::commands::resource::list;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Lists the pod autoscalers of one namespace, or of all.
pub(in crate::commands) fn list(settings: &Settings, args: &List) -> Result<Report> {
    list::list::<PodAutoscaler>(settings, &args.list, |_| true, |found| found)
}

/// Shows pod autoscalers by name.
pub(in crate::commands) fn get(settings: &Settings, args: &Get) -> Result<Report> {
    list::get::<PodAutoscaler>(settings, &args.names, args.watch)
}
