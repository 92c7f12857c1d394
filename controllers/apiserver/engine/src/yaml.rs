//! YAML in and out, for bodies and answers in `application/yaml`.

use serde_json::Value;

use crate::status::ApiError;

/// Reads a YAML document as JSON.
///
/// # Errors
/// 400 if it is no YAML.
pub(crate) fn to_json(text: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(text)
        .map_err(|_| ApiError::bad_request("error converting YAML to JSON: the body is not valid UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|error| ApiError::bad_request(format!("error converting YAML to JSON: {error}")))
}

/// Writes JSON as YAML.
///
/// # Errors
/// 500 if the value cannot be written, which would be a defect.
pub(crate) fn from_json(value: &Value) -> Result<String, ApiError> {
    serde_saphyr::to_string(value).map_err(|error| ApiError::internal(format!("cannot write YAML: {error}")))
}
