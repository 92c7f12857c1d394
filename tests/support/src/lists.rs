//! Documents in which a list stands for an object. Readers that are derived would take its values for the fields in their order, at
//! any depth that they do not guard, so every reader of what people write is tried with all of these.

use serde_json::Value;

/// The document with one of its objects replaced by the list of that object's values, and by an empty list; for each object, with
/// its path as a JSON pointer.
#[must_use]
pub fn for_objects(document: &Value) -> Vec<(String, Value)> {
    let mut paths = Vec::new();
    find(document, String::new(), &mut paths);
    let mut all = Vec::new();
    for path in paths {
        let values = document.pointer(&path).and_then(Value::as_object).expect("an object was found there");
        for list in [values.values().cloned().collect(), Vec::new()] {
            let mut changed = document.clone();
            *changed.pointer_mut(&path).expect("it is there") = Value::Array(list);
            all.push((path.clone(), changed));
        }
    }
    all
}

fn find(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, below) in fields {
                find(below, format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), paths);
            }
            paths.push(path);
        }
        Value::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                find(below, format!("{path}/{index}"), paths);
            }
        }
        _ => {}
    }
}
