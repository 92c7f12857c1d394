//! How Go prints values, where messages of a real server show them.

use serde_json::Value;

/// `%v` of a JSON value as Go decodes it: bare strings, `map[a:1 b:2]`, `[1 2]`, `<nil>`.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_i64() && !number.is_u64() => plain_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// `%v` of a `float64`: shortest form, with an exponent below 1e-4 and from 1e21.
pub fn plain_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) && magnitude.is_finite() {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

/// `%T` of a JSON value as Go decodes it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%q` of a string.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{plain, plain_float, quoted};

    #[test]
    fn values_print_as_in_go() {
        assert_eq!(plain(&json!({"a": 1, "b": ["x", null, 1.5]})), "map[a:1 b:[x <nil> 1.5]]");
        assert_eq!(plain_float(10.0), "10");
        assert_eq!(plain_float(1e21), "1e+21");
        assert_eq!(plain_float(0.00001), "1e-05");
        assert_eq!(plain_float(0.5), "0.5");
        assert_eq!(quoted("a\"b\n\u{1}ü"), "\"a\\\"b\\n\\x01ü\"");
    }
}
