//! The resources of a namespace that the CLI lists, shows, waits for and deletes: one implementation of these verbs for
//! `vm`, `migration` and `podautoscaler`.

pub(super) mod list;
pub(super) mod wait;

use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;

use super::watching::Watched;
use crate::connect::Connection;
use crate::error::{Code, Error, Result};
use crate::report::{Column, Document, left, value_of};
use crate::settings::Settings;

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

/// The name that was probably meant: one that differs in at most a third of its characters, a swap of neighbours counts once.
pub(crate) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let distances = known.iter().map(|other| (strsim::osa_distance(name, other), other));
    let (distance, other) = distances.min()?;
    (distance <= name.chars().count().max(3) / 3).then(|| other.clone())
}

/// A connection, and the namespace of the objects that a command is about.
pub(crate) struct NamespaceClient {
    pub(crate) connection: Connection,
    pub(crate) namespace: String,
}

impl NamespaceClient {
    pub(crate) async fn open(settings: &Settings) -> Result<Self> {
        let connection = Connection::open(settings).await?;
        let namespace =
            settings.place().namespace.clone().unwrap_or_else(|| connection.namespace().to_owned());
        Ok(Self { connection, namespace })
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.connection.client(), &self.namespace)
    }

    pub(crate) fn api_of<K>(&self, all_namespaces: bool) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        if all_namespaces { Api::all(self.connection.client()) } else { self.api() }
    }

    /// The object of this name.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`], with the name that was probably meant, if there is none.
    pub(crate) async fn find<K: Resource>(&self, name: &str) -> Result<K> {
        let attempt = format!("cannot get {} {name:?}", K::ONE);
        match self.connection.within(&attempt, self.api::<K>().get_opt(name)).await? {
            Some(object) => Ok(object),
            None => Err(self.not_found::<K>(name).await),
        }
    }

    /// The objects of these names, in their order.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub(crate) async fn find_all<K: Resource>(&self, names: &[String]) -> Result<Vec<K>> {
        let mut found = Vec::new();
        for name in names {
            found.push(self.find(name).await?);
        }
        Ok(found)
    }

    pub(crate) async fn not_found<K: Resource>(&self, name: &str) -> Error {
        let namespace = &self.namespace;
        let error =
            Error::new(Code::NotFound, format!("{} {name:?} not found in namespace {namespace:?}", K::ONE));
        let names: Vec<String> =
            match self.connection.within("", self.api::<K>().list_metadata(&ListParams::default())).await {
                Ok(list) => list.items.into_iter().filter_map(|item| item.metadata.name).collect(),
                Err(error) if error.code == Code::NotFound => {
                    return undefined::<K>(error, &format!("cannot get {} {name:?}", K::ONE));
                }
                Err(_) => Vec::new(),
            };
        match nearest(name, &names) {
            Some(meant) => error.hint(format!("did you mean {meant:?}?")),
            None => error.hint(format!("list the {}: neonctl {} list -n {namespace}", K::MANY, K::NOUN)),
        }
    }
}

/// The error of a list whose custom resource definition does not exist; other errors as they are.
fn undefined<K: Resource>(error: Error, attempt: &str) -> Error {
    if error.code != Code::NotFound {
        return error;
    }
    let definition = format!("{}.{}", K::plural(&()), K::group(&()));
    Error::new(Code::NotFound, attempt)
        .cause(format!("this cluster has no definition of {definition}"))
        .hint("see what else is missing: neonctl status")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    AtLeast,
    AtMost,
    Equal,
}

impl Comparison {
    pub(crate) fn holds<T: PartialOrd>(self, one: &T, other: &T) -> bool {
        match self {
            Self::AtLeast => one >= other,
            Self::AtMost => one <= other,
            Self::Equal => one == other,
        }
    }

    /// Whether no value between these bounds can hold.
    pub(crate) fn is_out_of<T: PartialOrd>(self, wanted: &T, least: &T, most: &T) -> bool {
        let (above, below) = (wanted > most, wanted < least);
        match self {
            Self::AtLeast => above,
            Self::AtMost => below,
            Self::Equal => above || below,
        }
    }
}

/// `KEY>=VALUE`, `KEY<=VALUE` or `KEY=VALUE`; `None` for every other text, and without a value.
pub(crate) fn split(text: &str) -> Option<(&str, Comparison, &str)> {
    let operators = [(">=", Comparison::AtLeast), ("<=", Comparison::AtMost), ("=", Comparison::Equal)];
    let (key, rest) = text.split_at_checked(text.find(['<', '>', '='])?)?;
    let mut found = operators.iter().filter_map(|(sign, own)| Some((*own, rest.strip_prefix(sign)?)));
    let (comparison, value) = found.next().filter(|(_, value)| !value.is_empty())?;
    Some((key, comparison, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant() {
        let known: Vec<String> = ["pg-main", "pg-dev", "web-1"].map(str::to_owned).into();
        assert_eq!(nearest("pg-mian", &known).as_deref(), Some("pg-main"));
        assert_eq!(nearest("web1", &known).as_deref(), Some("web-1"));
        assert_eq!(nearest("database", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
