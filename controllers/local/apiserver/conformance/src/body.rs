//! Request bodies in the order in which a scenario writes their fields: errors and warnings name fields in that order.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Where a step keeps the text of its body.
pub(crate) const TEXT: &str = "bodyText";

#[derive(Deserialize)]
struct RawScenario<'a> {
    #[serde(borrow, default)]
    setup: Vec<RawStep<'a>>,
    #[serde(borrow, default)]
    steps: Vec<RawStep<'a>>,
}

#[derive(Deserialize)]
struct RawStep<'a> {
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// The scenario, with the text of each body beside it.
pub(crate) fn read(text: &str) -> serde_json::Result<Value> {
    let mut data: Value = serde_json::from_str(text)?;
    let raw: RawScenario<'_> = serde_json::from_str(text)?;
    for (key, raw) in [("setup", raw.setup), ("steps", raw.steps)] {
        let steps = data.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
        for (step, raw) in steps.filter_map(Value::as_object_mut).zip(raw) {
            if let Some(body) = raw.body {
                step.insert(TEXT.to_owned(), Value::String(on_one_line(body.get())));
            }
        }
    }
    Ok(data)
}

/// JSON on one line with a space after each colon and comma, in ASCII, as the recorder sent it.
fn on_one_line(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        if !quoted && c.is_whitespace() {
            continue;
        }
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
        if !quoted && matches!(c, ':' | ',') {
            out.push(' ');
        }
        quoted ^= c == '"' && !escaped;
        escaped = quoted && c == '\\' && !escaped;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_spaces_are_those_of_the_recorder() {
        let text = "{\"steps\": [{\"body\": {\n  \"b\" :\"x \\\" ,y\",\"a\":[1,2],\"ü\":{}}}]}";
        let data = read(text).unwrap();
        assert_eq!(data["steps"][0][TEXT], r#"{"b": "x \" ,y", "a": [1, 2], "\u00fc": {}}"#);
    }
}
