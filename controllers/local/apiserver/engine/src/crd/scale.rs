//! The numbers that the `scale` subresource reads, checked whenever the object is written.

use serde_json::{Value, json};

use super::ScalePaths;
use crate::field::FieldError;

/// Checks replicas and selector of an object: whole numbers from 0 to 2³¹−1, and a string.
pub fn check(paths: &ScalePaths, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for path in [&paths.spec_replicas, &paths.status_replicas] {
        errors.extend(count_error(path, object));
    }
    if let Some(path) = &paths.label_selector
        && let Some(found) = find(object, path)
        && !found.is_string()
    {
        errors.push(FieldError::invalid(path.clone(), "", &accessor_error(path, found, "string")));
    }
    errors
}

pub fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, key| value.get(key))
}

fn count_error(path: &str, object: &Value) -> Option<FieldError> {
    let found = find(object, path)?;
    let Some(count) = found.as_i64() else {
        return Some(FieldError::invalid(path, &json!(0), &accessor_error(path, found, "int64")));
    };
    if count < 0 {
        return Some(FieldError::invalid(path, &count, "should be a non-negative integer"));
    }
    if count > i64::from(i32::MAX) {
        let detail = format!("should be less than or equal to {}", i32::MAX);
        return Some(FieldError::invalid(path, &count, &detail));
    }
    None
}

fn accessor_error(path: &str, found: &Value, want: &str) -> String {
    let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    let kind = match found {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Null => "map[string]interface {}",
    };
    format!("{path} accessor error: {text} is of the type {kind}, expected {want}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ScalePaths, check};

    #[test]
    fn messages_as_recorded() {
        let paths = ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".status.selector".to_owned()),
        };
        let errors = |object| check(&paths, &object).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(errors(json!({"spec": {"replicas": 1}, "status": {}})), Vec::<String>::new());
        assert_eq!(
            errors(json!({"status": {"replicas": "two"}})),
            [
                ".status.replicas: Invalid value: 0: .status.replicas accessor error: two is of the type string, expected int64"
            ]
        );
        assert_eq!(
            errors(json!({"spec": {"replicas": -2}})),
            [".spec.replicas: Invalid value: -2: should be a non-negative integer"]
        );
    }
}
