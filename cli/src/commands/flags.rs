//! Values of flags.

use std::time::Duration;

use crate::error::{Code, Error, Result};

/// The duration that a flag gives, such as `30s`.
///
/// # Errors
///
/// [`Code::Usage`], which names the flag, if the text is not a duration.
pub(crate) fn duration(flag: &str, text: &str) -> Result<Duration> {
    crate::settings::duration(text).ok_or_else(|| {
        Error::new(Code::Usage, format!("--{flag}: {text:?} is not a duration"))
            .hint("use a duration such as 500ms, 30s or 5m")
    })
}

/// The whole seconds that a flag gives, such as `30s`.
///
/// # Errors
///
/// As [`duration`], and if it has a fraction of a second, which nothing keeps.
pub(crate) fn seconds(flag: &str, text: &str) -> Result<u64> {
    let duration = duration(flag, text)?;
    if duration.subsec_nanos() == 0 {
        return Ok(duration.as_secs());
    }
    Err(Error::new(Code::Usage, format!("--{flag}: {text:?} has a fraction of a second"))
        .hint("it counts in whole seconds, such as 1s or 30s"))
}
