//! Reading one object and lists: versions, selectors, pages.

mod selection;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use self::selection::Selection;
use crate::fields;
use crate::kinds::Kind;
use crate::options::ListOptions;
use crate::render::ListMeta;
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
            let past = store.range_at(&kind.table, &prefix, after.as_deref(), revision);
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
