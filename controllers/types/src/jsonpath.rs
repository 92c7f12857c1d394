//! The JSONPath dialect of printer columns, selectable fields and `kubectl -o jsonpath`: `.a.b`, `['a/b']`, `[0]`, `[1:3]`, `[0,2]`, `[*]`,
//! `.*`, `[?(@.type=="Ready")]`, and `\.` for a dot in a key.
//!
//! The parser is our own: crates implement RFC 9535, which has no `\.`, no path without `$`, and other comparisons.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(i64),
    /// From, to (not with it), and each how many-th, as in Python; negative numbers count from the end.
    Slice(Option<i64>, Option<i64>, usize),
    Union(Vec<Step>),
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
    /// Parses `.spec.x`, with or without the leading dot and surrounding braces.
    ///
    /// # Errors
    /// Why it is no path.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.trim_start_matches(['$', '@']);
        if rest.starts_with("..") {
            return Err("recursion is not supported");
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let (inside, after) = closed(tail).ok_or("a bracket is not closed")?;
                steps.push(bracket(inside).ok_or(
                    "brackets must contain a number, a slice such as 1:3, *, a quoted name, several of these or a condition such as ?(@.name==\"x\")",
                )?);
                rest = after;
            } else {
                let tail = match rest.strip_prefix('.') {
                    Some(tail) => tail,
                    None if steps.is_empty() => rest,
                    None => return Err("a dot is missing"),
                };
                let (key, after) = key(tail);
                match key.as_str() {
                    "" if after.is_empty() => {}
                    "" if after.starts_with('[') => {}
                    "" => return Err("a name is missing"),
                    "*" => steps.push(Step::All),
                    _ => steps.push(Step::Key(key)),
                }
                rest = after;
            }
        }
        Ok(Self { steps })
    }

    /// All values the path leads to.
    #[must_use]
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
        Step::Slice(from, to, every) => {
            let Some(items) = value.as_array() else { return Vec::new() };
            let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let place = |at: i64| {
                let at = if at < 0 { at.saturating_add(size) } else { at };
                usize::try_from(at.clamp(0, size)).unwrap_or_default()
            };
            let (from, to) = (from.map_or(0, place), to.map_or(items.len(), place));
            items.get(from..to.max(from)).unwrap_or_default().iter().step_by(*every).collect()
        }
        Step::Union(steps) => steps.iter().flat_map(|step| apply(step, value)).collect(),
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

/// What is before and after the bracket that closes the one before `text`; quotes and nesting count.
fn closed(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut quote) = (0_u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
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
    if let Some(name) = unquote(text).filter(|_| separated(text).len() == 1) {
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
    let parts = separated(text);
    if parts.len() > 1 {
        let steps = parts.into_iter().map(|part| bracket(part).filter(is_single));
        return steps.collect::<Option<_>>().map(Step::Union);
    }
    if text.contains(':') {
        return slice(text);
    }
    text.parse().ok().map(Step::Index)
}

/// Whether a step may be one of several in a bracket.
fn is_single(step: &Step) -> bool {
    matches!(step, Step::Key(_) | Step::Index(_) | Step::Slice(..))
}

/// The parts between commas outside of quotes.
fn separated(text: &str) -> Vec<&str> {
    let mut quote = None;
    text.split(|c| {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) => return c == ',',
        }
        false
    })
    .collect()
}

/// `from:to` or `from:to:every`, each of which may be left out.
fn slice(text: &str) -> Option<Step> {
    let mut parts = text.split(':').map(str::trim);
    let mut number = || match parts.next() {
        None | Some("") => Some(None),
        Some(part) => part.parse::<i64>().ok().map(Some),
    };
    let (from, to, every) = (number()?, number()?, number()?);
    let every = usize::try_from(every.unwrap_or(1)).ok().filter(|every| *every > 0)?;
    parts.next().is_none().then_some(Step::Slice(from, to, every))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::JsonPath;

    #[test]
    fn every_step_leads_to_its_values() {
        let object = json!({"a": {"b.c": 1, "d/e": 2}, "l": [{"t": "x", "n": 1}, {"t": "y", "n": 2}],
            "s": [0, 1, 2, 3, 4]});
        for (path, expected) in [
            (".a['d/e']", json!([2])),
            (r".a.b\.c", json!([1])),
            ("{$.l[0].n}", json!([1])),
            ("l[-1].n", json!([2])),
            (".l[*].t", json!(["x", "y"])),
            (".a.*", json!([1, 2])),
            (r#".l[?(@.t=="y")].n"#, json!([2])),
            (".l[?(@.n!=2)].t", json!(["x"])),
            (".l[9].n", json!([])),
            (".s[1:3]", json!([1, 2])),
            (".s[:2]", json!([0, 1])),
            (".s[3:]", json!([3, 4])),
            (".s[:]", json!([0, 1, 2, 3, 4])),
            (".s[-2:]", json!([3, 4])),
            (".s[:-3]", json!([0, 1])),
            (".s[::2]", json!([0, 2, 4])),
            (".s[1:9:3]", json!([1, 4])),
            (".s[3:1]", json!([])),
            (".s[7:]", json!([])),
            (".s[0,2,-1]", json!([0, 2, 4])),
            (".s[0,3:]", json!([0, 3, 4])),
            (".l[0]['t','n']", json!(["x", 1])),
            (".a[1:2]", json!([])),
            (".l[0:1].t", json!(["x"])),
            (".none.of.it", json!([])),
        ] {
            assert_eq!(json!(JsonPath::parse(path).unwrap().find(&object)), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [
            "..a",
            ".a..b",
            ".a[",
            ".a[b]",
            ".a[?(@.b)]",
            ".a[?(b==1)]",
            ".a[0]b",
            ".a[1:b]",
            ".a[::0]",
            ".a[::-1]",
            ".a[1:2:3:4]",
            ".a[1,]",
            ".a[1,*]",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[a$@.*?=(),:\\[\\]'\"\\\\0-9-]{0,20}|\\PC{0,20}") {
            let _ = JsonPath::parse(&text).map(|path| path.find(&json!({"a": [1, {"b": 2}]})).len());
        }
    }
}
