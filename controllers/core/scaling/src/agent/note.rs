//! Decisions with what they were made from.

use std::{fmt, time::Duration};

use serde::Serialize;

/// One decision: what came in, what was done about it, and which rule made the difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// When.
    pub at: Duration,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "")
    }
}
