//! Why something about a pod does not work, in the words of its status.

/// A reason for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Trying again cannot help.
    pub(crate) is_final: bool,
}

impl Problem {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_final: false }
    }

    pub(crate) fn last(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::new(reason, message) }
    }

    pub(crate) fn mount(volume: &str, why: impl std::fmt::Display) -> Self {
        Self::new("FailedMount", format!("volume {volume:?}: {why}"))
    }
}
