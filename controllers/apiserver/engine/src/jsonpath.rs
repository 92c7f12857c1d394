//! The JSONPath dialect of printer columns and selectable fields: `.a.b`, `['a/b']`, `[0]`, `[*]`, `.*`,
//! `[?(@.type=="Ready")]`, and `\.` for a dot in a key.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(i64),
    All,
    /// Keeps items whose value at the path equals (or differs from) the literal.
    Filter(Vec<String>, bool, String),
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses `.spec.x`, with or without the leading dot and surrounding braces. `None` for what is no path.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let end = closing(tail)?;
                steps.push(bracket(tail.get(..end)?)?);
                rest = tail.get(end + 1..)?;
            } else {
                let tail = rest.strip_prefix('.').unwrap_or(rest);
                let (key, after) = key(tail);
                match key.as_str() {
                    "" if after.is_empty() => {}
                    "" if after.starts_with('[') => {}
                    "" => return None,
                    "*" => steps.push(Step::All),
                    _ => steps.push(Step::Key(key)),
                }
                rest = after;
            }
        }
        Some(Self { steps })
    }

    /// All values the path leads to.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.steps
            .iter()
            .fold(vec![root], |found, step| found.into_iter().flat_map(|v| apply(step, v)).collect())
    }
}

fn apply<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match step {
        Step::Key(key) => value.get(key).into_iter().collect(),
        Step::Index(at) => {
            let Some(items) = value.as_array() else { return Vec::new() };
            let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let at = if *at < 0 { at.saturating_add(size) } else { *at };
            usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
        }
        Step::All => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter(path, equal, wanted) => {
            let holds = |item: &&Value| {
                let found = path.iter().try_fold(*item, |value, key| value.get(key));
                found.is_some_and(|value| (plain(value) == *wanted) == *equal)
            };
            value.as_array().map(|items| items.iter().filter(holds).collect()).unwrap_or_default()
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Where the bracket opened before `text` closes; quotes and nesting count.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn key(text: &str) -> (String, &str) {
    let (mut key, mut escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            c if escaped => {
                key.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (key, text.get(at..).unwrap_or("")),
            c => key.push(c),
        }
    }
    (key, "")
}

fn unquote(text: &str) -> Option<&str> {
    let text = text.trim();
    text.strip_prefix('\'')
        .and_then(|t| t.strip_suffix('\''))
        .or_else(|| text.strip_prefix('"').and_then(|t| t.strip_suffix('"')))
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquote(text) {
        return Some(Step::Key(name.replace("\\.", ".")));
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (path, wanted, equal) = match condition.split_once("==") {
            Some((path, wanted)) => (path, wanted, true),
            None => condition.split_once("!=").map(|(path, wanted)| (path, wanted, false))?,
        };
        let path = path.trim().strip_prefix('@')?;
        let path = path.split('.').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        let wanted = unquote(wanted).unwrap_or(wanted.trim()).to_owned();
        return Some(Step::Filter(path, equal, wanted));
    }
    text.parse().ok().map(Step::Index)
}
