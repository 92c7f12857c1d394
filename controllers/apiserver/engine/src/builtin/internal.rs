//! Values as a real API server holds them inside, by the types of its code: some messages show them so.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Value, json};

/// A value of an internal type.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// No pointer, list or map.
    Nil,
    Text(String),
    Flag(bool),
    Number(i64),
    /// A quantity in canonical form; empty for none.
    Quantity(String),
    Pointer(Box<Held>),
    /// Fields in the order of the type.
    Struct(&'static str, Vec<(&'static str, Held)>),
    List(Vec<Held>),
    Map(BTreeMap<String, Held>),
}

/// One field of a type.
#[derive(Debug)]
struct Field {
    name: &'static str,
    /// Its field in JSON; none if its own fields stand in the object itself.
    key: Option<String>,
    kind: &'static str,
    embedded: bool,
}

/// The fields of a type, and whether its JSON has names of its own.
#[derive(Debug, Default)]
struct Type {
    name: &'static str,
    fields: Vec<Field>,
    plain: bool,
}

const TABLE: &str = include_str!("internal.txt");
/// Deepest nesting of types that is followed.
const MAX_DEPTH: usize = 24;
const INT_OR_TEXT: &str = "intstr.IntOrString";

fn table() -> &'static BTreeMap<&'static str, Type> {
    static PARSED: OnceLock<BTreeMap<&'static str, Type>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let types = lines.filter_map(|line| {
            let (marked, fields) = line.split_once(' ')?;
            let name = marked.trim_start_matches('!');
            let fields = fields.split(' ').filter_map(field).collect();
            Some((name, Type { name, fields, plain: marked != name }))
        });
        types.collect()
    })
}

fn field(text: &'static str) -> Option<Field> {
    if let Some(embedded) = text.strip_prefix('.') {
        let (name, key) = embedded.split_once('=').map_or((embedded, None), |(name, key)| (name, Some(key)));
        return Some(Field { name, key: key.map(str::to_owned), kind: name, embedded: true });
    }
    let (names, kind) = text.split_once(':')?;
    let (name, key) = names
        .split_once('=')
        .map_or_else(|| (names, with_small_letter(names)), |(name, key)| (name, key.to_owned()));
    Some(Field { name, key: Some(key), kind, embedded: false })
}

fn with_small_letter(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// The value of JSON as that kind (`PodSpec`, `[]Container`).
pub(super) fn held(kind: &'static str, value: Option<&Value>) -> Held {
    held_at(kind, value, 0)
}

/// The spec of a pod. What pods share with their host is in its security context.
pub(super) fn held_spec(spec: &Value) -> Held {
    let mut spec = spec.clone();
    let Some(fields) = spec.as_object_mut() else { return Held::Nil };
    let mut moved = Vec::new();
    for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        moved.extend(fields.remove(key).map(|value| (key.to_owned(), value)));
    }
    if let Some(context) = fields.entry("securityContext").or_insert_with(|| json!({})).as_object_mut() {
        context.extend(moved);
    }
    held("PodSpec", Some(&spec))
}

/// The template of pods.
pub(super) fn held_template(template: &Value) -> Held {
    let spec = template.get("spec").map_or(Held::Nil, held_spec);
    let fields = vec![("ObjectMeta", held("ObjectMeta", template.get("metadata"))), ("Spec", spec)];
    Held::Struct("PodTemplateSpec", fields)
}

fn held_at(kind: &'static str, value: Option<&Value>, depth: usize) -> Held {
    let value = value.filter(|value| !value.is_null() && depth < MAX_DEPTH);
    if let Some(kind) = kind.strip_prefix('*') {
        return value
            .map_or(Held::Nil, |value| Held::Pointer(Box::new(held_at(kind, Some(value), depth + 1))));
    }
    if let Some(kind) = kind.strip_prefix("[]") {
        let items = value.and_then(Value::as_array);
        let list =
            |items: &Vec<Value>| items.iter().map(|item| held_at(kind, Some(item), depth + 1)).collect();
        return items.map_or(Held::Nil, |items| Held::List(list(items)));
    }
    let text = || value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind {
        "s" => Held::Text(text()),
        "b" => Held::Flag(value.and_then(Value::as_bool).unwrap_or_default()),
        "i" => Held::Number(value.and_then(Value::as_i64).unwrap_or_default()),
        "Q" => Held::Quantity(text()),
        "I" => int_or_text(value),
        "{}s" => map(value, "s"),
        "R" => map(value, "Q"),
        _ => structure(kind, value, depth),
    }
}

fn map(value: Option<&Value>, kind: &'static str) -> Held {
    let fields = value.and_then(Value::as_object);
    let entries = |(key, value): (&String, &Value)| (key.clone(), held_at(kind, Some(value), 0));
    fields.map_or(Held::Nil, |fields| Held::Map(fields.iter().map(entries).collect()))
}

fn int_or_text(value: Option<&Value>) -> Held {
    let text = value.and_then(Value::as_str);
    let number = value.and_then(Value::as_i64).unwrap_or_default();
    let fields = vec![
        ("Type", Held::Number(i64::from(text.is_some()))),
        ("IntVal", Held::Number(number)),
        ("StrVal", Held::Text(text.unwrap_or_default().to_owned())),
    ];
    Held::Struct(INT_OR_TEXT, fields)
}

fn structure(kind: &str, value: Option<&Value>, depth: usize) -> Held {
    let Some(kind) = table().get(kind) else { return Held::Nil };
    let fields = kind.fields.iter().map(|field| {
        let own = match &field.key {
            Some(key) => value.and_then(|value| value.get(key)),
            None => value,
        };
        (field.name, held_at(field.kind, own, depth + 1))
    });
    Held::Struct(kind.name, fields.collect())
}

/// Lists and maps without content are equal to none.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nil, Self::Nil) => true,
            (Self::Nil, Self::List(_) | Self::Map(_)) | (Self::List(_) | Self::Map(_), Self::Nil) => {
                self.is_zero() && other.is_zero()
            }
            (Self::Text(one), Self::Text(other)) | (Self::Quantity(one), Self::Quantity(other)) => {
                one == other
            }
            (Self::Flag(one), Self::Flag(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => one == other,
            (Self::Pointer(one), Self::Pointer(other)) => one == other,
            (Self::Struct(_, one), Self::Struct(_, other)) => one == other,
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Map(one), Self::Map(other)) => one == other,
            _ => false,
        }
    }
}

impl Held {
    /// Whether it is the zero of its type.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Nil => true,
            Self::Text(text) | Self::Quantity(text) => text.is_empty(),
            Self::Flag(flag) => !flag,
            Self::Number(number) => *number == 0,
            Self::Struct(_, fields) => fields.iter().all(|(_, value)| value.is_zero()),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Pointer(_) => false,
        }
    }

    /// The value as JSON over several lines.
    pub(super) fn indented(&self) -> String {
        over_lines(&self.shown())
    }

    /// The value as JSON with the names and the order of its type.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Nil => "null".to_owned(),
            Self::Text(text) => json!(text).to_string(),
            Self::Quantity(text) => json!(if text.is_empty() { "0" } else { text }).to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Pointer(value) => value.shown(),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::shown).collect::<Vec<_>>().join(","))
            }
            Self::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{}:{}", json!(key), value.shown()));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
            }
            Self::Struct(INT_OR_TEXT, fields) => {
                let chosen = fields.iter().skip(1).find(|(_, value)| !value.is_zero());
                chosen.map_or_else(|| "0".to_owned(), |(_, value)| value.shown())
            }
            Self::Struct(name, fields) => {
                let mut parts = Vec::new();
                shown_fields(name, fields, &mut parts);
                format!("{{{}}}", parts.join(","))
            }
        }
    }
}

/// Compact JSON with each value on a line of its own.
fn over_lines(json: &str) -> String {
    let (mut text, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    let mut letters = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&" ".repeat(depth));
    };
    while let Some(letter) = letters.next() {
        match letter {
            '{' | '[' if !quoted && !matches!(letters.peek(), Some('}' | ']')) => {
                depth += 1;
                text.push(letter);
                line(&mut text, depth);
                continue;
            }
            '}' | ']' if !quoted && !text.ends_with(['{', '[']) => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
            }
            ',' if !quoted => {
                text.push(letter);
                line(&mut text, depth);
                continue;
            }
            ':' if !quoted => {
                text.push_str(": ");
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            // Letters of markup are escaped in Go's JSON.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
                continue;
            }
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        text.push(letter);
    }
    text
}

fn shown_fields(name: &str, fields: &[(&'static str, Held)], parts: &mut Vec<String>) {
    let Some(kind) = table().get(name) else { return };
    for (field, (name, value)) in kind.fields.iter().zip(fields) {
        match (&field.key, value) {
            (_, Held::Struct(inner, fields)) if field.embedded => shown_fields(inner, fields, parts),
            (Some(_), value) if kind.plain && value.is_zero() => {}
            (Some(key), value) if kind.plain => parts.push(format!("{}:{}", json!(key), value.shown())),
            (_, value) => parts.push(format!("{}:{}", json!(name), value.shown())),
        }
    }
}

#[cfg(test)]
mod tests;
