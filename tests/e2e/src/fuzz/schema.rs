//! Objects that fit a schema, or nearly.

use serde_json::{Map, Value, json};

use super::{Random, hostile, text};

/// A value for an OpenAPI schema: of the right type, with values at the bounds, and with few of the optional fields.
pub fn instance(random: &mut Random, schema: &Value) -> Value {
    of_depth(random, schema, 12)
}

fn of_depth(random: &mut Random, schema: &Value, depth: usize) -> Value {
    if depth == 0 || random.once_in(40) {
        return hostile(random);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return random.choose(values).cloned().unwrap_or_default();
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return random
            .choose(&[json!(1), json!("250m"), json!("1Gi"), json!(0), json!(-1), json!("1e40")])
            .cloned()
            .unwrap_or_default();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => object(random, schema, depth),
        Some("array") => {
            let items = schema.get("items").cloned().unwrap_or_default();
            (0..random.below(4)).map(|_| of_depth(random, &items, depth - 1)).collect()
        }
        Some("string") => string(random, schema),
        Some("boolean") => random.once_in(2).into(),
        Some("integer" | "number") => number(random, schema),
        _ => hostile(random),
    }
}

fn object(random: &mut Random, schema: &Value, depth: usize) -> Value {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut map = Map::new();
    for (key, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let is_wanted =
            if required.contains(&key.as_str()) { !random.once_in(30) } else { random.once_in(5) };
        if is_wanted {
            map.insert(key.clone(), of_depth(random, inner, depth - 1));
        }
    }
    if let Some(inner) = schema.get("additionalProperties") {
        for _ in 0..random.below(3) {
            map.insert(text(random), of_depth(random, inner, depth - 1));
        }
    }
    map.into()
}

fn string(random: &mut Random, schema: &Value) -> Value {
    match schema.get("default").and_then(Value::as_str) {
        Some(usual) if random.once_in(2) => usual.into(),
        _ if random.once_in(2) => text(random).into(),
        _ => random.pick(&["a", "n1", "data", "1Gi", "/data", "http", "Always"]).into(),
    }
}

fn number(random: &mut Random, schema: &Value) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    let (least, most) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(8));
    random.pick(&[least, most, 1, 2, least.saturating_sub(1), most.saturating_add(1)]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_of_the_type() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer", "minimum": 3, "maximum": 5}, "b": {"type": "string", "enum": ["x", "y"]}}});
        let mut random = Random::new(1);
        let fitting = (0..200).map(|_| instance(&mut random, &schema)).filter(|value| {
            value.get("a").is_some_and(Value::is_i64) && value.get("b").is_none_or(|b| b == "x" || b == "y")
        });
        assert!(fitting.count() > 150);
    }
}
