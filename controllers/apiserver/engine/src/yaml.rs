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
    // As sigs.k8s.io/yaml reads it, which real servers and kubectl use: 0400 is a number to the base of 8.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ApiError::bad_request(format!("error converting YAML to JSON: {error}")))
}

/// Writes JSON as YAML.
///
/// # Errors
/// 500 if the value cannot be written, which would be a defect.
pub(crate) fn from_json(value: &Value) -> Result<String, ApiError> {
    serde_saphyr::to_string(value).map_err(|error| ApiError::internal(format!("cannot write YAML: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_are_those_of_real_servers() {
        for (text, value) in [
            ("0400", json!(256)),
            ("0644", json!(420)),
            ("-0400", json!(-256)),
            ("0o400", json!(256)),
            ("0x1F", json!(31)),
            ("0", json!(0)),
            ("400", json!(400)),
            ("0.5", json!(0.5)),
            ("yes", json!(true)),
            ("'0400'", json!("0400")),
            ("0400m", json!("0400m")),
        ] {
            assert_eq!(to_json(format!("a: {text}").as_bytes()).unwrap(), json!({ "a": value }), "{text}");
        }
    }

    /// What is written is read back, also where a text looks like something else.
    #[test]
    fn texts_stay_texts() {
        for text in [
            "0400",
            "0644",
            "08",
            "0o17",
            "0x1F",
            "1_000",
            "1e3",
            "yes",
            "off",
            "null",
            "~",
            "",
            "1:30",
            "2026-01-01",
        ] {
            let value = json!({ "a": text });
            assert_eq!(to_json(from_json(&value).unwrap().as_bytes()).unwrap(), value, "{text}");
        }
    }
}
