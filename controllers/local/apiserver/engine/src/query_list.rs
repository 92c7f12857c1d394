//! Reading one object and lists: versions, selectors, pages.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem::Finder;
use neonvm_types::selector::Requirement;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fields;
use crate::kinds::Kind;
use crate::options::ListOptions;
use crate::render::{self, ListMeta};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, Subject};
use crate::store::{Store, Stored, Unavailable};

pub(crate) struct Page {
    pub(crate) items: Vec<Stored>,
    pub(crate) meta: ListMeta,
}

#[derive(Deserialize, Serialize)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn encode(revision: u64, start: &str) -> String {
        let rv = i64::try_from(revision).unwrap_or(-1);
        let token = Self { v: "meta.k8s.io/v1".into(), rv, start: start.to_owned() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        bytes
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .filter(|token| token.v == "meta.k8s.io/v1")
            .ok_or_else(|| {
                ApiError::bad_request("continue key is not valid: it did not come from a list answer")
            })
    }
}

pub(crate) fn prefix(kind: &Kind, namespace: &str) -> String {
    if kind.namespaced && namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}

/// The `resourceVersion` of a list, checked against the present.
fn wanted_revision(store: &Store, text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let revision: u64 = text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })?;
    not_in_future(store, revision)?;
    Ok(Some(revision))
}

/// Refuses a revision that is not there yet.
///
/// # Errors
/// 504 `Timeout` with cause `ResourceVersionTooLarge`.
pub(crate) fn not_in_future(store: &Store, revision: u64) -> Result<(), ApiError> {
    let now = store.revision();
    if revision <= now {
        return Ok(());
    }
    let mut error =
        ApiError::plain(504, "Timeout", format!("Too large resource version: {revision}, current: {now}"));
    let mut details = serde_json::Map::new();
    details.insert(
        "causes".into(),
        json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]),
    );
    error.details = Some(Box::new(details));
    error.retry_after = Some(1);
    Err(error)
}

pub(crate) fn list(
    store: &Store,
    kind: &Kind,
    namespace: &str,
    options: &ListOptions,
) -> Result<Page, ApiError> {
    fields::check(kind, &options.fields)?;
    let prefix = prefix(kind, namespace);
    let mut limit = options.limit;
    let (revision, after) = if options.token.is_empty() {
        let wanted = wanted_revision(store, &options.revision)?;
        if options.revision == "0" {
            // Served from memory as a whole, as a watch cache does.
            limit = 0;
        }
        (wanted.filter(|_| options.matching == "Exact"), None)
    } else {
        if options.revision == "0" {
            limit = 0;
        } else if !options.revision.is_empty() {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let token = Token::decode(&options.token)?;
        (u64::try_from(token.rv).ok(), Some(token.start))
    };
    match revision {
        Some(revision) if revision != store.revision() => {
            let past = store.page_at(&kind.table, &prefix, after.as_deref(), revision, usize::MAX);
            let past = past.map_err(|gone| expired(gone, after.as_deref()))?;
            let items = past.iter().map(|(key, stored)| (key, stored));
            Ok(select(kind, options, items, revision, limit))
        }
        _ => {
            let items = store.range(&kind.table, &prefix, after.as_deref());
            Ok(select(kind, options, items, store.revision(), limit))
        }
    }
}

fn expired(gone: Unavailable, after: Option<&str>) -> ApiError {
    let Unavailable::Expired(oldest) = gone;
    match after {
        None => ApiError::plain(
            410,
            "Expired",
            format!("The resourceVersion for the provided list is too old: the oldest available is {oldest}"),
        ),
        Some(_) => ApiError::plain(
            410,
            "Expired",
            format!(
                "The provided continue parameter is too old to display a consistent list result: the oldest available revision is {oldest}. You can start a new list without the continue parameter."
            ),
        ),
    }
}

fn select<'a>(
    kind: &Kind,
    options: &ListOptions,
    candidates: impl Iterator<Item = (&'a Arc<str>, &'a Stored)>,
    revision: u64,
    limit: usize,
) -> Page {
    let selection = Selection::new(options);
    let selective = !selection.is_all();
    let mut matching = candidates.filter(|(_, stored)| selection.includes(kind, stored));
    let mut items = Vec::new();
    let mut last = None;
    let mut meta = ListMeta { revision, ..ListMeta::default() };
    while let Some((key, stored)) = matching.next() {
        if limit > 0 && items.len() == limit {
            meta.token = last.map(|key: &Arc<str>| Token::encode(revision, key));
            meta.remaining = (!selective).then(|| 1 + matching.count());
            break;
        }
        items.push(stored.clone());
        last = Some(key);
    }
    Page { items, meta }
}

pub(crate) fn read<'a>(
    store: &'a Store,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<&'a Stored, ApiError> {
    store
        .read(&kind.table, &crate::store::key_of(namespace, name))
        .ok_or_else(|| ApiError::not_found(Subject { group: &kind.group, resource: &kind.plural, name }))
}

/// The selectors of a list or watch. Most objects of a selective list do not match, such as the pod of one VM among 20,000; they are passed
/// over without being parsed.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Texts that the stored JSON of every selected object contains. The JSON has no white space, see [`render::to_bytes`].
    in_labels: Vec<Finder<'static>>,
    in_fields: Vec<Finder<'static>>,
}

impl Selection {
    pub(crate) fn new(options: &ListOptions) -> Self {
        let in_labels = options.labels.requirements().iter().filter_map(of_label);
        let in_fields = options.fields.terms.iter().filter(|(.., equal)| *equal);
        let in_fields = in_fields.filter_map(|(_, value, _)| of_field(value));
        let finder = |text: String| Finder::new(text.as_bytes()).into_owned();
        Self {
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            in_labels: in_labels.map(finder).collect(),
            in_fields: in_fields.map(finder).collect(),
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.terms.is_empty()
    }

    pub(crate) fn includes(&self, kind: &Kind, stored: &Stored) -> bool {
        if !self.may_include(kind, stored) || !self.labels.matches_json(&stored.json) {
            return false;
        }
        if self.fields.terms.is_empty() {
            return true;
        }
        let value = render::value_in(kind, stored);
        self.fields.matches(|path| fields::value(kind, &value, path))
    }

    /// Fields of other versions, and defaults of definitions that have changed since, are not in the stored JSON; labels always are.
    fn may_include(&self, kind: &Kind, stored: &Stored) -> bool {
        let has = |finders: &[Finder<'_>]| finders.iter().all(|finder| finder.find(&stored.json).is_some());
        has(&self.in_labels) && (has(&self.in_fields) || !render::is_as_stored(kind, stored))
    }
}

fn of_label(requirement: &Requirement) -> Option<String> {
    let key = quoted(requirement.key());
    match requirement {
        Requirement::In(_, values) => match values.as_slice() {
            [value] => Some(format!("{key}:{}", quoted(value))),
            _ => Some(format!("{key}:")),
        },
        Requirement::Exists(_) | Requirement::Greater(..) | Requirement::Less(..) => Some(format!("{key}:")),
        Requirement::NotIn(..) | Requirement::Missing(_) => None,
    }
}

/// A field that equals a text is stored as that text. Absent fields, numbers and booleans have other forms, and some have defaults.
fn of_field(value: &str) -> Option<String> {
    let is_other = value.is_empty() || matches!(value, "true" | "false") || value.parse::<f64>().is_ok();
    (!is_other).then(|| quoted(value))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
