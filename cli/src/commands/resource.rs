//! The resources of a namespace that the CLI lists, shows, waits for and deletes: one implementation of these verbs for
//! `vm`, `migration` and `podautoscaler`.

pub(super) mod client;
pub(super) mod list;
mod nearest;
pub(super) mod predicate;
pub(super) mod wait;

use kube::core::NamespaceResourceScope;

pub(super) use nearest::nearest;

use super::watching::Watched;
use crate::report::{Column, Document, left, value_of};

/// A namespaced resource with a noun of the CLI.
pub(super) trait Resource: Watched + kube::Resource<Scope = NamespaceResourceScope> {
    /// Noun of the CLI, as in `neonctl vm list`.
    const NOUN: &'static str;
    /// Name of one object in messages.
    const ONE: &'static str;
    /// Name of several objects in messages.
    const MANY: &'static str;
    /// Prefix of a name with `-o name`.
    const PREFIX: &'static str;
    /// How to create the first object; shown after an empty list.
    const CREATE: &'static str;
    /// Width in characters of each column that is not wide, for rows that are printed one by one.
    const WIDTHS: &'static [usize];

    /// The columns, without that of the namespace.
    fn columns() -> Vec<Column>;

    /// A cell for each column.
    fn cells(&self) -> Vec<String>;
}

/// Shown in a cell without a value.
pub(super) const NONE: &str = "-";

/// The text, or [`NONE`] if it is empty.
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

pub(super) fn age_cell<K: kube::Resource>(object: &K) -> String {
    crate::render::age_of(object.meta()).unwrap_or_else(|| NONE.to_owned())
}

/// Name of an object; empty before it has one.
pub(super) fn name_of<K: kube::Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// The columns of `K`, with that of the namespace if objects of several are shown.
pub(super) fn columns<K: Resource>(namespaces: bool) -> Vec<Column> {
    let first = namespaces.then(|| left("NAMESPACE"));
    first.into_iter().chain(K::columns()).collect()
}

/// The cells of an object, one for each of [`columns`].
pub(super) fn row<K: Resource>(object: &K, namespaces: bool) -> Vec<String> {
    let first = namespaces.then(|| object.meta().namespace.clone().unwrap_or_default());
    first.into_iter().chain(object.cells()).collect()
}

/// The objects as the API returns them, with a table: one by itself, or a list.
pub(super) fn document<K: Resource>(objects: &[K]) -> Document {
    Document { value: value_of(objects), ..table(objects, false) }
}

/// The table of the objects, with the column of the namespace if those of several are shown.
pub(super) fn table<K: Resource>(objects: &[K], namespaces: bool) -> Document {
    let of = |object: &K| (name_of(object).to_owned(), row(object, namespaces));
    Document::table_of(K::PREFIX, objects, columns::<K>(namespaces), of)
}
