//! Admission of custom kinds inside the server: what a plug-in gets and answers.

use serde_json::Value;

use crate::context::User;
use crate::field::FieldError;

/// The result of a plug-in for custom kinds on an object, which the plug-in may have changed.
#[derive(Clone, Debug, Default)]
pub struct PluginVerdict {
    /// Why this user may not write it; the object is refused with a 403.
    pub forbidden: Option<String>,
    /// Faults; the object is refused if there are any.
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
}

/// A custom object that is written, with its context.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Labels of its namespace, an object of strings; null if it is in none.
    pub namespace_labels: &'a Value,
    pub old: Option<&'a Value>,
    pub user: &'a User,
}

/// Admission of custom kinds inside the server; it may change the object.
pub type Plugin = fn(Written<'_>, &mut Value) -> PluginVerdict;
