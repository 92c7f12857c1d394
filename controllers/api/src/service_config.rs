//! Configuration files of agent and scheduler, of every version: what each key means here, and the file in today's form.
//!
//! For: both services, which read their files through [`agent`] and [`scheduler`], and `neonctl config`.
//! A key that an earlier version called otherwise moves; a key that has no effect here is accepted and named; a key that is
//! missing gets its default. Refused are unknown keys, and keys of two versions that contradict each other.

mod agent;
mod document;
mod scheduler;

use std::fmt;

use neonvm_types::Bytes;
use serde_json::{Map, Value};

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is in force.
    Used,
    /// It is in force under another name.
    Moved {
        /// Path of today's key.
        to: String,
    },
    /// It is accepted and changes nothing.
    Without,
    /// The file does not set it: this is the default.
    Default,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used => f.write_str("used"),
            Self::Moved { to } => write!(f, "now {to}"),
            Self::Without => f.write_str("no effect"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One key of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// Path of the key in the file, such as `metrics.system.port`.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// What becomes of it.
    pub effect: Effect,
    /// What it means here, in words.
    pub text: String,
}

/// A file, as far as it was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The file in today's form, with all defaults.
    pub document: Value,
    /// Every key, in the order of the paths; keys with defaults last.
    pub keys: Vec<Meaning>,
    /// All that is wrong. Each names a key: it is unknown, is no object, or contradicts another one.
    pub faults: Vec<String>,
}

impl Converted {
    /// Keys of the file that have no effect, with the reason.
    pub fn without_effect(&self) -> impl Iterator<Item = &Meaning> {
        self.keys.iter().filter(|key| key.effect == Effect::Without)
    }

    /// The name that a key of today's form has in the file, if it is another one.
    #[must_use]
    pub fn name_in_file(&self, today: &str) -> Option<&str> {
        moved_to(&self.keys, today)
    }
}

/// The key that has today's path `today`, under another name.
fn moved_to<'a>(keys: &'a [Meaning], today: &str) -> Option<&'a str> {
    let moved = |key: &&Meaning| matches!(&key.effect, Effect::Moved { to } if to == today);
    keys.iter().find(moved).map(|key| key.key.as_str())
}

/// The text is no JSON object, or has a key twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object: {0}")]
pub struct NotAnObject(String);

/// Reads an agent's file of any version from v0.10 on.
///
/// # Errors
/// If the text is not a JSON object.
pub fn agent(text: &str) -> Result<Converted, NotAnObject> {
    let mut converting = Converting::read(text, agent::KEYS)?;
    agent::complete(&mut converting);
    Ok(converting.finish())
}

/// Reads a scheduler's file of any version from v0.10 on.
///
/// # Errors
/// As [`agent`].
pub fn scheduler(text: &str) -> Result<Converted, NotAnObject> {
    let mut converting = Converting::read(text, scheduler::KEYS)?;
    scheduler::complete(&mut converting);
    Ok(converting.finish())
}

/// Where a key of a file goes.
#[derive(Clone, Copy, Debug)]
enum To {
    /// It is a key of today.
    Same,
    /// It has this path today.
    Path(&'static str),
    /// Nowhere.
    Nowhere,
}

/// Path, today's path, meaning.
type Key = (&'static str, To, &'static str);

struct Converting {
    table: &'static [Key],
    document: Map<String, Value>,
    keys: Vec<Meaning>,
    faults: Vec<String>,
}

impl Converting {
    fn read(text: &str, table: &'static [Key]) -> Result<Self, NotAnObject> {
        let file = document::read(text).map_err(|error| NotAnObject(error.to_string()))?;
        let mut converting = Self { table, document: Map::new(), keys: Vec::new(), faults: Vec::new() };
        converting.section("", &file);
        Ok(converting)
    }

    fn finish(self) -> Converted {
        Converted { document: Value::Object(self.document), keys: self.keys, faults: self.faults }
    }

    fn section(&mut self, path: &str, section: &Map<String, Value>) {
        for (key, value) in section {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if key.contains('.') {
                self.faults.push(format!("{path}: unknown key; remove it"));
                continue;
            }
            // Go reads null as if the key was not there.
            if value.is_null() {
                continue;
            }
            if let Some(known) = self.key(&path) {
                self.take(known, value);
                continue;
            }
            match (self.is_section(&path), value) {
                (true, Value::Object(inner)) => {
                    self.place(&path);
                    self.section(&path, inner);
                }
                (true, _) => self.faults.push(format!("{path}: must be an object")),
                (false, _) => self.faults.push(format!("{path}: unknown key; remove it")),
            }
        }
    }

    /// The key at a path. Go's readers ignore the case of letters.
    fn key(&self, path: &str) -> Option<Key> {
        let exact = self.table.iter().find(|(known, ..)| *known == path);
        exact.or_else(|| self.table.iter().find(|(known, ..)| known.eq_ignore_ascii_case(path))).copied()
    }

    fn is_section(&self, path: &str) -> bool {
        self.table.iter().any(|(known, ..)| {
            let rest = known.get(..path.len()).filter(|start| start.eq_ignore_ascii_case(path));
            rest.is_some() && known.as_bytes().get(path.len()) == Some(&b'.')
        })
    }

    /// A section that is there, even if it is empty: `billing: {}` is not the same as no billing.
    fn place(&mut self, path: &str) {
        let today = self.table.iter().any(|(known, to, _)| {
            matches!(to, To::Same) && known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        });
        if today && get(&self.document, path).is_none() {
            set(&mut self.document, path, Value::Object(Map::new()));
        }
    }

    fn take(&mut self, (path, to, text): Key, value: &Value) {
        let (effect, place) = match to {
            To::Same => (Effect::Used, Some(path)),
            To::Path(to) => (Effect::Moved { to: to.to_owned() }, Some(to)),
            To::Nowhere => (Effect::Without, None),
        };
        if let Some(place) = place {
            match get(&self.document, place).filter(|other| *other != value) {
                Some(other) => {
                    let other_key = moved_to(&self.keys, place).unwrap_or(place);
                    self.faults.push(format!(
                        "{path} is {value}, and {other_key}, which means the same, is {other}; keep one of them"
                    ));
                }
                None => set(&mut self.document, place, value.clone()),
            }
        }
        self.keys.push(Meaning { key: path.to_owned(), value: value.clone(), effect, text: text.to_owned() });
    }

    /// Whether the file has this key.
    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known.key == key)
    }

    /// Sets a key of today that the file does not set.
    fn default(&mut self, path: &str, value: Value, why: &str) {
        if get(&self.document, path).is_some() {
            return;
        }
        set(&mut self.document, path, value.clone());
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let known = self.key(path).or_else(|| self.key(parent)).map_or("", |(_, _, text)| text);
        let text = if why.is_empty() { known.to_owned() } else { format!("{known} ({why})") };
        self.keys.push(Meaning { key: path.to_owned(), value, effect: Effect::Default, text });
    }

    /// Sets all keys of `defaults` that the file does not set.
    fn defaults(&mut self, defaults: &Value) {
        for (path, value) in leaves(defaults) {
            self.default(&path, value, "");
        }
    }
}

/// Before v0.28 memory of a compute unit was a number of slots, at most 65,535; no number of bytes is that small.
fn slots_to_bytes(converting: &mut Converting, unit: &str, slot: Bytes) {
    let memory = format!("{unit}.mem");
    let slots = get(&converting.document, &memory).and_then(Value::as_u64);
    let slots = slots.and_then(|slots| u16::try_from(slots).ok()).filter(|slots| *slots > 0);
    let Some(slots) = slots else { return };
    let bytes = slot.saturating_mul(u32::from(slots));
    set(&mut converting.document, &memory, serde_json::json!(bytes));
    let moved = |key: &&mut Meaning| match &key.effect {
        Effect::Moved { to } => to == unit,
        _ => key.key == unit,
    };
    if let Some(key) = converting.keys.iter_mut().find(moved) {
        key.text.push_str(&format!("; memory is a number of slots of {slot} there"));
    }
}

/// All values that are no objects, with their paths.
fn leaves(document: &Value) -> Vec<(String, Value)> {
    let Value::Object(section) = document else { return Vec::new() };
    let mut all = Vec::new();
    for (key, value) in section {
        match value {
            Value::Object(_) => {
                all.extend(leaves(value).into_iter().map(|(path, value)| (format!("{key}.{path}"), value)));
            }
            _ => all.push((key.clone(), value.clone())),
        }
    }
    all
}

fn get<'a>(document: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let first = document.get(keys.next()?)?;
    keys.try_fold(first, |at, key| at.get(key))
}

fn set(document: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(document.insert(path.to_owned(), value)),
        Some((key, rest)) => {
            let section = document.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(section) = section {
                set(section, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
