//! As much of Helm as our chart uses: conditions around a file, values, their JSON, alternatives.

use serde_json::Value;

/// What Helm makes of a template: its objects.
pub(crate) fn rendered(template: &str, values: &Value, namespace: &str, kubernetes: &str) -> Vec<Value> {
    let mut text = String::new();
    let mut is_wanted = true;
    for line in template.lines() {
        if let Some(condition) = line.strip_prefix("{{- if ").and_then(|rest| rest.strip_suffix(" }}")) {
            is_wanted = holds(condition, values, kubernetes);
        } else if line == "{{- end }}" {
            is_wanted = true;
        } else if is_wanted {
            text.push_str(&filled(line, values, namespace, kubernetes));
            text.push('\n');
        }
    }
    if text.lines().all(|line| line.is_empty() || line.starts_with('#')) {
        return Vec::new();
    }
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn holds(condition: &str, values: &Value, kubernetes: &str) -> bool {
    let words: Vec<&str> = condition.split(' ').collect();
    match words.as_slice() {
        ["has", word, path] => {
            value(path, values).as_array().unwrap().iter().any(|one| one == word.trim_matches(['"', '`']))
        }
        ["ne", path, word] => value(path, values) != word.trim_matches(['"', '`']),
        ["semverCompare", "`<1.35-0`", ".Capabilities.KubeVersion.Version"] => {
            neonvm_deploy::release(kubernetes).unwrap() < (1, 35, 0)
        }
        [path] => match value(path, values) {
            Value::Number(number) => number.as_i64() != Some(0),
            other => other.as_bool().unwrap(),
        },
        ["eq", path, word] => value(path, values) == word.trim_matches(['"', '`']),
        other => panic!("{other:?} is not known here"),
    }
}

fn value<'a>(path: &str, values: &'a Value) -> &'a Value {
    let keys = path.strip_prefix(".Values.").unwrap().replace('.', "/");
    values.pointer(&format!("/{keys}")).unwrap_or_else(|| panic!("values.yaml has no {path}"))
}

fn filled(line: &str, values: &Value, namespace: &str, kubernetes: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{ ") {
        out.push_str(before);
        let (action, after) = after.split_once(" }}").unwrap();
        rest = after;
        let words: Vec<&str> = action.split(' ').collect();
        match words.as_slice() {
            [".Release.Namespace"] => out.push_str(namespace),
            ["regexFind", _, ".Capabilities.KubeVersion.Version"] => out.push_str(kubernetes),
            ["int64", path] => out.push_str(&value(path, values).as_i64().unwrap().to_string()),
            ["toJson", path] => out.push_str(&value(path, values).to_string()),
            ["with", path] => {
                let (inner, after) = rest.split_once("{{ end }}").unwrap();
                let found = value(path, values).as_str().unwrap();
                if !found.is_empty() {
                    out.push_str(&inner.replace("{{ . }}", found));
                }
                rest = after;
            }
            ["if", condition @ ..] => {
                let (own, after) = rest.split_once("{{ else }}").unwrap();
                // The last one: what stands there may have an end of its own.
                let (other, after) = after.rsplit_once("{{ end }}").unwrap();
                let has = match condition {
                    [path] => value(path, values).as_str().is_some_and(|found| !found.is_empty()),
                    more => holds(&more.join(" "), values, kubernetes),
                };
                out.push_str(&filled(if has { own } else { other }, values, namespace, kubernetes));
                rest = after;
            }
            ["has", ..] => out.push_str(&holds(action, values, kubernetes).to_string()),
            [path] => out.push_str(value(path, values).as_str().unwrap()),
            other => panic!("{other:?} is not known here"),
        }
    }
    out + rest
}
