//! Values as an attacker writes them: of the right form, and wrong at one place or the other.

use serde_json::{Map, Number, Value};

use super::Random;

/// Texts that some part of a system gives a meaning to.
const TEXTS: [&str; 40] = [
    "",
    " ",
    ".",
    "..",
    "/",
    "../../../../etc/passwd",
    "\0",
    "\n",
    "\r\nx: y",
    "\u{1b}]0;x\u{7}",
    "\u{202e}",
    "\u{feff}",
    "é",
    "💥",
    "-1",
    "0",
    "1",
    "1e999",
    "0x10",
    "18446744073709551616",
    "1Gi",
    "-1Gi",
    "1e30Ei",
    "0.0000000001",
    "250m",
    "NaN",
    "true",
    "null",
    "%s%n",
    "%00",
    "$(id)",
    "`id`",
    "a,b=c",
    "10.0.0.0/33",
    "127.0.0.1",
    "::1",
    "default",
    "kube-system",
    "9999-99-99T99:99:99Z",
    "1970-01-01T00:00:00Z",
];
/// Keys that have a meaning in objects of Kubernetes, or none.
const KEYS: [&str; 16] = [
    "",
    "$ref",
    "__proto__",
    "x",
    "name",
    "namespace",
    "uid",
    "kind",
    "apiVersion",
    "metadata",
    "spec",
    "status",
    "finalizers",
    "ownerReferences",
    "$patch",
    "a/b~1c",
];

/// A text that may have a meaning, be too long, or be noise.
pub fn text(random: &mut Random) -> String {
    match random.below(8) {
        0 => "a".repeat(1 << random.below(17)),
        1 => {
            let length = random.below(24);
            String::from_utf8_lossy(&random.bytes(length)).into_owned()
        }
        _ => random.pick(&TEXTS).to_owned(),
    }
}

fn number(random: &mut Random) -> Number {
    let whole = [
        0,
        1,
        -1,
        2,
        127,
        128,
        255,
        256,
        65_535,
        65_536,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::from(u32::MAX),
        i64::MAX,
        i64::MIN,
    ];
    let broken = [0.1, -0.5, 1e-300, 1e308, 1e18];
    match random.below(4) {
        0 => Number::from_f64(random.pick(&broken)).unwrap_or_else(|| 0.into()),
        1 => random.next().into(),
        _ => random.pick(&whole).into(),
    }
}

/// Any value, of a depth that stays small.
pub fn hostile(random: &mut Random) -> Value {
    of_depth(random, 3)
}

fn of_depth(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 4 } else { 7 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => Value::Bool(random.once_in(2)),
        2 => Value::Number(number(random)),
        3 => Value::String(text(random)),
        4 => (0..random.below(4)).map(|_| of_depth(random, depth - 1)).collect(),
        5 => {
            let pair = |random: &mut Random| (random.pick(&KEYS).to_owned(), of_depth(random, depth - 1));
            Value::Object((0..random.below(4)).map(|_| pair(random)).collect())
        }
        // Deeper than a parser by recursion should go, and more than a list should have.
        _ if random.once_in(8) => (0..300).fold(Value::Null, |inner, _| vec![inner].into()),
        _ => vec![Value::Null; 1 << random.below(10)].into(),
    }
}

/// Changes a value at a few places.
pub fn mutate(random: &mut Random, value: &mut Value) {
    for _ in 0..=random.below(3) {
        change(random, value);
    }
}

/// Changes a value at one place: goes down until it stops by chance or at a leaf.
fn change(random: &mut Random, value: &mut Value) {
    let stops = random.once_in(6);
    match value {
        Value::Object(map) if !map.is_empty() && !stops => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let Some(key) = random.choose(&keys).cloned() else { return };
            match random.below(8) {
                0 => drop(map.remove(&key)),
                1 => insert(random, map),
                2 => {
                    let value = map.get(&key).cloned().unwrap_or_default();
                    map.insert(random.pick(&KEYS).to_owned(), value);
                }
                _ => {
                    if let Some(inner) = map.get_mut(&key) {
                        change(random, inner);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() && !stops => {
            let at = random.below(items.len());
            match random.below(4) {
                0 => drop(items.remove(at)),
                1 => {
                    let again = items.get(at).cloned().unwrap_or_default();
                    let times = 1 << random.below(7);
                    items.extend(std::iter::repeat_n(again, times));
                }
                _ => {
                    if let Some(inner) = items.get_mut(at) {
                        change(random, inner);
                    }
                }
            }
        }
        // A number stays a number as often as not, because what is of the wrong type is refused early.
        Value::Number(_) if random.once_in(2) => *value = Value::Number(number(random)),
        Value::String(_) if random.once_in(2) => *value = Value::String(text(random)),
        _ => *value = hostile(random),
    }
}

fn insert(random: &mut Random, map: &mut Map<String, Value>) {
    let value = hostile(random);
    map.insert(random.pick(&KEYS).to_owned(), value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_of_a_value_is_changed_at_some_time() {
        let whole = json!({ "a": [{ "b": 1 }, { "b": "x" }], "c": { "d": true, "e": null } });
        let mut random = Random::new(1);
        let mut changed = [0; 3];
        for _ in 0..2_000 {
            let mut value = whole.clone();
            mutate(&mut random, &mut value);
            for (count, pointer) in changed.iter_mut().zip(["/a/0/b", "/a/1/b", "/c/d"]) {
                *count += usize::from(value.pointer(pointer) != whole.pointer(pointer));
            }
        }
        assert!(changed.iter().all(|count| *count > 50), "{changed:?}");
    }
}
