//! Errors about one field of an object, worded as a Kubernetes API server words them.

use serde::Serialize;

/// Why a field was refused; the wire form is the `reason` of a `StatusCause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldReason {
    Required,
    Invalid,
    Duplicate,
    Forbidden,
    NotFound,
    NotSupported,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl FieldReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One refused field. `message` is complete (`Invalid value: "x": must be …`), without the field path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub reason: FieldReason,
    /// Path as the real server prints it: `spec.containers[0].name`, `metadata.labels[a/b]`.
    pub field: String,
    /// The text after `<field>: `.
    pub message: String,
}

impl FieldError {
    /// `<label>: <value>: <detail>`, with the value as compact JSON.
    pub fn with_value(
        reason: FieldReason,
        field: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        detail: &str,
    ) -> Self {
        let mut message = format!("{}: {}", reason.label(), serde_json::to_string(value).unwrap_or_default());
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self { reason, field: field.into(), message }
    }

    /// `<label>: <detail>`, or the bare label when there is no detail.
    pub fn bare(reason: FieldReason, field: impl Into<String>, detail: &str) -> Self {
        let mut message = reason.label().to_owned();
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self { reason, field: field.into(), message }
    }

    pub fn invalid(field: impl Into<String>, value: &(impl Serialize + ?Sized), detail: &str) -> Self {
        Self::with_value(FieldReason::Invalid, field, value, detail)
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::bare(FieldReason::Required, field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::bare(FieldReason::Forbidden, field, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &(impl Serialize + ?Sized)) -> Self {
        Self::with_value(FieldReason::Duplicate, field, value, "")
    }

    /// `Too long: may not be more than <max> bytes`.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        Self::bare(FieldReason::TooLong, field, &format!("may not be more than {max} bytes"))
    }

    /// `Too many: <actual>: must have at most <max> items`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let detail = format!("{actual}: must have at most {max} items");
        Self::bare(FieldReason::TooMany, field, &detail)
    }

    /// `Unsupported value: <value>: supported values: "A", "B"`.
    pub fn not_supported(
        field: impl Into<String>,
        value: &(impl Serialize + ?Sized),
        supported: &[&str],
    ) -> Self {
        let list: Vec<String> = supported.iter().map(|item| format!("{item:?}")).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::with_value(FieldReason::NotSupported, field, value, &detail)
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
