//! What a PromQL expression names. It is not a parser: whether an expression is one, promtool decides.

/// Words that are followed by labels.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words between expressions.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

/// A metric, and the labels in its braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) metric: String,
    pub(super) labels: Vec<String>,
    /// A time in brackets follows it, as rate and increase need.
    pub(super) is_range: bool,
}

/// What an expression names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) selectors: Vec<Selector>,
    /// Labels that series are grouped or matched by.
    pub(super) grouping: Vec<String>,
    /// Those of them that aggregations keep.
    pub(super) kept: Vec<String>,
}

pub(super) fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_alphabetic() || first == '_' {
            let (word, after) = word(rest);
            rest = after.trim_start();
            if GROUPING.contains(&word) {
                let (inner, after) = between(rest, '(', ')');
                let labels = inner.split(',').map(str::trim).filter(|label| !label.is_empty());
                let labels: Vec<String> = labels.map(str::to_owned).collect();
                names.grouping.extend(labels.iter().cloned());
                if word == "by" {
                    names.kept.extend(labels);
                }
                rest = after;
            } else if rest.starts_with('{') {
                let (inner, after) = between(rest, '{', '}');
                rest = after;
                names.selectors.push(selector(word, matched(inner), rest));
            } else {
                // An aggregation may have its labels before what it aggregates: sum by (a) (b).
                let is_called = rest.starts_with('(') || rest.starts_with("by ") || rest.starts_with("by(");
                if !is_called && !OPERATORS.contains(&word) {
                    names.selectors.push(selector(word, Vec::new(), rest));
                }
            }
        } else if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if first == '[' {
            rest = between(rest, '[', ']').1;
        } else if first == '"' {
            rest = text(rest).1;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    names
}

fn selector(metric: &str, labels: Vec<String>, rest: &str) -> Selector {
    Selector { metric: metric.to_owned(), labels, is_range: rest.starts_with('[') }
}

fn word(text: &str) -> (&str, &str) {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

/// What is between two characters, the first of which begins the text, and what follows. Strings may hold the second.
fn between(text: &str, open: char, close: char) -> (&str, &str) {
    assert!(text.starts_with(open), "{open} is missing before {text}");
    let mut is_string = false;
    for (at, c) in text.char_indices() {
        is_string ^= c == '"';
        if c == close && !is_string {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("{close} is missing in {text}")
}

fn text(quoted: &str) -> (&str, &str) {
    let end = quoted[1..].find('"').unwrap() + 1;
    (&quoted[1..end], &quoted[end + 1..])
}

fn matched(mut inner: &str) -> Vec<String> {
    let mut labels = Vec::new();
    while !inner.trim().is_empty() {
        let (label, after) = word(inner.trim_start_matches([',', ' ']));
        labels.push(label.to_owned());
        inner = text(after.trim_start_matches(['=', '!', '~', ' '])).1;
    }
    labels
}

#[test]
fn names_are_found() {
    let found = names(
        r#"sum by (le, node) (rate(a_bucket{x="}", y!~"1|2"}[$__rate_interval])) / on (z) group_left () b:c offset 1h > bool 0.5"#,
    );
    let one = |metric: &str, labels: &[&str]| Selector {
        metric: metric.to_owned(),
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        is_range: metric == "a_bucket",
    };
    assert_eq!(found.selectors, [one("a_bucket", &["x", "y"]), one("b:c", &[])]);
    assert_eq!(found.grouping, ["le", "node", "z"]);
    assert_eq!(found.kept, ["le", "node"]);
}
