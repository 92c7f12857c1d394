//! `messages.txt`, read at first use.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const TEXT: &str = include_str!("messages.txt");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Flag,
    Integer,
    Double,
    Bytes,
    Quantity,
    /// Seconds and nanoseconds; shown with microseconds or not.
    Time {
        micro: bool,
    },
    IntOrString,
    /// JSON as bytes.
    Raw,
    /// A message by its full name (without `io.k8s.`).
    Message(String),
    /// A message whose last given field stands for the whole in JSON.
    Union(String),
}

impl Type {
    /// Whether Go may leave out a zero value of it.
    pub(super) fn is_scalar(&self) -> bool {
        matches!(self, Self::Text | Self::Flag | Self::Integer | Self::Double | Self::Bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    /// Once, and a zero value is not the same as none.
    Optional,
    List,
    Map,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// JSON name; empty for a message whose fields stand in the outer object.
    pub(super) name: &'static str,
    pub(super) count: Count,
    pub(super) of: Type,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }
}

pub(super) fn message(name: &str) -> Option<&'static Message> {
    all().get(name)
}

pub(super) fn all() -> &'static BTreeMap<String, Message> {
    static TABLE: OnceLock<BTreeMap<String, Message>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let (mut table, mut package) = (BTreeMap::new(), "");
        for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[') {
                package = name.trim_end_matches(']');
                continue;
            }
            let mut words = line.split(' ');
            let name = format!("{package}.{}", words.next().unwrap_or(""));
            table.insert(name, Message { fields: words.filter_map(|word| field(word, package)).collect() });
        }
        table
    })
}

fn field(word: &'static str, package: &str) -> Option<Field> {
    let (number, rest) = word.split_once(':')?;
    let (name, text) = rest.split_once(':')?;
    let number = number.parse().ok()?;
    let (count, text) = if let Some(text) = text.strip_prefix("[]") {
        (Count::List, text)
    } else if let Some(text) = text.strip_prefix("{}") {
        (Count::Map, text)
    } else if let Some(text) = text.strip_suffix('?') {
        (Count::Optional, text)
    } else {
        (Count::One, text)
    };
    let full = |name: &str| if name.contains('.') { name.to_owned() } else { format!("{package}.{name}") };
    let of = match text {
        "s" => Type::Text,
        "b" => Type::Flag,
        "i" => Type::Integer,
        "d" => Type::Double,
        "y" => Type::Bytes,
        "Q" => Type::Quantity,
        "T" => Type::Time { micro: false },
        "M" => Type::Time { micro: true },
        "I" => Type::IntOrString,
        "J" => Type::Raw,
        other => match other.strip_prefix('|') {
            Some(name) => Type::Union(full(name)),
            None => Type::Message(full(other)),
        },
    };
    Some(Field { number, name, count, of })
}
