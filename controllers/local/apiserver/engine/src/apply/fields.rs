//! Sets of field paths, kept as a tree of path elements in the spelling of `fieldsV1`: `f:name`, `k:{"name":"a"}`,
//! `v:"x"`, `i:0`.
//!
//! Elements stay strings in canonical form (compact JSON, sorted keys), so that equal paths are equal strings and a set
//! is read and written without interpreting them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::object::is_word;
use crate::patch::MAX_DEPTH;
use crate::schema::{JsonType, Schema};

use super::typed::child_schema;

/// A set of paths below one node. No empty branches are kept, so equality is equality of sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the path that leads here is in the set.
    pub(super) owned: bool,
    /// Longer paths, by their next element.
    pub(super) children: BTreeMap<String, FieldSet>,
}

pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity(name.len() + 2);
    element.push_str("f:");
    element.push_str(name);
    element
}

impl FieldSet {
    pub(super) fn leaf() -> Self {
        Self { owned: true, children: BTreeMap::new() }
    }

    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let end = path.iter().fold(&mut set, |at, name| at.children.entry(field(name)).or_default());
            end.owned = true;
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        !self.owned && self.children.is_empty()
    }

    /// Adds the paths of `below`, seen from the child `element`; nothing happens if it is empty.
    pub(super) fn attach(&mut self, element: impl FnOnce() -> String, below: Self) {
        if !below.is_empty() {
            match self.children.entry(element()) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(below);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => slot.get_mut().union_with(&below),
            }
        }
    }

    pub(super) fn union_with(&mut self, other: &Self) {
        self.owned |= other.owned;
        for (element, theirs) in &other.children {
            match self.children.get_mut(element) {
                Some(own) => own.union_with(theirs),
                None => {
                    self.children.insert(element.clone(), theirs.clone());
                }
            }
        }
    }

    /// Takes out every path of `other`; longer paths stay.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.owned &= !other.owned;
        for (element, theirs) in &other.children {
            if let Some(own) = self.children.get_mut(element) {
                own.subtract(theirs);
                if own.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// Takes out every path of `other` and all below it.
    pub(super) fn subtract_branches(&mut self, other: &Self) {
        for (element, theirs) in &other.children {
            if theirs.owned {
                self.children.remove(element);
            } else if let Some(own) = self.children.get_mut(element) {
                own.subtract_branches(theirs);
                if own.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { owned: self.owned && other.owned, children: BTreeMap::new() };
        let (few, many) =
            if self.children.len() <= other.children.len() { (self, other) } else { (other, self) };
        for (element, left) in &few.children {
            if let Some(right) = many.children.get(element) {
                let below = left.intersection(right);
                if !below.is_empty() {
                    both.children.insert(element.clone(), below);
                }
            }
        }
        both
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        (self.owned && other.owned)
            || other
                .children
                .iter()
                .any(|(element, theirs)| self.children.get(element).is_some_and(|own| own.meets(theirs)))
    }

    pub(super) fn contains_all(&self, other: &Self) -> bool {
        (self.owned || !other.owned)
            && other.children.iter().all(|(element, theirs)| {
                self.children.get(element).is_some_and(|own| own.contains_all(theirs))
            })
    }

    /// The same set, plus every declared field that paths of the set lead through.
    pub(super) fn with_named_parents(&self, schema: &Schema, depth: usize) -> Self {
        let children = self.children.iter().map(|(element, below)| {
            let name = element.strip_prefix("f:");
            let next = match name {
                Some(name) => child_schema(schema, name, depth),
                None => schema.items.as_deref(),
            };
            let mut below = below.with_named_parents(next.unwrap_or(&super::typed::ANY), depth + 1);
            let declared = name.is_some_and(|name| schema.properties.contains_key(name) || depth == 0);
            below.owned |= declared && !below.children.is_empty();
            (element.clone(), below)
        });
        Self { owned: self.owned, children: children.collect() }
    }

    /// Removes the fields that no manager can own: identity, and fields that only the server sets.
    pub(super) fn strip_server_fields(&mut self) {
        self.children.remove("f:apiVersion");
        self.children.remove("f:kind");
        if let Some(metadata) = self.children.get_mut("f:metadata") {
            metadata.owned = false;
            metadata
                .children
                .retain(|element, _| !is_word(SERVER_FIELDS, element.get(2..).unwrap_or_default()));
            if metadata.is_empty() {
                self.children.remove("f:metadata");
            }
        }
    }

    /// Reads `fieldsV1`.
    ///
    /// # Errors
    /// A text that names the element that is not understood.
    pub fn decode(value: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        match value {
            Value::Null => {}
            Value::Object(map) => set.decode_children(map, MAX_DEPTH)?,
            _ => return Err("fieldsV1 is not an object".to_owned()),
        }
        Ok(set)
    }

    fn decode_children(&mut self, map: &Map<String, Value>, depth: usize) -> Result<(), String> {
        for (key, below) in map {
            let Value::Object(below) = below else { return Err(format!("{key:?} is not an object")) };
            if key == "." {
                self.owned = true;
                continue;
            }
            let mut child = Self { owned: below.is_empty(), children: BTreeMap::new() };
            if depth > 0 {
                child.decode_children(below, depth - 1)?;
            }
            let element = canonical(key)?;
            self.attach(|| element, child);
        }
        Ok(())
    }

    pub fn encode(&self) -> Value {
        let mut map: Map<String, Value> =
            self.children.iter().map(|(element, below)| (element.clone(), below.encode())).collect();
        if self.owned && !map.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        Value::Object(map)
    }

    /// Every path of the set as people read it: `.spec.items[id="a"].n`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_paths(&mut String::new(), &mut found);
        found
    }

    /// At each level what is owned itself comes first, then what is below.
    fn collect_paths(&self, prefix: &mut String, found: &mut Vec<String>) {
        let mut children: Vec<(&String, &Self)> = self.children.iter().collect();
        children.sort_by(|(left, _), (right, _)| in_order(left, right));
        found.extend(
            children
                .iter()
                .filter(|(_, below)| below.owned)
                .map(|(element, _)| format!("{prefix}{}", shown(element))),
        );
        for (element, below) in children {
            let length = prefix.len();
            prefix.push_str(&shown(element));
            below.collect_paths(prefix, found);
            prefix.truncate(length);
        }
    }
}

/// Fields come before keys, values and positions; numbers are ordered as such.
fn in_order(left: &str, right: &str) -> Ordering {
    let rank = |element: &str| "fkvi".find(element.get(..1).unwrap_or_default());
    let values = |element: &str| -> Vec<Value> {
        match serde_json::from_str(element.get(2..).unwrap_or_default()) {
            Ok(Value::Object(keys)) => {
                keys.into_iter().flat_map(|(key, value)| [key.into(), value]).collect()
            }
            Ok(value) if !element.starts_with('f') => vec![value],
            _ => Vec::new(),
        }
    };
    let differing = || values(left).into_iter().zip(values(right)).find(|(one, other)| one != other);
    let numbers = || differing().and_then(|(one, other)| one.as_f64()?.partial_cmp(&other.as_f64()?));
    rank(left).cmp(&rank(right)).then_with(|| numbers().unwrap_or_else(|| left.cmp(right)))
}

/// Fields of `metadata` that the server keeps; they appear in no set.
pub(super) const SERVER_FIELDS: &str = "name namespace creationTimestamp selfLink uid clusterName \
    generation managedFields resourceVersion";

fn canonical(element: &str) -> Result<String, String> {
    match element.get(..2) {
        Some("f:") => Ok(element.to_owned()),
        Some(prefix @ ("k:" | "v:")) => {
            let text = element.get(2..).unwrap_or_default();
            let value: Value = serde_json::from_str(text).map_err(|_| format!("{element:?} is not JSON"))?;
            if prefix == "k:" && !value.is_object() {
                return Err(format!("{element:?} is not an object"));
            }
            Ok(format!("{prefix}{value}"))
        }
        Some("i:") if element.get(2..).is_some_and(|text| text.parse::<i64>().is_ok()) => {
            Ok(element.to_owned())
        }
        _ => Err(format!("{element:?} is not a path element")),
    }
}

/// One element as people read it: `.name`, `[id="a"]`, `[="x"]`, `[0]`.
pub(super) fn shown(element: &str) -> String {
    let text = element.get(2..).unwrap_or_default();
    let parsed = || serde_json::from_str::<Value>(text).unwrap_or_default();
    match element.get(..2) {
        Some("k:") => match parsed() {
            Value::Object(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            _ => format!("[{text}]"),
        },
        Some("v:") => format!("[={}]", parsed()),
        Some("i:") => format!("[{text}]"),
        _ => format!(".{text}"),
    }
}

/// Whether a schema node declares an object; distinguishes structs from maps.
pub(super) fn is_struct(schema: &Schema) -> bool {
    schema.json_type == JsonType::Object && !schema.properties.is_empty()
}
