//! `config unset`

use crate::args::config::Unset;
use crate::error::Result;
use crate::report::Report;
use crate::settings::{Origin, Settings};

/// Removes one setting.
pub(crate) fn run(settings: &Settings, args: &Unset) -> Result<Report> {
    let mut settings = settings.clone();
    let path = settings.path().display().to_string();
    if !settings.remove(&args.key)? {
        return Ok(Report::text(String::new()).note(format!("{} is not in {path}", args.key)));
    }
    let report = Report::text(String::new()).note(format!("{} was removed from {path}", args.key));
    Ok(match settings.find(&args.key)? {
        (value, Origin::Environment(variable)) => {
            report.note(format!("{variable} still sets it to {value:?}"))
        }
        _ => report,
    })
}
