//! `config set`

use crate::args::config::Set;
use crate::error::Result;
use crate::report::Report;
use crate::settings::Settings;

/// Writes one setting.
pub(crate) fn run(settings: &Settings, args: &Set) -> Result<Report> {
    let mut settings = settings.clone();
    settings.store(&args.key, &args.value)?;
    Ok(Report::text(String::new()).note(format!(
        "{} is {:?} in {}",
        args.key,
        args.value,
        settings.path().display()
    )))
}
