//! Values of flags.

use std::time::Duration;

use crate::error::{Code, Error, Result};

/// The duration that a flag gives, such as `30s`.
///
/// # Errors
///
/// [`Code::Usage`], which names the flag, if the text is not a duration.
pub(in crate::commands) fn duration(flag: &str, text: &str) -> Result<Duration> {
    crate::settings::duration(text).ok_or_else(|| {
        Error::new(Code::Usage, format!("--{flag}: {text:?} is not a duration"))
            .hint("use a duration such as 500ms, 30s or 5m")
    })
}
