//! What is wrong with an object, and where.

use std::fmt::{self, Display};

/// One fault: the path of a field and a message with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.guest.cpus.use`.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects faults in the order they are found.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldError>);

impl Faults {
    pub(crate) fn push(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldError { path: path.into(), message: message.into() });
    }

    /// Adds a fault unless `holds`.
    pub(crate) fn require(&mut self, holds: bool, path: impl Into<String>, message: impl Into<String>) {
        if !holds {
            self.push(path, message);
        }
    }

    pub(crate) fn finish(self) -> Vec<FieldError> {
        self.0
    }
}
